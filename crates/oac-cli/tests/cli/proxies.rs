//! `oac` and a Core under TLS, through a proxy of the environment.

use oac_testkit::{
    between::{ConnectProxy, Reply},
    core::{CoreOptions, TestCore},
    tls,
};
use tokio::process::Command;

use crate::program::{Oac, said};

const IN_URL: &str = "us%40er:p%3Ass%25w0rd";
/// `us@er:p:ss%w0rd`.
const AUTHORIZATION: &str = "Basic dXNAZXI6cDpzcyV3MHJk";

async fn core(folder: &std::path::Path) -> TestCore {
    let options = CoreOptions {
        tls: Some(tls::Files::write(folder, tls::FIRST).unwrap()),
        ..CoreOptions::default()
    };
    TestCore::with(options).await
}

/// `oac node list` with the test authority as the system's.
fn list(oac: &Oac, environment: &[(&str, &str)]) -> Command {
    let authority = oac.path("authority.pem");
    std::fs::write(&authority, tls::AUTHORITY).unwrap();
    let mut command = oac.command(&["node", "list"]);
    command
        .env("SSL_CERT_FILE", authority)
        .envs(environment.iter().copied());
    command
}

async fn run(mut command: Command) -> crate::program::Said {
    said(command.output().await.unwrap())
}

fn keys(core: &TestCore, url: &str) -> Oac {
    Oac::with(&format!(
        "url = \"{url}\"\ncore_key = \"{}\"\n",
        core.core_key.expose()
    ))
}

#[tokio::test]
async fn a_core_under_tls_is_reached_directly_or_through_the_proxy_that_the_environment_names() {
    let folder = tempfile::tempdir().unwrap();
    let core = core(folder.path()).await;
    let (_, address) = core.url.split_once("://").unwrap();
    let proxy = ConnectProxy::to(address.parse().unwrap()).await;
    proxy.want(AUTHORIZATION);
    let url = format!("http://{IN_URL}@{}", proxy.address);
    let all = [("HTTPS_PROXY", url.as_str())];

    let direct = run(list(&keys(&core, &core.url), &all)).await;
    assert_eq!(direct.status, Some(0), "{}", direct.err);
    assert_eq!(proxy.asked().len(), 0, "loopback is direct");

    let named = keys(&core, "https://core.test");
    let through = run(list(&named, &all)).await;
    assert_eq!(through.status, Some(0), "{}", through.err);
    let asked = proxy.asked().remove(0);
    assert_eq!(asked.line, "CONNECT core.test:443 HTTP/1.1");
    assert_eq!(asked.authorization.as_deref(), Some(AUTHORIZATION));
    assert!(!asked.head.contains(core.core_key.expose()));

    // Nobody resolves the name without the proxy.
    for more in [("no_proxy", "core.test"), ("https_proxy", "")] {
        let excluded = run(list(&named, &[all[0], more])).await;
        assert_eq!(excluded.status, Some(1), "{more:?}");
    }
    assert_eq!(proxy.asked().len(), 1);
}

// inv: INV-P25
#[tokio::test]
async fn a_proxy_that_refuses_and_one_that_is_none_are_said_without_their_password() {
    let folder = tempfile::tempdir().unwrap();
    let core = core(folder.path()).await;
    let (_, address) = core.url.split_once("://").unwrap();
    let proxy = ConnectProxy::to(address.parse().unwrap()).await;
    let url = format!("http://{IN_URL}@{}", proxy.address);
    let named = keys(&core, "https://core.test");
    for status in [401, 403, 407] {
        proxy.reply(Reply::Status(status));
        let refused = run(list(&named, &[("https_proxy", &url)])).await;
        assert_eq!(refused.status, Some(1), "{}", refused.err);
        assert!(
            refused.err.contains("cannot reach Core at https://core.test"),
            "{}",
            refused.err
        );
        for secret in [
            IN_URL,
            "p%3Ass",
            "p:ss",
            "us@er",
            &AUTHORIZATION[6..],
            core.core_key.expose(),
        ] {
            assert!(!refused.err.contains(secret), "{}", refused.err);
        }
    }
    let wrong = run(list(&named, &[("https_proxy", "socks5://h0st:p4ss@proxy")])).await;
    assert_eq!(wrong.status, Some(1));
    assert!(
        wrong
            .err
            .contains("https_proxy is not an HTTP proxy URL. Correct the variable or unset it."),
        "{}",
        wrong.err
    );
    assert!(!wrong.err.contains("p4ss") && !wrong.err.contains("h0st"));
}

#[tokio::test]
async fn a_core_whose_certificate_nobody_vouches_for_is_not_talked_to() {
    let folder = tempfile::tempdir().unwrap();
    let core = core(folder.path()).await;
    let oac = keys(&core, &core.url);
    let refused = oac.run(&["node", "list"]).await;
    assert_eq!(refused.status, Some(1));
    assert!(refused.err.contains("UnknownIssuer"), "{}", refused.err);
    assert!(!refused.err.contains(core.core_key.expose()));
}
