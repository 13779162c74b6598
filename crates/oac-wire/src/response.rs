//! Responses in their text form. A result out of bounds leaves the frame valid: Core reads the operation as unconfirmed
//! (protocol.md section 7), and so does the evidence beside `unsupported` (INV-P18). Everything else that is wrong
//! closes, a second result member included, because the member set of a response holds at most one.

use std::borrow::Cow;

use oac_model::{ConnectionId, RequestId};
use serde::{Deserialize, Serialize};

use crate::{
    forms,
    frames::{FrameError, InvalidResult, Response, ResponseResult},
    request::second_look,
    shape::{Wire, check_member, wire},
    shapes::{CommandResult, Compute, ComputeState, Info, Sample, Unsupported},
    strict::{self, StrictError},
};

wire! {
    /// A response's members as they stand on the wire: owned when read, borrowed when written.
    #[derive(Serialize, Deserialize)]
    pub(crate) struct RawResponse<'a> = "response" {
        id: RequestId,
        connection_id: ConnectionId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error_code: Option<Cow<'a, String>> where forms::ERROR_CODE,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        info: Option<Cow<'a, Info>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command: Option<Cow<'a, CommandResult>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sample: Option<Cow<'a, Sample>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        compute: Option<Cow<'a, Box<Compute>>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<Cow<'a, Box<ComputeState>>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unsupported: Option<Cow<'a, Unsupported>>,
    }
    rules {
        "at most one of info, command, sample, compute, state, unsupported" => |r| r.results() <= 1,
    }
}

const ONE_RESULT: &str = "at most one of info, command, sample, compute, state, unsupported";

/// What must be good for a response to be heard at all.
#[derive(Deserialize)]
struct Envelope {
    id: RequestId,
    connection_id: ConnectionId,
    #[serde(default)]
    error_code: Option<String>,
    #[serde(default)]
    info: Present,
    #[serde(default)]
    command: Present,
    #[serde(default)]
    sample: Present,
    #[serde(default)]
    compute: Present,
    #[serde(default)]
    state: Present,
    #[serde(default)]
    unsupported: Present,
}

/// That a member is there, whatever it holds.
#[derive(Default)]
struct Present(bool);

impl<'de> Deserialize<'de> for Present {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        serde::de::IgnoredAny::deserialize(d).map(|_| Self(true))
    }
}

fn checked(
    id: RequestId,
    connection_id: ConnectionId,
    error_code: Option<String>,
    results: usize,
    result: Result<Option<ResponseResult>, StrictError>,
) -> Result<Response, FrameError> {
    check_member("error_code", &error_code, Some(forms::ERROR_CODE)).map_err(FrameError::from)?;
    if results > 1 {
        return Err(StrictError::broken(ONE_RESULT).into());
    }
    Ok(Response {
        id,
        connection_id,
        error_code,
        result: result.map_err(|error| InvalidResult(error.to_string())),
    })
}

pub(crate) const KIND: &str = "response";

pub(crate) fn read(text: &[u8]) -> Result<Response, FrameError> {
    match strict::frame_from_slice::<RawResponse<'_>>(text, KIND) {
        Ok(mut raw) => {
            let results = raw.results();
            let error_code = raw.error_code.take().map(Cow::into_owned);
            let (id, connection_id) = (raw.id, raw.connection_id);
            let result = raw.check().map(|()| raw.into_result());
            checked(id, connection_id, error_code, results, result)
        }
        Err(error) => {
            let e: Envelope = second_look(text, KIND, RawResponse::SHAPE, &error)?;
            let present = [
                &e.info,
                &e.command,
                &e.sample,
                &e.compute,
                &e.state,
                &e.unsupported,
            ];
            let results = present.iter().filter(|p| p.0).count();
            checked(e.id, e.connection_id, e.error_code, results, Err(error))
        }
    }
}

impl RawResponse<'_> {
    fn results(&self) -> usize {
        [
            self.info.is_some(),
            self.command.is_some(),
            self.sample.is_some(),
            self.compute.is_some(),
            self.state.is_some(),
            self.unsupported.is_some(),
        ]
        .iter()
        .filter(|present| **present)
        .count()
    }

    fn into_result(self) -> Option<ResponseResult> {
        let info = self.info.map(|v| ResponseResult::Info(v.into_owned()));
        info.or_else(|| self.command.map(|v| ResponseResult::Command(v.into_owned())))
            .or_else(|| self.sample.map(|v| ResponseResult::Sample(v.into_owned())))
            .or_else(|| self.compute.map(|v| ResponseResult::Compute(v.into_owned())))
            .or_else(|| self.state.map(|v| ResponseResult::State(v.into_owned())))
            .or_else(|| {
                self.unsupported
                    .map(|v| ResponseResult::Unsupported(v.into_owned()))
            })
    }
}

/// The response as it will stand on the wire, checked as its receiver will check it.
pub(crate) fn raw(response: &Response) -> Result<RawResponse<'_>, FrameError> {
    let result = response
        .result
        .as_ref()
        .map_err(|_| FrameError::Malformed(StrictError::broken("a response whose result is in bounds")))?;
    let mut raw = RawResponse {
        id: response.id,
        connection_id: response.connection_id,
        error_code: response.error_code.as_ref().map(Cow::Borrowed),
        info: None,
        command: None,
        sample: None,
        compute: None,
        state: None,
        unsupported: None,
    };
    match result {
        None => {}
        Some(ResponseResult::Info(v)) => raw.info = Some(Cow::Borrowed(v)),
        Some(ResponseResult::Command(v)) => raw.command = Some(Cow::Borrowed(v)),
        Some(ResponseResult::Sample(v)) => raw.sample = Some(Cow::Borrowed(v)),
        Some(ResponseResult::Compute(v)) => raw.compute = Some(Cow::Borrowed(v)),
        Some(ResponseResult::State(v)) => raw.state = Some(Cow::Borrowed(v)),
        Some(ResponseResult::Unsupported(v)) => raw.unsupported = Some(Cow::Borrowed(v)),
    }
    raw.check().map_err(FrameError::from)?;
    Ok(raw)
}
