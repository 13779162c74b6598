//! A reader of server-sent events, as far as Core sends them.

/// What a stream holds: events, and comments, which Core sends when there is nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    Event(Event),
    Comment,
}

/// One event: its type, its id and its data.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Event {
    pub kind: String,
    pub id: Option<String>,
    pub data: String,
}

/// Turns chunks of a body into events, wherever the chunks were cut.
#[derive(Debug, Default)]
pub struct Reader {
    pending: Vec<u8>,
    event: Event,
}

/// Longest line an event may have: an output record of 32 KiB in base64, with room.
const LINE_BYTES: usize = 1024 * 1024;

/// The stream does not hold server-sent events.
#[derive(Debug, thiserror::Error)]
#[error("the stream does not hold server-sent events")]
pub struct NotEvents;

impl Reader {
    /// The events and comments that `chunk` completes.
    pub fn push(&mut self, chunk: &[u8]) -> Result<Vec<Item>, NotEvents> {
        self.pending.extend_from_slice(chunk);
        let mut events = Vec::new();
        let mut start = 0;
        while let Some(length) = self.pending[start..].iter().position(|b| *b == b'\n') {
            let line = self.pending[start..start + length].to_vec();
            start += length + 1;
            let line = String::from_utf8(line).map_err(|_| NotEvents)?;
            events.extend(self.take(line.trim_end_matches('\r')));
        }
        self.pending.drain(..start);
        if self.pending.len() > LINE_BYTES {
            Err(NotEvents)
        } else {
            Ok(events)
        }
    }

    fn take(&mut self, line: &str) -> Option<Item> {
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            return (!event.data.is_empty() || !event.kind.is_empty()).then_some(Item::Event(event));
        }
        if line.starts_with(':') {
            return Some(Item::Comment);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.event.kind),
            "id" => self.event.id = Some(value.to_owned()),
            "data" => {
                if !self.event.data.is_empty() {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
            }
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_the_same_wherever_the_body_is_cut() {
        let body =
            b": comment\n\nevent: output\nid: 5\ndata: {\"a\":1}\n\nevent: end\r\ndata: x\r\ndata: y\r\n\r\n";
        let whole = Reader::default().push(body).unwrap();
        let event = |kind: &str, id: Option<&str>, data: &str| {
            Item::Event(Event {
                kind: kind.into(),
                id: id.map(str::to_owned),
                data: data.into(),
            })
        };
        let expected = [
            Item::Comment,
            event("output", Some("5"), "{\"a\":1}"),
            event("end", None, "x\ny"),
        ];
        assert_eq!(whole, expected);
        for cut in 0..body.len() {
            let mut reader = Reader::default();
            let mut events = reader.push(&body[..cut]).unwrap();
            events.extend(reader.push(&body[cut..]).unwrap());
            assert_eq!(events, whole, "cut at {cut}");
        }
    }

    #[test]
    fn an_endless_line_is_refused() {
        assert!(Reader::default().push(&vec![b'x'; LINE_BYTES + 1]).is_err());
    }
}
