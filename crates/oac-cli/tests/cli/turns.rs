//! `oac session turns|logs|cancel|events|rm` against a scripted Core.

use axum::http::Method;
use serde_json::json;

use crate::{
    program::Oac,
    script::{
        Asked, SESSION, Script, TURN, answer, end, events, events_open, record, refuse, session,
        session_path, turn, usual,
    },
};

const OTHER: &str = "33333333-3333-4333-8333-333333333333";

fn turns(asked: &Asked) -> Option<axum::response::Response> {
    if !asked.is(Method::GET, &session_path("/turns")) {
        return None;
    }
    let first = turn(
        json!({ "id": OTHER, "state": "completed", "exit_code": 0, "ended_at": "2026-01-01T00:00:01Z" }),
    );
    let last = turn(json!({ "sequence": 2 }));
    Some(if asked.target.contains("cursor") {
        answer(200, json!({ "data": [last], "next": null }))
    } else {
        answer(200, json!({ "data": [first], "next": "1 &" }))
    })
}

#[tokio::test]
async fn turns_are_listed_over_all_pages_with_how_they_ended() {
    let script = Script::start(|asked, _| async move { turns(&asked).unwrap() }).await;
    let oac = Oac::of(&script.url);
    let said = oac.run(&["session", "turns", SESSION]).await.expect(0);
    let lines: Vec<_> = said.out.lines().collect();
    assert_eq!(lines.len(), 3, "{said:?}");
    assert!(lines[1].contains(OTHER) && lines[1].contains("completed") && lines[1].contains("printf x"));
    assert!(lines[2].contains(TURN) && lines[2].contains("running"));
    assert!(
        script.asked()[1].target.ends_with("cursor=1%20%26"),
        "{:?}",
        script.asked()
    );
    let said = oac.run(&["--json", "session", "turns", SESSION]).await.expect(0);
    assert_eq!(said.json()["data"][1]["id"], TURN);
}

#[tokio::test]
async fn a_long_reason_leaves_room_for_the_rest_of_the_table() {
    let reason = "nosuch cannot be executed: no such file or directory";
    let script = Script::start(move |_, _| async move {
        let failed = turn(json!({ "state": "failed", "reason": reason }));
        answer(200, json!({ "data": [failed], "next": null }))
    })
    .await;
    let said = Oac::of(&script.url)
        .run(&["session", "turns", SESSION])
        .await
        .expect(0);
    assert!(said.out.contains("nosuch cannot be executed: no …  "), "{said:?}");
}

#[tokio::test]
async fn the_usage_of_cancel_names_its_arguments_in_their_order() {
    let said = Oac::unconfigured()
        .run(&["session", "cancel", SESSION])
        .await
        .expect(2);
    assert!(said.err.contains("cancel [OPTIONS] <S> <TURN|"), "{said:?}");
}

#[tokio::test]
async fn logs_print_what_is_stored_and_follow_to_the_end_when_asked() {
    let script = Script::start(|asked, before| async move {
        if let Some(known) = turns(&asked).or_else(|| usual(&asked)) {
            return known;
        }
        // Everything stored, then the comment that says so; a second reader gets the end.
        match before {
            0 | 2 => events_open(record(0, "stdout", "so far\n") + ":\n\n"),
            _ => events(record(0, "stdout", "so far\n") + &end(json!({"state":"canceled"}))),
        }
    })
    .await;
    let oac = Oac::of(&script.url);
    let said = oac.run(&["session", "logs", SESSION]).await.expect(0);
    assert_eq!((&*said.out, &*said.err), ("so far\n", ""));
    // What became of the Turn is not what became of reading it.
    let said = oac
        .run(&["session", "logs", SESSION, "--last", "--follow"])
        .await
        .expect(0);
    assert_eq!(said.out, "so far\n");
    let said = oac
        .run(&["--json", "session", "logs", SESSION, TURN])
        .await
        .expect(0);
    assert_eq!(said.lines()[0]["type"], "output");
}

#[tokio::test]
async fn logs_begin_at_the_offset() {
    let script = Script::start(|asked, _| async move {
        if let Some(usual) = usual(&asked) {
            return usual;
        }
        assert!(asked.target.ends_with("/output?offset=4"), "{asked:?}");
        events(record(4, "stderr", "end") + &super::script::end(json!({"state":"completed","exit_code":1})))
    })
    .await;
    let said = Oac::of(&script.url)
        .run(&["session", "logs", SESSION, TURN, "--offset", "4"])
        .await
        .expect(0);
    assert_eq!((&*said.out, &*said.err), ("", "end"));
}

#[tokio::test]
async fn events_end_when_everything_was_told_and_go_on_when_followed() {
    let event = |n: u64, kind: &str| {
        let data = json!({ "sequence": n, "type": kind, "data": { "turn_id": TURN }, "created_at": "2026-01-01T00:00:00Z" });
        format!("event: {kind}\nid: {n}\ndata: {data}\n\n")
    };
    let (one, two) = (event(1, "turn.queued"), event(2, "session.archived"));
    let script = Script::start(move |asked, before| {
        let (one, two) = (one.clone(), two.clone());
        async move {
            if asked.is(Method::GET, &session_path("")) {
                return answer(200, session(json!({ "archived_at": "2026-01-01T00:00:00Z" })));
            }
            match (before, asked.target.split('?').nth(1)) {
                (0, Some("after=0")) => events_open(one + ":\n\n"),
                (1, Some("after=0")) => events(one),
                (2, Some("after=1")) => events(two),
                _ => events(String::new()),
            }
        }
    })
    .await;
    let oac = Oac::of(&script.url);
    let said = oac.run(&["session", "events", SESSION]).await.expect(0);
    assert!(
        said.out.contains("turn.queued") && said.out.contains(TURN) && said.out.lines().count() == 1,
        "{said:?}"
    );
    let said = oac
        .run(&["--json", "session", "events", SESSION, "--follow"])
        .await
        .expect(0);
    // The first stream was closed with the Session archived: that is its end.
    assert_eq!(said.lines().len(), 1, "{said:?}");
}

#[tokio::test]
async fn all_unfinished_turns_are_canceled_from_the_last_to_the_first() {
    let ids: Vec<String> = (1..=3).map(|n| TURN.replace('2', &n.to_string())).collect();
    let listed = ids.clone();
    let script = Script::start(move |asked, _| {
        let listed = listed.clone();
        async move {
            if asked.method == Method::GET {
                let mut all: Vec<_> = listed.iter().map(|id| turn(json!({ "id": id }))).collect();
                all[0]["ended_at"] = json!("2026-01-01T00:00:00Z");
                return answer(200, json!({ "data": all, "next": null }));
            }
            let id = asked.target.split('/').nth(5).unwrap();
            answer(202, turn(json!({ "id": id })))
        }
    })
    .await;
    let oac = Oac::of(&script.url);
    oac.run(&["session", "cancel", SESSION, "--all"]).await.expect(0);
    let canceled: Vec<_> = script
        .asked()
        .iter()
        .filter(|a| a.method == Method::POST)
        .map(|a| a.target.split('/').nth(5).unwrap().to_owned())
        .collect();
    assert_eq!(canceled, [ids[2].clone(), ids[1].clone()]);
    for arguments in [
        &["session", "cancel", SESSION][..],
        &["session", "cancel", SESSION, "--all", "--last"],
        &["session", "cancel", SESSION, TURN, "--all"],
    ] {
        oac.run(arguments).await.expect(2);
    }
}

#[tokio::test]
async fn a_session_is_created_once_though_its_answer_is_lost() {
    let script = Script::start(|asked, before| async move {
        if before == 0 {
            return crate::script::broken("");
        }
        assert_eq!(asked.json()["network"]["allowed_domains"], json!(["pypi.org"]));
        answer(201, session(json!({})))
    })
    .await;
    let said = Oac::of(&script.url)
        .run(&[
            "session",
            "create",
            "--name",
            "work",
            "--node-label",
            "disk=ssd",
            "--metadata",
            "a=b=c",
            "--network",
            "restricted",
            "--allow-domain",
            "pypi.org",
        ])
        .await
        .expect(0);
    assert_eq!(said.out, format!("{SESSION}\n"));
    let asked = script.asked();
    assert_eq!(
        asked[0].header("idempotency-key"),
        asked[1].header("idempotency-key")
    );
    assert_eq!(
        (&asked[1].json()["node_labels"], &asked[1].json()["metadata"]),
        (&json!({ "disk": "ssd" }), &json!({ "a": "b=c" }))
    );
}

#[tokio::test]
async fn rm_archives_only_what_was_agreed_to() {
    let script = Script::start(|asked, _| async move {
        if asked.is(Method::GET, "/v1/sessions") {
            let gone = session(json!({ "id": OTHER, "archived_at": "2026-01-01T00:00:00Z" }));
            return answer(200, json!({ "data": [session(json!({})), gone], "next": null }));
        }
        match asked.method {
            Method::DELETE => answer(202, session(json!({ "state": "archived" }))),
            _ => usual(&asked).unwrap_or_else(|| refuse(404, "not_found_error")),
        }
    })
    .await;
    let oac = Oac::of(&script.url);
    // Nobody can be asked.
    let said = oac.run(&["session", "rm", SESSION]).await.expect(2);
    assert!(said.err.contains("--yes"), "{said:?}");
    oac.run(&["session", "rm", "--yes", SESSION, OTHER])
        .await
        .expect(1);
    let deleted = |script: &Script| {
        let asked = script.asked();
        let all = asked.iter().filter(|a| a.method == Method::DELETE);
        all.map(|a| a.target.clone()).collect::<Vec<_>>()
    };
    assert_eq!(
        deleted(&script),
        [""; 0],
        "one that is not there keeps the others"
    );
    oac.run(&["session", "rm", "--yes", "--all"]).await.expect(0);
    assert_eq!(deleted(&script), [session_path("")]);
    oac.run(&["session", "rm"]).await.expect(2);
}

#[tokio::test]
async fn list_leaves_archived_sessions_out_unless_asked() {
    let script = Script::start(|_, _| async {
        let gone =
            session(json!({ "id": OTHER, "archived_at": "2026-01-01T00:00:00Z", "name": "a\u{1b}[2Jb" }));
        answer(200, json!({ "data": [session(json!({})), gone], "next": null }))
    })
    .await;
    let oac = Oac::of(&script.url);
    let said = oac.run(&["session", "ls"]).await.expect(0);
    assert!(!said.out.contains(OTHER), "{said:?}");
    let said = oac.run(&["session", "list", "--all"]).await.expect(0);
    assert!(
        said.out.contains(OTHER) && !said.out.contains('\u{1b}'),
        "{said:?}"
    );
    oac.run(&["session", "list", "--state", "busy"]).await.expect(0);
    assert!(script.asked()[2].target.ends_with("?state=busy"));
}

#[tokio::test]
async fn what_is_not_there_is_said_at_once() {
    let script = Script::start(|_, _| async { refuse(404, "not_found_error") }).await;
    for core in [script.url.as_str(), "http://127.0.0.1:1"] {
        let oac = Oac::of(core);
        for arguments in [
            &["session", "logs", SESSION, TURN, "--follow"][..],
            &["session", "events", SESSION, "--follow"],
            &["session", "cp", &format!("{SESSION}:f"), "f"],
            &["session", "port-forward", SESSION, "0:80"],
        ] {
            let said = oac.run(arguments).await.expect(1);
            assert_eq!(said.err.lines().count(), 1, "{arguments:?}: {said:?}");
        }
    }
}
