//! What a receiver makes of one frame, in words for people who debug another implementation.

use crate::{CoreFrame, FrameError, NodeFrame};

/// Which way a frame travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    NodeToCore,
    CoreToNode,
}

impl Direction {
    /// `node->core` or `core->node`.
    pub fn from_text(text: &str) -> Option<Self> {
        match text {
            "node->core" => Some(Self::NodeToCore),
            "core->node" => Some(Self::CoreToNode),
            _ => None,
        }
    }
}

/// Reasons name the member and the rule, and never hold a value of the frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The frame stands.
    Accept,
    /// The frame stands, but Core reads the operation as unconfirmed (protocol.md section 7).
    Unconfirmed(String),
    /// The connection closes.
    Frame(String),
    /// The request is answered `invalid`, and the connection stays.
    Request(String),
}

/// Decodes `text` as its receiver does.
pub fn judge(direction: Direction, text: &[u8]) -> Verdict {
    match direction {
        Direction::NodeToCore => match NodeFrame::decode(text) {
            Err(error) => closes(&error),
            Ok(NodeFrame::Response(response)) => match response.result {
                Ok(_) => Verdict::Accept,
                Err(error) => Verdict::Unconfirmed(error.0),
            },
            Ok(_) => Verdict::Accept,
        },
        Direction::CoreToNode => match CoreFrame::decode(text) {
            Err(error) => closes(&error),
            Ok(CoreFrame::Request(request)) => match request.body {
                Ok(_) => Verdict::Accept,
                Err(error) => Verdict::Request(error.0),
            },
            Ok(_) => Verdict::Accept,
        },
    }
}

fn closes(error: &FrameError) -> Verdict {
    Verdict::Frame(match error {
        FrameError::Malformed(error) => error.to_string(),
        error => error.to_string(),
    })
}
