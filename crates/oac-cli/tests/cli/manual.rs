//! Completions, manual pages and help.

use crate::program::Oac;

#[tokio::test]
async fn every_shell_gets_a_script_that_knows_the_commands() {
    let oac = Oac::unconfigured();
    for shell in ["bash", "zsh", "fish"] {
        let said = oac.run(&["completions", shell]).await.expect(0);
        for word in ["port-forward", "completions", "login"] {
            assert!(said.out.contains(word), "{shell}: {word}");
        }
        assert_eq!(said.err, "");
    }
    oac.run(&["completions", "cmd.exe"]).await.expect(2);
}

#[tokio::test]
async fn bash_takes_the_completions() {
    let oac = Oac::unconfigured();
    let script = oac.path("oac.bash");
    std::fs::write(&script, oac.run(&["completions", "bash"]).await.expect(0).out).unwrap();
    let asked = "source oac.bash; COMP_WORDS=(oac session ex); COMP_CWORD=2; _oac oac ex session; echo ${COMPREPLY[@]}";
    let output = tokio::process::Command::new("bash")
        .args(["--norc", "-c", asked])
        .current_dir(oac.folder.path())
        .output()
        .await
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "exec\n", "{output:?}");
}

#[tokio::test]
async fn every_command_has_a_manual_page_and_a_help_text_without_a_configuration() {
    let oac = Oac::unconfigured();
    let said = oac.run(&["man"]).await.expect(0);
    assert!(said.out.contains(".TH oac 1"), "{}", said.out);
    let dir = oac.path("man");
    oac.run(&["man", "--dir", &dir.display().to_string()])
        .await
        .expect(0);
    for page in [
        "oac.1",
        "oac-session-exec.1",
        "oac-session-cp.1",
        "oac-context-use.1",
    ] {
        assert!(dir.join(page).exists(), "{page}");
    }
    for arguments in [
        &["--help"][..],
        &["session", "cp", "--help"],
        &["session", "port-forward", "-h"],
        &["help", "login"],
    ] {
        let said = oac.run(arguments).await.expect(0);
        assert!(
            said.out.contains("Usage:") && !said.out.contains('\u{1b}'),
            "{said:?}"
        );
    }
}

#[tokio::test]
async fn a_mistyped_command_is_answered_with_the_one_that_was_meant() {
    let said = Oac::unconfigured().run(&["session", "exce"]).await.expect(2);
    assert!(said.err.contains("'exec'"), "{said:?}");
}
