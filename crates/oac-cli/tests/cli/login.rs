//! `oac login` and `oac context` against a real Core.

use std::os::unix::fs::PermissionsExt;

use oac_testkit::core::TestCore;

use crate::program::{Oac, write};

fn answers(core: &TestCore) -> String {
    format!(
        "{}/\n{}\n{}\n",
        core.url,
        core.core_key.expose(),
        core.project_key.expose()
    )
}

#[tokio::test]
async fn login_writes_what_core_accepted_and_keeps_the_other_contexts() {
    let core = TestCore::start().await;
    let oac = Oac::with("url = \"http://192.0.2.1\"\ncore_key = \"oac_core_kept\"\n");
    let said = oac
        .run_with(answers(&core).as_bytes(), &["login", "--context", "two"])
        .await
        .expect(0);
    assert!(said.err.contains("oac context use two"), "{said:?}");
    let file = std::fs::read_to_string(&oac.config).unwrap();
    assert!(
        file.contains("oac_core_kept") && file.contains("192.0.2.1"),
        "{file}"
    );
    let mode = std::fs::metadata(&oac.config).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    oac.run(&["--context", "two", "session", "list"]).await.expect(0);
    oac.run(&["context", "use", "two"]).await.expect(0);
    oac.run(&["session", "list"]).await.expect(0);
    oac.run(&["node", "list"]).await.expect(0);

    let listed = oac.run(&["context", "list"]).await.expect(0).out;
    assert!(
        listed.lines().any(|l| l.starts_with('*') && l.contains("two")),
        "{listed}"
    );
    let shown = oac
        .run(&["--json", "context", "show", "two"])
        .await
        .expect(0)
        .json();
    assert_eq!(
        (&shown["url"], &shown["core_key"], &shown["current"]),
        (&core.url.as_str().into(), &true.into(), &true.into())
    );
    let said = oac.run(&["context", "rm", "two"]).await.expect(0);
    assert!(said.err.contains("oac context use"), "{said:?}");
    let said = oac.run(&["session", "list"]).await.expect(1);
    assert!(
        said.err.contains("no context two") && said.err.contains("default"),
        "{said:?}"
    );
}

#[tokio::test]
async fn login_keeps_a_key_that_is_not_given_anew_but_not_for_another_address() {
    let core = TestCore::start().await;
    let oac = Oac::unconfigured();
    oac.run_with(answers(&core).as_bytes(), &["login"])
        .await
        .expect(0);
    let before = std::fs::read_to_string(&oac.config).unwrap();
    oac.run_with(b"\n\n\n", &["login"]).await.expect(0);
    assert_eq!(std::fs::read_to_string(&oac.config).unwrap(), before);
    // Another name of the same Core: the keys were not given for it.
    let other = core.url.replace("127.0.0.1", "localhost");
    let said = oac
        .run_with(format!("{other}\n\n\n").as_bytes(), &["login"])
        .await
        .expect(2);
    assert!(said.err.contains("at least one key"), "{said:?}");
    assert_eq!(std::fs::read_to_string(&oac.config).unwrap(), before);
}

#[tokio::test]
async fn login_writes_nothing_that_core_did_not_accept() {
    let core = TestCore::start().await;
    let oac = Oac::unconfigured();
    let unknown = format!("oac_core_{}", "0".repeat(64));
    let url = &core.url;
    let project = core.project_key.expose();
    for (input, says) in [
        (format!("{url}\n{unknown}\n\n"), "does not know the Core key"),
        (
            format!("{url}\n\n{}\n", unknown.replace("core", "key")),
            "does not know the Project key",
        ),
        (format!("{url}\n{project}\n\n"), "begins with oac_core_"),
        (format!("{url}\n\n\n"), "at least one key"),
        (format!("{url}/path\n\n{project}\n"), "without a path"),
        (format!("http://127.0.0.1:1\n\n{project}\n"), "cannot reach Core"),
    ] {
        let said = oac.run_with(input.as_bytes(), &["login"]).await;
        assert!(matches!(said.status, Some(1 | 2)), "{said:?}");
        assert!(said.err.contains(says), "{says}: {said:?}");
        assert!(
            !said.err.contains(&unknown) && !said.err.contains(project),
            "{said:?}"
        );
        assert!(!oac.config.exists());
    }
}

#[tokio::test]
async fn an_unsafe_or_broken_file_is_refused_with_what_to_do() {
    let oac = Oac::of("http://127.0.0.1:1");
    std::fs::set_permissions(&oac.config, std::fs::Permissions::from_mode(0o644)).unwrap();
    for arguments in [&["session", "list"][..], &["context", "list"], &["login"]] {
        let said = oac.run(arguments).await.expect(1);
        let fix = format!("chmod 600 {}", oac.config.display());
        assert!(
            said.err.contains(&fix) && said.err.lines().count() == 1,
            "{said:?}"
        );
    }
    std::fs::remove_file(&oac.config).unwrap();
    write(&oac.config, "url = \"http://h\"\nproject_key = oac_key_sesame\n");
    let said = oac.run(&["session", "list"]).await.expect(1);
    assert!(
        said.err.contains("line 2") && !said.err.contains("sesame"),
        "{said:?}"
    );
}

#[tokio::test]
async fn a_file_of_another_account_is_refused() {
    let own = rustix::process::geteuid();
    let mut oac = Oac::of("http://127.0.0.1:1");
    let owner = if own.is_root() {
        std::os::unix::fs::chown(&oac.config, Some(65_532), None).unwrap();
        65_532
    } else {
        // Only root can give a file away, but some are root's everywhere.
        oac.config = "/etc/passwd".into();
        0
    };
    let said = oac.run(&["session", "list"]).await.expect(1);
    for told in [
        format!("belongs to the account {owner}:"),
        format!("`sudo chown {} ", own.as_raw()),
    ] {
        assert!(said.err.contains(&told), "{told}: {said:?}");
    }
}

#[tokio::test]
async fn neither_keys_nor_the_address_come_from_the_environment_or_arguments() {
    let core = TestCore::start().await;
    let oac = Oac::unconfigured();
    let mut command = oac.command(&["session", "list"]);
    for name in [
        "OAC_URL",
        "OAC_PROJECT_KEY",
        "OAC_CORE_KEY",
        "OAC_KEY",
        "OAC_CONFIG",
    ] {
        command.env(name, core.project_key.expose());
    }
    let output = command.output().await.unwrap();
    assert_eq!(output.status.code(), Some(1));
    for argument in ["--url", "--core-key", "--project-key", "--key"] {
        oac.run(&["session", "list", argument, "x"]).await.expect(2);
        oac.run(&["login", argument, "x"]).await.expect(2);
    }
}
