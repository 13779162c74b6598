//! A sandbox whose runtime lies, stalls and floods, in every way the service allows: it harms its own Session alone.

use std::{convert::Infallible, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{Method, Request, Response, StatusCode, body::Frame, body::Incoming, service::service_fn};
use oac_link::{LinkEnd, Socket, service::OutputStreamName::Stdout};
use oac_model::{InstanceId, TurnId};
use oac_testkit::core::TestCore;
use serde_json::json;
use tokio::{sync::mpsc, task::JoinSet};

use crate::{
    reader::{Reader, whole},
    sandbox::exit_code,
    world::{Placed, World},
};

type Body = UnsyncBoxBody<Bytes, Infallible>;
type Answer = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

/// The kinds of wrong, each written once: those without a text, and all of them.
macro_rules! wrongs {
    ($($name:ident),* $(,)?) => {
        /// What this sandbox does wrong; everything else it does as it should.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        enum Wrong {
            $($name,)*
            /// Each output answer is these lines, and then goes on for ever.
            Lines(&'static str),
        }

        fn wrongs() -> Vec<Wrong> {
            let mut all = vec![$(Wrong::$name),*];
            all.extend(LIES.map(Wrong::Lines));
            all
        }
    };
}

wrongs! {
    StatusNever,
    StatusWithAMillionTurns,
    StatusMalformed,
    StatusOfAnotherInstance,
    StatusWithTurnsItWasNeverGiven,
    PutNever,
    PutMalformed,
    PutRefused,
    OutputWithoutEnd,
    OutputNever,
    OutputEndsWithoutExit,
    LineWithoutEnd,
    LinesOfSpaces,
    RecordTooLarge,
    RecordsForEver,
    RecordsOfOneByteForEver,
    AckNever,
    AckRefused,
    ErrorsOnly,
    HeadsForEver,
}

const EXIT: &str =
    r#"{"offset":3,"exit":{"code":0,"signal":null,"timed_out":false,"canceled":false,"error":null}}"#;

/// Lines whose first record is right; what follows is not.
const LIES: [&str; 16] = [
    // A gap, a repetition, going back.
    r#"{"offset":0,"stream":"stdout","data":"YWJj"} {"offset":4,"stream":"stdout","data":"ZQ=="}"#,
    r#"{"offset":0,"stream":"stdout","data":"YWJj"} {"offset":0,"stream":"stdout","data":"YWJj"}"#,
    r#"{"offset":0,"stream":"stdout","data":"YWJj"} {"offset":2,"stream":"stdout","data":"Yw=="}"#,
    // Offsets that are none.
    r#"{"offset":-1,"stream":"stdout","data":"YWJj"}"#,
    r#"{"offset":18446744073709551615,"stream":"stdout","data":"YWJj"}"#,
    r#"{"offset":1e30,"stream":"stdout","data":"YWJj"}"#,
    r#"{"offset":"0","stream":"stdout","data":"YWJj"}"#,
    // Records that are none.
    r#"{"offset":0,"stream":"stdout","data":""}"#,
    r#"{"offset":0,"stream":"stdlog","data":"YWJj"}"#,
    r#"{"offset":0,"stream":"stdout","data":"YWJj","surplus":1}"#,
    r#"{"offset":0,"offset":0,"stream":"stdout","data":"YWJj"}"#,
    r#"{"offset":0,"stream":"stdout","data":"Y*Jj"}"#,
    r#"{"offset":0,"stream":"stdout"}"#,
    r#"[[[[[[[[[[[[[[[["#,
    // An end that is none.
    r#"{"offset":9,"exit":{"code":0,"signal":null,"timed_out":false,"canceled":false,"error":null}}"#,
    r#"{"offset":0,"exit":{"code":99999999999,"signal":null,"timed_out":false,"canceled":false,"error":null}}"#,
];

struct Hostile {
    wrong: Wrong,
    instance: InstanceId,
}

impl Hostile {
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        use Wrong::*;
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let never = std::future::pending::<Response<Body>>();
        let segments: Vec<_> = path.trim_start_matches("/v1/").split('/').collect();
        match (self.wrong, &method, segments.as_slice()) {
            (ErrorsOnly, ..) => text(StatusCode::INTERNAL_SERVER_ERROR, "no".repeat(100_000)),
            (HeadsForEver, ..) => {
                let mut response = text(StatusCode::OK, String::new());
                for n in 0..90 {
                    let name = http::HeaderName::try_from(format!("x-{n}")).unwrap();
                    let value = http::HeaderValue::try_from("v".repeat(4000)).unwrap();
                    response.headers_mut().insert(name, value);
                }
                response
            }
            (StatusNever, _, ["status"]) => never.await,
            (StatusWithAMillionTurns, _, ["status"]) => {
                let (begin, _) = self.status();
                let mut left = 1000;
                endless([begin], move || {
                    left -= 1;
                    (left > 0).then(|| (entry() + ",").repeat(1000))
                })
            }
            (_, _, ["status"]) => {
                let (begin, end) = self.status();
                text(StatusCode::OK, begin + &end)
            }
            (PutNever, &Method::PUT, _) => never.await,
            (PutMalformed, &Method::PUT, _) => text(StatusCode::CREATED, "{\"instance_id\":7}".to_owned()),
            (PutRefused, &Method::PUT, _) => text(StatusCode::IM_A_TEAPOT, "{}".to_owned()),
            (_, &Method::PUT, _) => text(
                StatusCode::CREATED,
                json!({ "instance_id": self.instance }).to_string(),
            ),
            (AckNever, _, ["turns", _, "ack"]) => never.await,
            (AckRefused, _, ["turns", _, "ack"]) => text(StatusCode::CONFLICT, "{}".to_owned()),
            (_, _, ["turns", _, "ack" | "cancel"]) => text(StatusCode::NO_CONTENT, String::new()),
            (OutputNever, _, ["turns", _, "output"]) => never.await,
            (_, _, ["turns", _, "output"]) => self.output(offset(&request)),
            // A Turn that runs for ever.
            _ => text(
                StatusCode::OK,
                json!({ "state": "running", "offset": 0, "exit": null }).to_string(),
            ),
        }
    }

    /// Up to the list of Turns, and the rest.
    fn status(&self) -> (String, String) {
        if self.wrong == Wrong::StatusMalformed {
            return ("{\"turns\":[".repeat(10_000), String::new());
        }
        let instance = match self.wrong {
            Wrong::StatusOfAnotherInstance => InstanceId::random(),
            _ => self.instance,
        };
        let turns: Vec<_> = match self.wrong {
            Wrong::StatusWithTurnsItWasNeverGiven => (0..3_000).map(|_| entry()).collect(),
            _ => Vec::new(),
        };
        let begin = format!(
            r#"{{"runtime_version":"t","instance_id":"{instance}","boot_id":"{instance}","parked":false,"turns":["#
        );
        (begin, turns.join(",") + "]}")
    }

    fn output(&self, from: u64) -> Response<Body> {
        let record = |offset: u64, bytes: usize| {
            let data = oac_wire::B64(vec![b'x'; bytes]).encode();
            format!("{{\"offset\":{offset},\"stream\":\"stdout\",\"data\":\"{data}\"}}\n")
        };
        match self.wrong {
            Wrong::Lines(lines) => endless([lines.replace("} {", "}\n{") + "\n"], || None),
            Wrong::OutputEndsWithoutExit => text(StatusCode::OK, record(from, 3)),
            Wrong::LineWithoutEnd => endless([], || Some("x".repeat(16 << 10))),
            Wrong::LinesOfSpaces => endless([], || Some(" ".to_owned())),
            Wrong::RecordTooLarge => endless([record(from, (32 << 10) + 1)], || None),
            Wrong::RecordsForEver | Wrong::RecordsOfOneByteForEver => {
                let size = if self.wrong == Wrong::RecordsForEver {
                    32 << 10
                } else {
                    1
                };
                let mut at = from;
                endless([], move || {
                    let line = record(at, size);
                    at += size as u64;
                    Some(line)
                })
            }
            Wrong::OutputWithoutEnd => endless([record(from, 3)], || None),
            // Twice, and data behind it.
            _ if from == 0 => endless([record(0, 3), format!("{EXIT}\n{EXIT}\n"), record(3, 3)], || None),
            _ => endless([format!("{EXIT}\n")], || None),
        }
    }
}

fn entry() -> String {
    json!({ "turn_id": TurnId::random(), "state": "running", "offset": 0, "acked": 0 }).to_string()
}

fn offset(request: &Request<Incoming>) -> u64 {
    let query = request.uri().query().unwrap_or_default();
    query.trim_start_matches("offset=").parse().unwrap()
}

fn text(status: StatusCode, text: String) -> Response<Body> {
    let body = Full::new(Bytes::from(text)).boxed_unsync();
    Response::builder().status(status).body(body).unwrap()
}

/// `first`, then what `more` gives, then silence.
fn endless<const N: usize>(
    first: [String; N],
    more: impl FnMut() -> Option<String> + Send + 'static,
) -> Response<Body> {
    let rest = stream::unfold(more, |mut more| async move {
        // Beside everything else on this thread.
        tokio::task::yield_now().await;
        more().map(|text| (text, more))
    });
    let silence = stream::pending();
    let frames = stream::iter(first)
        .chain(rest)
        .chain(silence)
        .map(|text| Ok::<_, Infallible>(Frame::data(Bytes::from(text))));
    Response::new(StreamBody::new(frames.boxed()).boxed_unsync())
}

/// Links as the sandbox and answers wrongly, again and again.
async fn misbehave(base: String, placed: Arc<Placed>, wrong: Wrong) {
    let hello = placed.sandbox.hello();
    let hostile = Arc::new(Hostile {
        wrong,
        instance: hello.instance_id,
    });
    loop {
        let url = format!("{}/api/v1/sandbox-link", base.replacen("http", "ws", 1));
        let Ok((socket, _)) = tokio_tungstenite::connect_async(url).await else {
            return;
        };
        // Until its Session is archived.
        let Ok((_, server)) = oac_link::introduce(Socket::from_tungstenite(socket), &hello).await else {
            return;
        };
        let (_stop, asked) = mpsc::channel(1);
        let hostile = hostile.clone();
        let service = service_fn(move |request| {
            let answer: Answer = Box::pin(hostile.clone().answer(request));
            async move { Ok::<_, Infallible>(answer.await) }
        });
        let _: LinkEnd = server.serve(service, asked).await;
    }
}

async fn harms_itself_alone(core: TestCore) {
    let world = World::on(core, wrongs().len() as u32 + 1).await;
    let honest = world.place().await;
    let _connection = honest.sandbox.connect(&world.core.url).await;
    let mut bad = JoinSet::new();
    let mut sessions = Vec::new();
    for wrong in wrongs() {
        let placed = Arc::new(world.place().await);
        bad.spawn(misbehave(world.core.url.clone(), placed.clone(), wrong));
        let turn = world.submit(placed.session, "work").await;
        sessions.push((wrong, placed, turn));
    }
    // All of them at work at once, and the honest one beside them.
    for n in 0..8_usize {
        let turn = world.submit(honest.session, "work").await;
        assert_eq!(honest.sandbox.started(n).await, turn);
        let bytes: Vec<u8> = (0..100_000).map(|i| (i * 7 + n) as u8).collect();
        honest.sandbox.write(turn, Stdout, &bytes);
        honest.sandbox.exit(turn, exit_code(n as i32));
        world.until_turn(honest.session, turn, "completed").await;
        let (read, end) = whole(&world.core, honest.session, turn).await;
        assert!(read.into_iter().map(|(_, b)| b).eq(bytes));
        assert_eq!(end["exit_code"], n);
    }
    for (wrong, placed, turn) in sessions {
        // What it sent is believed as far as it fits, and its own Session can be looked at and ended.
        let path = format!("/v1/sessions/{}/turns/{turn}/output", placed.session);
        let mut reader = Reader::open(&world.core, &path, None).await;
        let archived = world.delete(&format!("/v1/sessions/{}", placed.session)).await;
        assert_eq!(archived.status, 202, "{wrong:?}");
        let (bytes, end) = reader.rest(0).await;
        let end = end.unwrap_or_else(|| panic!("{wrong:?}: no end"));
        assert!(bytes.len() <= 16 << 20, "{wrong:?}");
        assert!(
            bytes.len() as u64 <= end["output_bytes"].as_u64().unwrap(),
            "{wrong:?}"
        );
        let state = end["state"].as_str().unwrap();
        let expected: &[&str] = match wrong {
            // It said how the Turn ended, or that it cannot run.
            Wrong::AckNever | Wrong::AckRefused => &["completed"],
            Wrong::PutRefused => &["failed", "canceled"],
            // Its status does not know the Turn that it confirmed.
            _ => &["canceled", "interrupted"],
        };
        assert!(expected.contains(&state), "{wrong:?}: {state}");
    }
    tokio::time::timeout(Duration::from_secs(60), bad.join_all())
        .await
        .expect("revoked, every one of them ends");
}

// inv: INV-S4, INV-S11
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sandbox_that_lies_stalls_or_floods_harms_its_own_session_alone() {
    harms_itself_alone(TestCore::start().await).await;
}

// inv: INV-S4, INV-S11
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_a_sandbox_that_lies_stalls_or_floods_harms_its_own_session_alone() {
    harms_itself_alone(TestCore::start_postgres().await).await;
}
