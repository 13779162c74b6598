//! A reader of event streams.

use std::time::Duration;

use oac_model::Secret;
use oac_testkit::core::TestCore;
use oac_wire::B64;
use reqwest::Method;
use serde_json::Value;

pub struct Reader {
    response: reqwest::Response,
    buffer: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub name: String,
    pub id: Option<u64>,
    pub data: Value,
}

impl Reader {
    pub async fn open(core: &TestCore, path: &str, last: Option<u64>) -> Self {
        let response = Self::request(core, &core.project_key, path, last).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self {
            response,
            buffer: String::new(),
        }
    }

    pub async fn request(core: &TestCore, key: &Secret, path: &str, last: Option<u64>) -> reqwest::Response {
        let mut request = core.request(Method::GET, path).bearer_auth(key.expose());
        if let Some(last) = last {
            request = request.header("last-event-id", last.to_string());
        }
        request.send().await.unwrap()
    }

    /// The next event; `None` at the end of the stream.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some((block, rest)) = self.buffer.split_once("\n\n") {
                let event = parse(block);
                self.buffer = rest.to_owned();
                match event {
                    Some(event) => return Some(event),
                    None => continue,
                }
            }
            let chunk = tokio::time::timeout(Duration::from_secs(40), self.response.chunk()).await;
            match chunk.expect("the stream goes on").unwrap_or(None) {
                Some(chunk) => self.buffer.push_str(std::str::from_utf8(&chunk).unwrap()),
                None => return None,
            }
        }
    }

    /// Output bytes up to the end of the stream, checked to be without gap from `offset` on, and the `end` event's data.
    pub async fn rest(&mut self, offset: u64) -> (Vec<(&'static str, u8)>, Option<Value>) {
        let mut bytes = Vec::new();
        let mut at = offset;
        while let Some(event) = self.next().await {
            if event.name == "end" {
                return (bytes, Some(event.data));
            }
            let record = output(&event);
            assert_eq!(event.data["offset"], at, "no gap and no repetition");
            at += record.len() as u64;
            assert_eq!(event.id, Some(at), "the id is the offset after the record");
            bytes.extend(record);
        }
        (bytes, None)
    }
}

/// The bytes of an `output` event.
pub fn output(event: &Event) -> Vec<(&'static str, u8)> {
    assert_eq!(event.name, "output");
    let data = B64::decode(event.data["data"].as_str().unwrap().as_bytes())
        .unwrap()
        .0;
    assert!((1..=32 << 10).contains(&data.len()));
    let stream = match event.data["stream"].as_str().unwrap() {
        "stdout" => "stdout",
        "stderr" => "stderr",
        other => panic!("{other}"),
    };
    data.into_iter().map(|b| (stream, b)).collect()
}

/// All output of a Turn that ended, and its `end`.
pub async fn whole(
    core: &TestCore,
    session: impl std::fmt::Display,
    turn: impl std::fmt::Display,
) -> (Vec<(&'static str, u8)>, Value) {
    let path = format!("/v1/sessions/{session}/turns/{turn}/output");
    let (bytes, end) = Reader::open(core, &path, None).await.rest(0).await;
    (bytes, end.expect("an end event"))
}

fn parse(block: &str) -> Option<Event> {
    let mut event = Event {
        name: String::new(),
        id: None,
        data: Value::Null,
    };
    for line in block.lines() {
        match line.split_once(": ") {
            Some(("event", name)) => event.name = name.to_owned(),
            Some(("id", id)) => event.id = Some(id.parse().unwrap()),
            Some(("data", data)) => event.data = serde_json::from_str(data).unwrap(),
            _ => {}
        }
    }
    (!event.name.is_empty()).then_some(event)
}
