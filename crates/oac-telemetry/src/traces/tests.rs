//! Spans from their beginning to the queue, and what a collector that is slow, away or unwilling does to them.

use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceResponse,
};
use prost::Message as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use super::*;
use crate::Set;

static SPANS: crate::Definition<1> = crate::Definition {
    name: "test_spans_total",
    kind: crate::Kind::Counter,
    labels: ["outcome"],
    help: "Spans.",
};

const PROGRAM: Program = Program {
    name: "test",
    version: "0",
    instance: Uuid::max(),
};

/// A tracer of a collector nobody asks for, and what it would send.
fn tracer(ratio: Ratio) -> (Tracer, mpsc::Receiver<Ended>) {
    let (queue, ended) = mpsc::channel(QUEUE);
    let recorder = Recorder {
        queue,
        ratio,
        spans: Set::default().counter(&SPANS),
        origins: Mutex::default(),
    };
    (Tracer(Some(Arc::new(recorder))), ended)
}

/// A random id that a share of a half keeps, or does not.
fn id(kept: bool) -> Uuid {
    let half = Ratio::new(0.5).unwrap();
    std::iter::repeat_with(Uuid::new_v4)
        .find(|id| half.keeps(*id) == kept)
        .unwrap()
}

#[test]
fn both_ends_of_a_call_are_in_one_trace_though_nothing_of_it_travels() {
    let (core, mut sent_by_core) = tracer(Ratio::ALL);
    let (node, mut sent_by_node) = tracer(Ratio::ALL);
    let (request, sandbox) = (Uuid::new_v4(), Uuid::new_v4());
    let calling = core.calls(["call", "create"], request, sandbox);
    let called = node.called(["operation", "create"], request, sandbox);
    drop(called.call(["docker", "create"]));
    drop((called, calling));
    let call = sent_by_core.try_recv().unwrap();
    let backend = sent_by_node.try_recv().unwrap();
    let operation = sent_by_node.try_recv().unwrap();
    assert_eq!((call.parent, call.context.trace), (None, request));
    assert_eq!(operation.context.trace, request);
    assert_eq!(operation.parent, Some(call.context.span));
    assert_eq!(backend.context.trace, request);
    assert_eq!(backend.parent, Some(operation.context.span));
    assert_eq!(
        [call.kind, operation.kind, backend.kind],
        [Kind::Client, Kind::Server, Kind::Client]
    );
}

#[test]
fn both_ends_keep_the_same_sandboxes_and_a_kept_one_keeps_what_it_comes_from() {
    let half = Ratio::new(0.5).unwrap();
    let (core, mut sent) = tracer(half);
    let (node, mut sent_by_node) = tracer(half);
    for kept in [true, false] {
        let (request, sandbox) = (Uuid::new_v4(), id(kept));
        // Whatever the share says of the asking itself.
        for _ in 0..20 {
            let asked = core.asked(["POST", "/v1/sessions"]);
            let step = core.step(&asked.parent(), ["placement", "new"]);
            core.begot(&step, sandbox);
            let origin = step.0.as_ref().unwrap().ended.context;
            drop((step, asked));
            drop(core.calls(["call", "info"], request, sandbox));
            drop(node.called(["operation", "info"], request, sandbox));
            let spans: Vec<_> = std::iter::from_fn(|| sent.try_recv().ok()).collect();
            let call = spans.iter().find(|span| span.name[0] == "call");
            assert_eq!(call.is_some(), kept);
            assert_eq!(sent_by_node.try_recv().is_ok(), kept);
            if kept {
                assert_eq!(spans.len(), 3);
                assert_eq!(call.unwrap().links, [origin]);
                assert_eq!(spans[0].parent, Some(spans[1].context.span));
            }
        }
    }
}

#[test]
fn what_serves_several_steps_is_linked_to_those_that_are_kept_and_sent_only_with_one_of_them() {
    let (core, mut sent) = tracer(Ratio::new(0.0).unwrap());
    let kept = |step: &Span| step.0.as_ref().unwrap().trace.kept.store(true, Relaxed);
    for which in [0..0, 1..2, 0..3] {
        let steps = [(); 3].map(|()| core.step(&Parent::default(), ["placement", "new"]));
        let mut shared = core.shared(["transaction", "admissions"]);
        steps[which.clone()].iter().for_each(kept);
        steps.iter().for_each(|step| shared.serves(step));
        drop(shared);
        let links = sent.try_recv().map(|span| span.links).ok();
        let context = |step: &Span| step.0.as_ref().unwrap().ended.context;
        let expected: Vec<Context> = steps[which].iter().map(context).collect();
        assert_eq!(links, (!expected.is_empty()).then_some(expected));
        drop(steps);
        while sent.try_recv().is_ok() {}
    }
}

#[test]
fn a_share_of_nothing_keeps_nothing_all_keeps_all_and_nothing_else_is_a_share() {
    let none = Ratio::new(0.0).unwrap();
    for id in [Uuid::new_v4(), Uuid::from_u128(1), Uuid::max()] {
        assert!(Ratio::ALL.keeps(id));
        assert!(!none.keeps(id));
    }
    for bad in ["-0.1", "1.1", "NaN", "inf", "", "half"] {
        assert_eq!(bad.parse::<Ratio>(), Err(RatioError), "{bad}");
    }
    assert_eq!("1".parse(), Ok(Ratio::ALL));
    let (tracer, mut sent) = tracer(none);
    drop(tracer.asked(["GET", "/"]));
    assert!(sent.try_recv().is_err());
}

#[test]
fn without_settings_nothing_is_recorded() {
    let (tracer, export) = Tracer::new(None, PROGRAM, Set::default().counter(&SPANS));
    assert!(tracer.asked(["GET", "/"]).0.is_none());
    assert!(
        tracer
            .calls(["call", "info"], Uuid::new_v4(), Uuid::new_v4())
            .0
            .is_none()
    );
    assert!(export.is_off());
}

async fn to(listener: &TcpListener) -> (Set, Tracer, Export) {
    let set = Set::default();
    let settings = Settings {
        endpoint: format!("http://{}", listener.local_addr().unwrap())
            .parse()
            .unwrap(),
        sample_ratio: Ratio::ALL,
    };
    let (tracer, export) = Tracer::new(Some(settings), PROGRAM, set.counter(&SPANS));
    (set, tracer, export)
}

fn counted(set: &Set, outcome: &str) -> u64 {
    let text = set.text(crate::Gauges::default());
    let series = format!("test_spans_total{{outcome=\"{outcome}\"}} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&series));
    line.map_or(0, |count| count.parse().unwrap())
}

#[tokio::test(start_paused = true)]
async fn what_a_silent_collector_leaves_no_room_for_is_dropped_counted_and_waited_for_by_nobody() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (set, tracer, mut export) = to(&listener).await;
    let more = 100;
    for _ in 0..QUEUE + more {
        drop(tracer.asked(["GET", "/"]));
    }
    assert_eq!(counted(&set, "overflowed"), more as u64);
    // Every batch is given up in time, so there is room again.
    tokio::select! {
        never = export.run() => match never {},
        () = tokio::time::sleep(std::time::Duration::from_secs(600)) => {}
    }
    drop(tracer.asked(["GET", "/"]));
    assert_eq!(counted(&set, "overflowed"), more as u64);
    assert_eq!(counted(&set, "not_taken"), QUEUE as u64);
    // The end of the program waits two seconds.
    let began = tokio::time::Instant::now();
    export.flush().await;
    assert!(began.elapsed() < std::time::Duration::from_secs(3));
    assert_eq!(counted(&set, "not_taken"), QUEUE as u64 + 1);
    assert_eq!(counted(&set, "sent"), 0);
}

/// Answers each connection's one request with `answer`; the heads it read.
async fn answering(listener: TcpListener, answer: Vec<u8>) -> String {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut read = Vec::new();
    while !read.windows(4).any(|end| end == b"\r\n\r\n") {
        stream.read_buf(&mut read).await.unwrap();
    }
    stream.write_all(&answer).await.unwrap();
    String::from_utf8_lossy(&read).into_owned()
}

fn ok(body: &[u8]) -> Vec<u8> {
    let mut answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
    answer.extend(body);
    answer
}

#[tokio::test]
async fn what_a_collector_refuses_in_whole_or_in_part_is_counted() {
    let partly = ExportTraceServiceResponse {
        partial_success: Some(ExportTracePartialSuccess {
            rejected_spans: 2,
            error_message: "no".to_owned(),
        }),
    };
    let refused = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n".to_vec();
    let elsewhere = b"HTTP/1.1 307 X\r\nLocation: http://192.0.2.1/\r\nContent-Length: 0\r\n\r\n".to_vec();
    for (answer, sent, not_taken) in [
        (ok(&[]), 3, 0),
        (ok(&partly.encode_to_vec()), 1, 2),
        (refused, 0, 3),
        (elsewhere, 0, 3),
        (ok(b"<html>"), 0, 3),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (set, tracer, export) = to(&listener).await;
        for _ in 0..3 {
            drop(tracer.asked(["GET", "/"]));
        }
        let (head, ()) = tokio::join!(answering(listener, answer), export.flush());
        assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
        assert!(
            head.contains("content-type: application/x-protobuf\r\n"),
            "{head}"
        );
        assert_eq!(
            (counted(&set, "sent"), counted(&set, "not_taken")),
            (sent, not_taken)
        );
    }
}
