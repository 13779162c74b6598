//! Following an event stream when the network or Core do not play along, with little patience.

use std::time::Duration;

use oac_cli::{
    Failure,
    client::{Client, turns::StreamPath},
    config::{Entry, Name},
    follow::{Follow, Patience, Told},
};
use oac_model::Secret;

use crate::script::{SESSION, Script, TURN, events, events_open, record, refuse};

const LITTLE: Patience = Patience {
    silence: Duration::from_millis(200),
    pause: (Duration::from_millis(1), Duration::from_millis(5)),
    notice: Duration::from_millis(20),
    give_up: Duration::from_millis(500),
};

fn client(script: &Script) -> Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let entry = Entry {
        url: script.url.clone(),
        core_key: None,
        project_key: Some(Secret::new("oac_key_0")),
    };
    Client::new(Name::default(), entry).unwrap()
}

fn follow(client: &Client) -> Follow<'_> {
    let path = StreamPath::output(SESSION.parse().unwrap(), TURN.parse().unwrap());
    Follow::new(client, path, 0).with_patience(LITTLE)
}

#[tokio::test]
async fn a_connection_that_fell_silent_is_given_up_and_the_stream_goes_on_where_it_was() {
    let script = Script::start(|_, before| async move {
        match before {
            // No comment, no end: the other side is gone without a word.
            0 => events_open(record(0, "stdout", "one")),
            _ => events_open(record(3, "stdout", "two")),
        }
    })
    .await;
    let client = client(&script);
    // Enough silence for a busy host to send what it was asked for, and no end of patience for what comes after it.
    let mut follow = follow(&client).with_patience(Patience {
        silence: Duration::from_secs(3),
        give_up: Duration::from_secs(60),
        ..LITTLE
    });
    let mut places = Vec::new();
    while places.len() < 2 {
        if let Told::Event(event) = follow.next().await.unwrap() {
            places.push(event.id.unwrap());
        }
    }
    assert_eq!(places, ["3", "6"]);
    assert!(script.asked()[1].target.ends_with("offset=3"));
}

#[tokio::test]
async fn a_core_that_stays_away_is_told_once_and_given_up_in_the_end() {
    let script = Script::start(|_, _| async { refuse(503, "core_standby") }).await;
    let client = client(&script);
    let mut follow = follow(&client);
    assert!(matches!(follow.next().await, Ok(Told::Lost)));
    let given_up = follow.next().await;
    assert!(
        matches!(&given_up, Err(Failure::Refused { status: 503, .. })),
        "{given_up:?}"
    );
}

#[tokio::test]
async fn a_stream_that_is_only_ever_closed_is_given_up_too() {
    let script = Script::start(|_, _| async { events(String::new()) }).await;
    let client = client(&script);
    let mut follow = follow(&client);
    let given_up = loop {
        match follow.next().await {
            Ok(Told::Closed | Told::Lost) => {}
            other => break other,
        }
    };
    assert!(matches!(given_up, Err(Failure::Unfinished(_))), "{given_up:?}");
}

#[tokio::test]
async fn trouble_is_told_when_it_is_worth_a_word_however_long_the_pause_is() {
    let script = Script::start(|_, _| async { refuse(503, "core_standby") }).await;
    let client = client(&script);
    let path = StreamPath::output(SESSION.parse().unwrap(), TURN.parse().unwrap());
    let day = Duration::from_secs(86_400);
    let mut follow = Follow::new(&client, path, 0).with_patience(Patience {
        pause: (day, day),
        give_up: day,
        ..LITTLE
    });
    let told = tokio::time::timeout(Duration::from_secs(60), follow.next()).await;
    assert!(matches!(told, Ok(Ok(Told::Lost))), "{told:?}");
}
