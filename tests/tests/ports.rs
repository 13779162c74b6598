//! A server in a sandbox on the real engine, reached from outside through Core.

use oac_testkit::wait;
use oac_tests::story::{PATIENCE, Story};
use serde_json::json;

/// A server of what the minimal image holds: answers each request with its first line and some of its headers.
const SERVER: &str = r#"
use strict; use IO::Socket::INET;
my $listener = IO::Socket::INET->new(LocalAddr => "127.0.0.1", LocalPort => 8000, Listen => 5, ReuseAddr => 1) or die;
while (my $client = $listener->accept) {
    my $seen = <$client>;
    while (defined(my $line = <$client>)) {
        last if $line =~ /^\r\n$/;
        $seen .= $line if $line =~ /^(host|authorization|x-forwarded-prefix):/i;
    }
    print $client "HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n$seen";
    close $client;
}
"#;

#[tokio::test]
async fn docker_a_server_in_a_real_sandbox_is_reached_through_its_port() {
    let story = Story::begin(None).await;
    let node = story.add_node("one", 1).await;
    let session = story.new_session().await;
    let at = format!("/v1/sessions/{session}/ports/8000");
    // Nothing listens yet; the request waits for its sandbox all the same.
    let (status, refused) = story.try_app("GET", &at, None).await;
    assert_eq!(
        (status, &refused["error"]["code"]),
        (502, &json!("sandbox_port_refused")),
        "{refused}"
    );
    let input = json!({ "args": ["perl", "-e", SERVER] });
    story
        .app("POST", &format!("/v1/sessions/{session}/inputs"), Some(&input))
        .await;
    let url = format!("{}{at}/a%2Fb//c?d=%20e", story.installation.url);
    let seen = wait::until("an answer of the server", PATIENCE, async || {
        let http = story.installation.http();
        let answer = http
            .get(&url)
            .bearer_auth(story.key.expose())
            .send()
            .await
            .unwrap();
        if answer.status() == 502 {
            return None;
        }
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.headers()["content-type"], "text/plain");
        Some(answer.text().await.unwrap())
    })
    .await
    .unwrap();
    let mut lines: Vec<_> = seen.lines().collect();
    lines[1..].sort_unstable();
    assert_eq!(
        lines,
        [
            "GET /a%2Fb//c?d=%20e HTTP/1.1",
            "host: localhost:8000",
            &format!("x-forwarded-prefix: {at}"),
        ]
    );
    story.end(vec![node]).await;
}
