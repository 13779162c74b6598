//! The bootstrap script on real hosts, with a stand-in for the installer and a server that fails as told
//! (installer.md section 1).

use oac_model::Digest;
use oac_testkit::host::{Host, Noise, Shell, Sudo, User};
use oac_tests::served::Reply;

use crate::stand_in::{Console, Given, RAN, STAND_IN, TOKEN, installation};

fn stand_in() -> Reply {
    Reply::Bytes(STAND_IN.into())
}

/// Runs the line as `account` and looks what came of it.
async fn refused(host: &Host, account: &User<'_>, line: &str, said: &str) {
    let ran = account.run(line).await.unwrap().ended(1);
    assert!(ran.err.contains(said), "{said}: {ran:#?}");
    assert!(Given::read(host).await.is_none(), "nothing was run: {ran:#?}");
}

// req: G-070, G-077, G-078, G-080, G-082
#[tokio::test]
async fn host_one_pasted_line_runs_the_installer_as_root_from_any_shell_and_leaves_the_token_nowhere() {
    let host = Host::boot("pasted").await.unwrap();
    let console = Console::start(host.outside()).await;
    console.served.will([], stand_in());
    let ada = host.user("ada", Sudo::Anything).await.unwrap();
    let (line, origin) = (console.install(), console.served.origin());
    let expected = [
        "--core-url",
        &origin,
        "--installation-id",
        &installation().to_string(),
        "--provider",
        "docker",
        "--manifest-sha256",
        &Digest::of("manifest").to_string(),
        "--enrollment-token-stdin",
    ];
    let kept = console.kept();
    for shell in Shell::ALL {
        let ran = ada
            .paste_after(shell, "echo an earlier line", &line)
            .await
            .unwrap()
            .ended(0);
        assert!(ran.out.contains(RAN), "{shell:?}: {ran:#?}");
        let given = Given::read(&host).await.unwrap();
        assert_eq!(given.all("uid"), ["0"]);
        assert_eq!(given.all("argument"), expected, "{shell:?}");
        assert_eq!(given.all("token"), [Digest::of(TOKEN).to_string()], "{shell:?}");
        assert_eq!(given.all("leak"), [""; 0], "{shell:?}");
        assert_eq!(given.all("variable"), [""; 0], "{shell:?}");
        assert_eq!(given.all("program"), [format!("/home/ada/{kept}")]);
    }
    // Four runs, one download; and more than the token's text was looked for in vain.
    assert_eq!(console.served.asked().len(), 1);
    let history = host.output("cat /home/ada/.bash_history").await.unwrap();
    assert!(
        history.contains("an earlier line") && !history.contains("oac-node-bootstrap"),
        "{history}"
    );
    let sudo_log = host.output("journalctl --no-pager").await.unwrap();
    assert!(
        sudo_log.contains("--enrollment-token-stdin"),
        "sudo logs what it ran"
    );
    let files = format!("! grep -rlF {TOKEN} /home /root /etc /var/log /var/tmp /tmp");
    host.output(&files).await.unwrap();
    assert!(!sudo_log.contains(TOKEN));
    let modes = "stat -c '%a %U' /home/ada/.oac/node-bootstrap /home/ada/.oac/node-bootstrap/*.run";
    assert_eq!(host.output(modes).await.unwrap(), "700 ada\n700 ada\n");

    // Root needs no sudo, and its own home.
    let root = host.root_user();
    root.paste(Shell::Bash, &line).await.unwrap().ended(0);
    let given = Given::read(&host).await.unwrap();
    assert_eq!(given.all("program"), [format!("/root/{kept}")]);

    // The command that gives a host back has no token and leaves the terminal to the installer.
    ada.paste(Shell::Bash, &console.uninstall())
        .await
        .unwrap()
        .ended(0);
    let given = Given::read(&host).await.unwrap();
    let arguments = ["--uninstall", "--installation-id", &installation().to_string()];
    assert_eq!(given.all("argument"), arguments);
    assert_eq!(given.all("input"), ["terminal"]);
    host.end().await.unwrap();
}

// inv: INV-I26
#[tokio::test]
async fn host_the_script_is_the_same_under_dash_bash_and_busybox() {
    let host = Host::boot("posix").await.unwrap();
    let console = Console::start(host.outside()).await;
    let ada = host.user("ada", Sudo::Anything).await.unwrap();
    for sh in ["/bin/dash", "/bin/bash", "/bin/busybox"] {
        host.output(&format!("ln -sfn {sh} /usr/local/bin/sh; rm -rf /home/ada/.oac"))
            .await
            .unwrap();
        let with = |line: &str| format!("PATH=/usr/local/bin:$PATH; {line}");
        console.served.will([], Reply::Bytes(b"other bytes".to_vec()));
        refused(
            &host,
            &ada,
            &with(&console.install()),
            "Checksum verification failed",
        )
        .await;
        console
            .served
            .will([Reply::Status(503), Reply::Broken(STAND_IN.into())], stand_in());
        let ran = ada.run(&with(&console.install())).await.unwrap().ended(0);
        assert!(ran.out.contains(RAN), "{sh}: {ran:#?}");
        assert_eq!(console.served.asked().len(), 3, "{sh}");
        let given = Given::read(&host).await.unwrap();
        assert_eq!(given.all("token"), [Digest::of(TOKEN).to_string()], "{sh}");
    }
    host.end().await.unwrap();
}

// req: G-063, G-064, G-075, G-076, G-079
// inv: INV-I4
#[tokio::test]
async fn host_only_the_exact_bytes_are_run_and_only_passing_failures_are_tried_again() {
    let host = Host::boot("downloads").await.unwrap();
    let console = Console::start(host.outside()).await;
    let served = &console.served;
    let ada = host.user("ada", Sudo::Anything).await.unwrap();
    let line = console.install();
    let mut flipped = STAND_IN.as_bytes().to_vec();
    flipped[0] ^= 1;
    let elsewhere = Reply::Elsewhere(format!("{}/elsewhere", served.origin()));
    for (reply, said, asked) in [
        (
            Reply::Bytes(flipped),
            "Checksum verification failed: copy a fresh command from Web and retry.",
            1,
        ),
        (
            Reply::Bytes([STAND_IN, "x"].concat().into()),
            "Checksum verification failed",
            1,
        ),
        (Reply::Bytes(Vec::new()), "Checksum verification failed", 1),
        (
            Reply::Status(404),
            "Download failed (curl 22, HTTP 404): check address and proxy.",
            1,
        ),
        (Reply::Status(403), "Download failed (curl 22, HTTP 403)", 1),
        (Reply::Status(501), "Download failed (curl 22, HTTP 501)", 1),
        // Redirects are not followed: the installer is never anywhere else.
        (elsewhere, "Download failed (curl 0, HTTP 302)", 1),
        (Reply::Status(204), "Download failed (curl 0, HTTP 204)", 1),
        (
            Reply::Status(408),
            "Three downloads failed: check the network and retry.",
            3,
        ),
        (Reply::Status(429), "Three downloads failed", 3),
        (Reply::Status(500), "Three downloads failed", 3),
        (Reply::Status(504), "Three downloads failed", 3),
        (Reply::Broken(STAND_IN.into()), "Three downloads failed", 3),
        (Reply::Nothing, "Three downloads failed", 3),
    ] {
        served.will([], reply.clone());
        refused(&host, &ada, &line, said).await;
        assert_eq!(served.asked().len(), asked, "{reply:?}");
        let kept = host
            .output("ls /home/ada/.oac/node-bootstrap/*.run 2>/dev/null || true")
            .await
            .unwrap();
        assert_eq!(kept, "", "{reply:?}");
    }
    // Nobody listens.
    let nowhere = console.install_from(&format!("http://{}:1", host.outside()));
    refused(&host, &ada, &nowhere, "Three downloads failed").await;

    // The third try is as good as the first, and clears what the ones before left.
    served.will([Reply::Broken(STAND_IN.into()), Reply::Status(502)], stand_in());
    ada.run(&line).await.unwrap().ended(0);
    assert!(Given::read(&host).await.is_some());
    let left = host.output("ls /home/ada/.oac/node-bootstrap").await.unwrap();
    assert_eq!(left.lines().count(), 2, "{left}");
    assert!(
        left.starts_with(&Digest::of(STAND_IN).to_string()) || left.contains("download.lock"),
        "{left}"
    );

    // What is kept is used again if it is still right, and replaced if not.
    served.will([], Reply::Status(404));
    ada.run(&line).await.unwrap().ended(0);
    assert!(Given::read(&host).await.is_some());
    host.output(&format!("echo x >>/home/ada/{}", console.kept()))
        .await
        .unwrap();
    refused(&host, &ada, &line, "Download failed").await;
    served.will([], stand_in());
    ada.run(&line).await.unwrap().ended(0);
    assert!(Given::read(&host).await.is_some());
    host.end().await.unwrap();
}

// inv: INV-I5
#[tokio::test]
async fn host_five_commands_at_once_make_one_download() {
    let host = Host::boot("five").await.unwrap();
    let console = Console::start(host.outside()).await;
    console.served.will([Reply::Status(503)], stand_in());
    let ada = host.user("ada", Sudo::Anything).await.unwrap();
    let line = console.install();
    let (a, b, c, d, e) = tokio::join!(
        ada.run(&line),
        ada.run(&line),
        ada.run(&line),
        ada.run(&line),
        ada.run(&line)
    );
    for ran in [a, b, c, d, e] {
        let ran = ran.unwrap().ended(0);
        assert!(ran.out.contains(RAN), "{ran:#?}");
    }
    // One that failed and its repetition.
    assert_eq!(console.served.asked().len(), 2);
    host.end().await.unwrap();
}

// req: G-028, G-029, G-074
#[tokio::test]
async fn host_what_the_host_lacks_is_said_before_anything_is_downloaded_or_made() {
    let host = Host::boot("bare").await.unwrap();
    let console = Console::start(host.outside()).await;
    console.served.will([], stand_in());
    let ada = host.user("ada", Sudo::Anything).await.unwrap();
    let line = console.install();
    let before = host.picture().await.unwrap();
    // curl is missing while something like it is there, as on a small installation with wget alone.
    host.output("ln -s /bin/busybox /usr/local/bin/wget")
        .await
        .unwrap();
    for tool in ["curl", "sha256sum", "flock", "sudo"] {
        host.output(&format!("mv /usr/bin/{tool} /usr/bin/{tool}.away"))
            .await
            .unwrap();
        refused(&host, &ada, &line, &format!("Install {tool}, then retry.")).await;
        host.output(&format!("mv /usr/bin/{tool}.away /usr/bin/{tool}"))
            .await
            .unwrap();
    }
    let arm =
        "printf '#!/bin/sh\\necho Linux aarch64\\n' >/usr/local/bin/uname; chmod 755 /usr/local/bin/uname";
    host.output(arm).await.unwrap();
    refused(&host, &ada, &line, "Nodes need Linux amd64.").await;
    host.output("rm /usr/local/bin/uname /usr/local/bin/wget")
        .await
        .unwrap();
    // A root shell that kept somebody's home.
    let kept = format!("HOME=/home/ada; {line}");
    refused(
        &host,
        &host.root_user(),
        &kept,
        "HOME is another account: use sudo -i.",
    )
    .await;
    assert_eq!(console.served.asked(), [""; 0]);
    let tools = Noise {
        begins: "file /usr",
        why: "the test moved tools away and back",
    };
    let changes = before.changes(&host.picture().await.unwrap(), &[tools]);
    assert!(changes.is_empty(), "{changes:#?}");

    // A home that runs nothing, and one that cannot be written.
    host.output("mkdir -p /home/ada/.oac && mount -t tmpfs -o noexec,mode=777 none /home/ada/.oac")
        .await
        .unwrap();
    refused(&host, &ada, &line, "is mounted noexec: use another HOME.").await;
    host.output("umount /home/ada/.oac && chown root /home/ada/.oac && chmod 755 /home/ada/.oac")
        .await
        .unwrap();
    refused(&host, &ada, &line, "Cannot write /home/ada/.oac/node-bootstrap.").await;
    // Who may not use sudo is told so by sudo.
    let bob = host.user("bob", Sudo::Nothing).await.unwrap();
    let ran = bob.run(&line).await.unwrap();
    assert!(
        ran.status != Some(0) && Given::read(&host).await.is_none(),
        "{ran:#?}"
    );
    host.end().await.unwrap();
}

// req: G-085, G-088, G-091, G-094, G-096, G-097
#[tokio::test]
async fn host_six_names_of_proxies_cross_sudo_and_nothing_else() {
    let host = Host::boot("proxied").await.unwrap();
    let console = Console::start(host.outside()).await;
    console.served.will([], stand_in());
    let ada = host.user("ada", Sudo::Anything).await.unwrap();
    let careful = host.user("careful", Sudo::NoVariables).await.unwrap();
    let line = console.install();
    let variables = async |account: &User<'_>, before: &str| {
        let ran = account.run(&format!("{before}; {line}")).await.unwrap().ended(0);
        assert!(ran.out.contains(RAN), "{ran:#?}");
        let given = Given::read(&host).await.unwrap();
        given
            .all("variable")
            .iter()
            .map(|v| (*v).to_owned())
            .collect::<Vec<_>>()
    };
    // The console itself stands in for a proxy: a proxy is asked for a whole address.
    let proxy = console.served.origin();
    let given = variables(
        &ada,
        &format!("export HTTP_PROXY={proxy} HTTPS_PROXY=http://b no_proxy=c all_proxy=http://d OAC_X=1"),
    )
    .await;
    assert_eq!(
        given,
        [
            format!("http_proxy={proxy}"),
            "https_proxy=http://b".to_owned(),
            "no_proxy=c".to_owned()
        ]
    );
    let asked = console.served.asked();
    let whole = format!("GET {proxy}/api/v1/sandbox-node/install/");
    assert!(asked.len() == 1 && asked[0].starts_with(&whole), "{asked:?}");

    // Lower case wins, also when it is empty.
    let given = variables(&ada, "export http_proxy= HTTP_PROXY=http://wrong:1 NO_PROXY=c").await;
    assert_eq!(given, ["http_proxy=", "no_proxy=c"]);
    // Without any, sudo is asked to preserve nothing, which everybody may.
    assert_eq!(variables(&careful, ":").await, [""; 0]);
    // A policy that refuses them stops the command.
    let ran = careful
        .run(&format!("export https_proxy=http://b; {line}"))
        .await
        .unwrap();
    assert!(
        ran.status == Some(1) && ran.err.contains("not allowed to"),
        "{ran:#?}"
    );
    assert!(Given::read(&host).await.is_none());
    // A root shell keeps its own.
    assert_eq!(
        variables(&host.root_user(), "export https_proxy=http://b").await,
        ["https_proxy=http://b"]
    );

    let arguments = async |before: &str| {
        ada.run(&format!("{before}; {line}")).await.unwrap().ended(0);
        let given = Given::read(&host).await.unwrap();
        given
            .all("argument")
            .last()
            .map(|a| (*a).to_owned())
            .unwrap_or_default()
    };
    assert_eq!(arguments("export NO_COLOR=1").await, "--no-color");
    assert_eq!(arguments("export NO_COLOR=").await, "--enrollment-token-stdin");
    host.end().await.unwrap();
}

#[test]
fn host_shellcheck_finds_nothing_in_the_script_of_the_commands() {
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../crates/oac-release/assets/bootstrap.sh"
    );
    let output = std::process::Command::new("shellcheck")
        .arg(script)
        .output()
        .expect("shellcheck runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}");
}
