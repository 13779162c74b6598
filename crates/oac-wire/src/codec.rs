//! The text form of frames.
//!
//! A frame is decoded in one pass straight into its type. A request's arguments and a response's results get a second
//! look only when that pass fails: a wrong *structure* makes the whole frame invalid, but a wrong *value* in a frame of
//! right structure is the peer's mistake about one operation, answered `invalid` or read as unconfirmed
//! (protocol.md section 7), and the envelope is still good.

use std::borrow::Cow;

use serde::Serialize;

use crate::{
    frames::{
        CoreFrame, FrameError, Heartbeat, HeartbeatAck, Hello, NodeFrame, Request, Response, Retention,
        RetentionAck, Welcome,
    },
    limits, request, response,
    shape::{Shape, Wire},
    strict::{self, StrictError},
};

/// A frame of one type, without the two members that every frame has.
trait Payload: Sized {
    const KIND: &'static str;
    const LIMIT: usize;

    /// Decodes and checks all of it.
    fn read(text: &[u8]) -> Result<Self, FrameError>;

    /// Checks as the receiver will, and writes.
    fn write(&self) -> Result<String, FrameError>;
}

macro_rules! control {
    ($($type:ty = $kind:literal),* $(,)?) => { $(
        impl Payload for $type {
            const KIND: &'static str = $kind;
            const LIMIT: usize = limits::CONTROL_FRAME_BYTES;

            fn read(text: &[u8]) -> Result<Self, FrameError> {
                let payload: Self = strict::frame_from_slice(text, $kind).map_err(FrameError::from)?;
                payload.check().map_err(FrameError::from)?;
                Ok(payload)
            }

            fn write(&self) -> Result<String, FrameError> {
                self.check().map_err(FrameError::from)?;
                write::<Self>(self)
            }
        }
    )* };
}

control! {
    Hello = "hello",
    Welcome = "welcome",
    Heartbeat = "heartbeat",
    HeartbeatAck = "heartbeat_ack",
    Retention = "retention",
    RetentionAck = "retention_ack",
}

macro_rules! operation {
    ($($type:ty = $module:ident),* $(,)?) => { $(
        impl Payload for $type {
            const KIND: &'static str = $module::KIND;
            const LIMIT: usize = limits::REQUEST_FRAME_BYTES;

            fn read(text: &[u8]) -> Result<Self, FrameError> {
                $module::read(text)
            }

            fn write(&self) -> Result<String, FrameError> {
                write::<Self>(&$module::raw(self)?)
            }
        }
    )* };
}

operation! {
    Request = request,
    Response = response,
}

impl<P: Payload> Payload for Box<P> {
    const KIND: &'static str = P::KIND;
    const LIMIT: usize = P::LIMIT;

    fn read(text: &[u8]) -> Result<Self, FrameError> {
        P::read(text).map(Box::new)
    }

    fn write(&self) -> Result<String, FrameError> {
        P::write(self)
    }
}

/// The one table of which frames go which way: `decode` and `encode` of both ends, and the surface file, come from it.
macro_rules! directions {
    ($(
        $(#[$doc:meta])* $frame:ident from $sender:literal {
            $($variant:ident($payload:ty) = $shape:ty),* $(,)?
        }
    )*) => {
        $(
            impl $frame {
                $(#[$doc])*
                pub fn decode(text: &[u8]) -> Result<Self, FrameError> {
                    within(text.len(), limits::REQUEST_FRAME_BYTES)?;
                    let kind = kind_of(text).map_err(FrameError::from)?;
                    $(
                        if kind == <$payload>::KIND {
                            within(text.len(), <$payload>::LIMIT)?;
                            return <$payload>::read(text).map(Self::$variant);
                        }
                    )*
                    Err(if FRAMES.iter().any(|frame| frame.kind == kind) {
                        FrameError::Direction { kind: kind.into_owned() }
                    } else {
                        FrameError::Type
                    })
                }

                /// The frame's text; refuses what the receiver would refuse.
                pub fn encode(&self) -> Result<String, FrameError> {
                    match self { $(Self::$variant(payload) => payload.write(),)* }
                }
            }
        )*

        pub(crate) const FRAMES: &[FrameKind] = &[$($(
            FrameKind {
                kind: <$payload>::KIND,
                sender: $sender,
                limit: <$payload>::LIMIT,
                shape: <$shape as Wire>::SHAPE,
            }
        ),*),*];
    };
}

/// A row of the frame table.
pub(crate) struct FrameKind {
    pub(crate) kind: &'static str,
    pub(crate) sender: &'static str,
    pub(crate) limit: usize,
    pub(crate) shape: &'static Shape,
}

directions! {
    /// Decodes and checks a frame that Core received.
    NodeFrame from "node" {
        Hello(Box<Hello>) = Hello,
        Heartbeat(Box<Heartbeat>) = Heartbeat,
        Retention(Retention) = Retention,
        Response(Box<Response>) = response::RawResponse<'static>,
    }
    /// Decodes and checks a frame that a node received.
    CoreFrame from "Core" {
        Welcome(Welcome) = Welcome,
        HeartbeatAck(HeartbeatAck) = HeartbeatAck,
        RetentionAck(RetentionAck) = RetentionAck,
        Request(Box<Request>) = request::RawRequest<'static>,
    }
}

/// The frame type, read first. Senders write it up front; only a frame that does not is read up to it twice.
fn kind_of(text: &[u8]) -> Result<Cow<'_, str>, StrictError> {
    let quick = text
        .strip_prefix(START)
        .and_then(|rest| rest.split_at_checked(rest.iter().take(16).position(|b| *b == b'"')?))
        .and_then(|(kind, _)| FRAMES.iter().find(|f| f.kind.as_bytes() == kind));
    match quick {
        Some(frame) => Ok(frame.kind.into()),
        None => strict::frame_type(text),
    }
}

fn within(bytes: usize, limit: usize) -> Result<(), FrameError> {
    if bytes > limit {
        Err(FrameError::TooLarge { bytes, limit })
    } else {
        Ok(())
    }
}

/// What a frame of this version starts with when this program wrote it.
const START: &[u8] = br#"{"version":1,"type":""#;

/// Writes the header and then the payload's own members, in one buffer.
fn write<P: Payload>(payload: &impl Serialize) -> Result<String, FrameError> {
    let unwritable = || FrameError::Malformed(StrictError::broken("values that JSON can hold"));
    let mut out = Vec::with_capacity(1024);
    out.extend_from_slice(START);
    out.extend_from_slice(P::KIND.as_bytes());
    out.push(b'"');
    let at = out.len();
    serde_json::to_writer(&mut out, payload).map_err(|_| unwritable())?;
    debug_assert_eq!(out[at], b'{');
    out[at] = b',';
    within(out.len(), P::LIMIT)?;
    String::from_utf8(out).map_err(|_| unwritable())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_frame_starts_with_names_the_version() {
        let start = format!(r#"{{"version":{},"type":""#, crate::PROTOCOL_VERSION);
        assert_eq!(START, start.as_bytes());
    }
}
