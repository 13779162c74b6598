//! Operators' commands against a real Core.

use oac_testkit::core::TestCore;

use crate::program::Oac;

const PROJECT: &str = "11111111-1111-4111-8111-111111111111";

fn operator(core: &TestCore) -> Oac {
    Oac::with(&format!(
        "url = \"{}\"\ncore_key = \"{}\"\n",
        core.url,
        core.core_key.expose()
    ))
}

#[tokio::test]
async fn a_created_project_key_is_alone_on_standard_output_and_its_id_on_standard_error() {
    let core = TestCore::start().await;
    let oac = operator(&core);
    let project = oac.run(&["admin", "project", "create", "work"]).await.expect(0);
    let project = project.out.trim().to_owned();
    let said = oac
        .run(&["admin", "key", "create", &project, "application"])
        .await
        .expect(0);
    let key = said.out.trim_end();
    assert!(
        key.starts_with("oac_key_") && !key.contains(char::is_whitespace),
        "{said:?}"
    );
    assert!(
        said.err.contains("application") && !said.err.contains(key),
        "{said:?}"
    );
    let id = said
        .err
        .split_whitespace()
        .find(|word| word.len() == 36)
        .unwrap()
        .to_owned();
    oac.run(&["admin", "key", "rm", &project, &id]).await.expect(0);
    let listed = oac.run(&["admin", "project", "list"]).await.expect(0).out;
    assert!(listed.contains("work") && listed.contains(&project), "{listed}");
}

#[tokio::test]
async fn a_saved_project_key_is_usable_and_shown_nowhere() {
    let core = TestCore::start().await;
    let oac = operator(&core);
    let said = oac.run(&["session", "list"]).await.expect(1);
    assert!(
        said.err.contains("project_key") && said.err.contains("oac login"),
        "{said:?}"
    );
    let project = core.project_id.to_string();
    let said = oac
        .run(&["admin", "key", "create", &project, "laptop", "--save"])
        .await
        .expect(0);
    let file = std::fs::read_to_string(&oac.config).unwrap();
    let key = file.split('"').find(|w| w.starts_with("oac_key_")).unwrap();
    assert!(!format!("{said:?}").contains(key), "{said:?}");
    oac.run(&["session", "list"]).await.expect(0);
}

#[tokio::test]
async fn a_name_in_place_of_an_id_is_refused_with_what_to_give() {
    let oac = Oac::unconfigured();
    for arguments in [
        &["admin", "key", "create", "demo", "application"][..],
        &["admin", "key", "rm", PROJECT, "application"],
        &["admin", "project", "rm", "demo"],
        &["session", "show", "mine"],
    ] {
        let said = oac.run(arguments).await.expect(2);
        assert!(said.err.contains("give the id"), "{arguments:?}: {said:?}");
    }
}

#[tokio::test]
async fn a_deployment_is_shown_and_set_from_a_manifest_and_a_stale_one_says_so() {
    let core = TestCore::start().await;
    let oac = operator(&core);
    let manifest = oac.path("manifest.json");
    let digest = |c: &str| format!("sha256:{}", c.repeat(32));
    let text = serde_json::json!({
        "source_commit": "1".repeat(40),
        "images": { "runtime": { "config_digest": digest("ab"), "manifest_digest": digest("cd") } },
    });
    std::fs::write(&manifest, text.to_string()).unwrap();
    let manifest = manifest.display().to_string();
    let set = [
        "deployment",
        "set",
        "--runtime",
        &manifest,
        "--cpus",
        "1",
        "--memory",
        "512",
    ];
    let said = oac.run(&set).await.expect(0);
    assert!(
        said.out.contains("docker") && said.out.contains(&"1".repeat(40)),
        "{said:?}"
    );
    let shown = oac.run(&["--json", "deployment", "show"]).await.expect(0).json();
    assert_eq!(shown["specification"]["resources"]["memory_mib"], 512);
    let other = oac.path("other.json");
    std::fs::write(&other, "{}").unwrap();
    let said = oac
        .run(&["deployment", "set", "--runtime", &other.display().to_string()])
        .await
        .expect(2);
    assert!(said.err.contains("manifest.json"), "{said:?}");
    oac.run(&["node", "list"]).await.expect(0);
    let said = oac.run(&["node", "ls", "--json"]).await.expect(0);
    assert!(said.json()["data"].as_array().unwrap().is_empty());
}
