//! `oac node add` and `oac node cleanup-command`.

use axum::{http::Method, response::Response};
use serde_json::{Value, json};

use crate::{
    program::Oac,
    script::{Asked, Script, answer, refuse},
};

const TOKENS: &str = "/core/v1/sandbox/enrollment-tokens";
const NODES: &str = "/core/v1/sandbox/nodes";
const CLEANUP: &str = "/core/v1/sandbox/cleanup-commands";
const INDEX: &str = "/api/v1/sandbox-node/install/index.json";
const ENROLLMENT: &str = "33333333-3333-4333-8333-333333333333";
const NODE: &str = "44444444-4444-4444-8444-444444444444";
/// As Core answers one: leading space, quotes and all.
const COMMAND: &str =
    " echo '0123' | sh -c 'umask 077; [ \"$1\" ]' oac-node-bootstrap 'ab' --core-url 'http://c'";

fn node(members: Value) -> Value {
    let mut node = json!({
        "id": NODE, "name": "rack 7", "provider": "docker", "online": true, "provider_ready": true,
        "diagnostic": null, "rollout": { "state": "ready", "ready_generation": 1 }, "active": 0, "retained": 0,
        "max_active": 1, "max_retained": 1, "recommended": null, "labels": {}, "cordoned": false, "drain": null,
        "last_seen_at": null,
    });
    node.as_object_mut()
        .unwrap()
        .extend(members.as_object().unwrap().clone());
    node
}

fn token(command: Value) -> Response {
    answer(
        201,
        json!({ "token": "0123", "expires_at": "2026-01-01T01:00:00Z", "enrollment_id": ENROLLMENT, "command": command }),
    )
}

/// A Core that gives out a command and then shows one list after the other, the last one for ever.
async fn core(lists: &'static [fn() -> Response]) -> Script {
    Script::start(async move |asked: Asked, before: usize| {
        if asked.is(Method::POST, TOKENS) {
            return token(json!(COMMAND));
        }
        if asked.is(Method::GET, NODES) {
            assert_eq!(asked.target, format!("{NODES}?enrollment_id={ENROLLMENT}"));
            return lists[before.min(lists.len() - 1)]();
        }
        answer(
            200,
            json!({ "installation_id": ENROLLMENT, "generation": 1, "provider": "docker", "reset": null }),
        )
    })
    .await
}

fn list(nodes: &[Value]) -> Response {
    answer(200, json!({ "data": nodes, "old_addresses": [] }))
}

#[tokio::test]
async fn the_command_is_printed_byte_for_byte_and_its_node_followed_until_it_is_ready() {
    let script = core(&[
        || list(&[]),
        || refuse(503, "core_standby"),
        || list(&[node(json!({ "online": false, "provider_ready": false }))]),
        || {
            list(&[node(
                json!({ "provider_ready": false, "rollout": { "diagnostic": "capacity_insufficient" } }),
            )])
        },
        || list(&[node(json!({}))]),
    ])
    .await;
    let said = Oac::of(&script.url).run(&["node", "add"]).await.expect(0);
    assert_eq!(said.out, format!("{COMMAND}\n"));
    let told: Vec<&str> = said.err.lines().collect();
    assert_eq!(
        told,
        [
            "Run this command on the host. It registers one node, once, and only if it runs within an hour.",
            &format!("Registered: rack 7 ({NODE})"),
            "Connected",
            "The node needs attention: host too small; use a larger host, or change the sandbox size",
            &format!("Logs: sudo journalctl -u oac-node-{ENROLLMENT}.service"),
            "rack 7 is ready.",
        ]
    );
    let asked = script.until(Method::POST, TOKENS, 1).await;
    assert_eq!(asked[0].json(), json!({ "recommended": true }));
}

#[tokio::test]
async fn programs_read_each_step_as_a_document() {
    let script = core(&[|| list(&[node(json!({}))])]).await;
    let said = Oac::of(&script.url)
        .run(&["--json", "node", "add"])
        .await
        .expect(0);
    let lines = said.lines();
    let kinds: Vec<&str> = lines.iter().map(|line| line["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["command", "registered", "connected", "ready"]);
    assert_eq!(
        (
            &lines[0]["command"],
            &lines[0]["enrollment_id"],
            &lines[3]["node"]["id"]
        ),
        (&json!(COMMAND), &json!(ENROLLMENT), &json!(NODE))
    );
}

#[tokio::test]
async fn chosen_limits_are_asked_for_and_odd_ones_refused() {
    let script = core(&[|| list(&[])]).await;
    let oac = Oac::of(&script.url);
    for (arguments, body) in [
        (&["--recommended"][..], json!({ "recommended": true })),
        (&["--active", "4"], json!({ "max_active": 4, "max_retained": 4 })),
        (
            &["--active", "4", "--retained", "16"],
            json!({ "max_active": 4, "max_retained": 16 }),
        ),
    ] {
        let arguments = [&["node", "add", "--no-wait"], arguments].concat();
        assert_eq!(oac.run(&arguments).await.expect(0).out, format!("{COMMAND}\n"));
        assert_eq!(script.asked().last().unwrap().json(), body);
    }
    for arguments in [
        &["--retained", "4"][..],
        &["--active", "0"],
        &["--active", "1000001"],
        &["--recommended", "--active", "4"],
    ] {
        oac.run(&[&["node", "add"], arguments].concat()).await.expect(2);
    }
    assert!(script.asked().iter().all(|asked| asked.is(Method::POST, TOKENS)));
}

#[tokio::test]
async fn without_a_command_the_token_is_revoked_and_what_core_lacks_is_said() {
    for (index, said) in [
        (None, "This console serves no node installer"),
        (
            Some(json!({ "installer": null })),
            "This console serves no node installer",
        ),
        (
            Some(json!({ "installer": {} })),
            "This console has no node files for docker",
        ),
    ] {
        let script = Script::start(move |asked: Asked, _| {
            let index = index.clone();
            async move {
                if asked.is(Method::POST, TOKENS) {
                    return token(Value::Null);
                }
                if asked.is(Method::DELETE, &format!("{TOKENS}/{ENROLLMENT}")) {
                    return answer(204, Value::Null);
                }
                if asked.is(Method::GET, INDEX) {
                    return index.map_or_else(|| refuse(404, "not_found_error"), |index| answer(200, index));
                }
                answer(
                    200,
                    json!({ "generation": 1, "provider": "docker", "reset": null }),
                )
            }
        })
        .await;
        let shown = Oac::of(&script.url).run(&["node", "add"]).await.expect(1);
        assert!(shown.err.contains(said) && shown.out.is_empty(), "{shown:?}");
        script
            .until(Method::DELETE, &format!("{TOKENS}/{ENROLLMENT}"), 1)
            .await;
    }
}

#[tokio::test]
async fn a_node_that_is_removed_while_it_is_followed_ends_it() {
    let script = core(&[|| list(&[node(json!({ "online": false }))]), || list(&[])]).await;
    let said = Oac::of(&script.url).run(&["node", "add"]).await.expect(1);
    assert!(said.err.contains("the node was removed meanwhile"), "{said:?}");
}

#[tokio::test]
async fn the_cleanup_command_is_printed_byte_for_byte() {
    let script = Script::start(async |asked: Asked, _| {
        if asked.is(Method::DELETE, &format!("{NODES}/{NODE}")) {
            return answer(204, Value::Null);
        }
        assert!(asked.is(Method::GET, CLEANUP), "{asked:?}");
        answer(
            200,
            json!({ "command": " sh -c 'x'", "forced_command": " sh -c 'x' --force" }),
        )
    })
    .await;
    let oac = Oac::of(&script.url);
    let said = oac.run(&["node", "cleanup-command"]).await.expect(0);
    assert_eq!(said.out, " sh -c 'x'\n");
    let said = oac.run(&["node", "cleanup-command", "--force"]).await.expect(0);
    assert_eq!(said.out, " sh -c 'x' --force\n");
    let said = oac.run(&["node", "rm", NODE]).await.expect(0);
    assert!(said.err.contains("oac node cleanup-command"), "{said:?}");
}
