//! Requests in their text form, and the line between a frame that closes and a request that is answered `invalid`.
//!
//! "Node's order" of protocol.md section 7 draws it. Step 1: whatever concerns syntax, member sets, nulls, JSON types,
//! integer forms and size closes, at every depth, whichever operation is meant. Step 3: so does an id, connection id,
//! owner epoch or sequence that is none. Step 6: an unknown operation, arguments of another operation and every other
//! value out of bounds leave the frame valid and make the request invalid. When both apply, the earlier step decides.

use std::borrow::Cow;

use oac_model::{ConnectionId, Generation, OwnerEpoch, Reference, RequestId};
use serde::{Deserialize, Serialize};

use crate::{
    frames::{Arguments, FrameError, InvalidRequest, Request, RequestBody},
    limits,
    shape::{Bound, Wire, check_member, wire},
    shapes::{Bootstrap, Command, Compute, Observation, Operation, Resume, Retained, Suspend},
    strict::{self, Mistake, StrictError},
    structure,
};

const OPERATION: Bound = Bound::Form("an operation of protocol.md section 7", |t| {
    Operation::from_text(t).is_some()
});

wire! {
    /// A request's members as they stand on the wire: owned when read, borrowed when written.
    #[derive(Serialize, Deserialize)]
    pub(crate) struct RawRequest<'a> = "request" {
        id: RequestId,
        sequence: i64 where Bound::POS,
        connection_id: ConnectionId,
        owner_epoch: OwnerEpoch,
        deployment_generation: i64 where Bound::POS,
        operation: String where OPERATION,
        timeout_ms: i64 where Bound::Range(*limits::TIMEOUT_MS.start(), *limits::TIMEOUT_MS.end()),
        reference: Reference,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bootstrap: Option<Cow<'a, Box<Bootstrap>>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command: Option<Cow<'a, Command>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        observation: Option<Cow<'a, Box<Observation>>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        generation: Option<i64> where Bound::POS,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        compute: Option<Cow<'a, Box<Compute>>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        suspend: Option<Cow<'a, Box<Suspend>>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        resume: Option<Cow<'a, Box<Resume>>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retained: Option<Cow<'a, Box<Retained>>>,
    }
    rules {
        "bootstrap.reference equals reference" =>
            |r| r.bootstrap.as_ref().is_none_or(|b| b.reference == r.reference),
        "suspend.reference equals reference" =>
            |r| r.suspend.as_ref().is_none_or(|s| s.reference == r.reference),
        "resume.reference equals reference" =>
            |r| r.resume.as_ref().is_none_or(|s| s.reference == r.reference),
    }
}

/// What must be good for a request to be answered at all.
#[derive(Deserialize)]
struct Envelope {
    id: RequestId,
    sequence: i64,
    connection_id: ConnectionId,
    owner_epoch: OwnerEpoch,
    deployment_generation: i64,
}

impl Envelope {
    fn with(self, body: Result<RequestBody, StrictError>) -> Result<Request, FrameError> {
        check_member("sequence", &self.sequence, Some(Bound::POS)).map_err(FrameError::from)?;
        Ok(Request {
            id: self.id,
            sequence: self.sequence,
            connection_id: self.connection_id,
            owner_epoch: self.owner_epoch,
            deployment_generation: self.deployment_generation,
            body: body.map_err(|error| InvalidRequest(error.to_string())),
        })
    }
}

pub(crate) const KIND: &str = "request";

pub(crate) fn read(text: &[u8]) -> Result<Request, FrameError> {
    match strict::frame_from_slice::<RawRequest<'_>>(text, KIND) {
        Ok(raw) => {
            let envelope = Envelope {
                id: raw.id,
                sequence: raw.sequence,
                connection_id: raw.connection_id,
                owner_epoch: raw.owner_epoch,
                deployment_generation: raw.deployment_generation,
            };
            envelope.with(raw.into_body())
        }
        Err(error) => {
            let envelope: Envelope = second_look(text, KIND, RawRequest::SHAPE, &error)?;
            envelope.with(Err(error))
        }
    }
}

/// The envelope of a frame whose typed decode failed with `error`, if its structure is right; else the reason to close.
pub(crate) fn second_look<'a, T: Deserialize<'a>>(
    text: &'a [u8],
    kind: &str,
    shape: &'static crate::shape::Shape,
    error: &StrictError,
) -> Result<T, FrameError> {
    if error.mistake == Mistake::Syntax {
        return Err(error.clone().into());
    }
    structure::check(text, kind, shape).map_err(FrameError::from)?;
    strict::from_slice(text).map_err(FrameError::from)
}

fn wrong_arguments(mistake: Mistake, member: &str, operation: Operation) -> StrictError {
    let takes: Vec<String> = operation
        .arguments()
        .iter()
        .map(|a| format!("{}{}", a.name, if a.required { "" } else { "?" }))
        .collect();
    let takes = if takes.is_empty() {
        "no argument".to_owned()
    } else {
        takes.join(", ")
    };
    StrictError {
        mistake,
        member: member.to_owned(),
        detail: format!("{takes} of {}", operation.as_str()),
    }
}

/// An argument that [`RawRequest::check_arguments`] has found to be there.
fn owned<T: Clone>(argument: Option<Cow<'_, T>>) -> Result<T, StrictError> {
    argument
        .map(Cow::into_owned)
        .ok_or_else(|| StrictError::broken("the operation's arguments"))
}

impl RawRequest<'_> {
    /// Exactly the arguments of the operation table.
    fn check_arguments(&self, operation: Operation) -> Result<(), StrictError> {
        let present = [
            ("bootstrap", self.bootstrap.is_some()),
            ("command", self.command.is_some()),
            ("observation", self.observation.is_some()),
            ("generation", self.generation.is_some()),
            ("compute", self.compute.is_some()),
            ("suspend", self.suspend.is_some()),
            ("resume", self.resume.is_some()),
            ("retained", self.retained.is_some()),
        ];
        for (name, present) in present {
            match operation.arguments().iter().find(|a| a.name == name) {
                None if present => return Err(wrong_arguments(Mistake::Unknown, name, operation)),
                Some(argument) if argument.required && !present => {
                    return Err(wrong_arguments(Mistake::Missing, name, operation));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn into_body(self) -> Result<RequestBody, StrictError> {
        let unknown = || StrictError::broken(OPERATION).within("operation");
        let operation = Operation::from_text(&self.operation).ok_or_else(unknown)?;
        self.check_arguments(operation)?;
        self.check()?;
        let generation = |value: Option<i64>| {
            value
                .and_then(|v| Generation::try_from(v).ok())
                .ok_or_else(|| StrictError::broken(Bound::POS).within("generation"))
        };
        let arguments = match operation {
            Operation::Create => Arguments::Create(owned(self.bootstrap)?),
            Operation::Info => Arguments::Info,
            Operation::Renew => Arguments::Renew,
            Operation::Kill => Arguments::Kill,
            Operation::Command => Arguments::Command(owned(self.command)?),
            Operation::Observe => Arguments::Observe(owned(self.observation)?),
            Operation::Initial => Arguments::Initial,
            Operation::NewCompute => Arguments::NewCompute {
                generation: generation(self.generation)?,
                retained: self.retained.map(Cow::into_owned),
            },
            Operation::Compute => Arguments::Compute(owned(self.compute)?),
            Operation::KillCompute => Arguments::KillCompute(owned(self.compute)?),
            Operation::ResumeCompute => Arguments::ResumeCompute(owned(self.compute)?),
            Operation::CommandCompute => {
                Arguments::CommandCompute(owned(self.compute)?, owned(self.command)?)
            }
            Operation::Suspend => Arguments::Suspend(owned(self.suspend)?),
            Operation::Resume => Arguments::Resume(owned(self.resume)?),
            Operation::DeleteRetained => Arguments::DeleteRetained(owned(self.retained)?),
        };
        Ok(RequestBody {
            deployment_generation: generation(Some(self.deployment_generation))?,
            timeout_ms: self.timeout_ms as u32,
            reference: self.reference,
            arguments,
        })
    }
}

/// The request as it will stand on the wire, checked as its receiver will check it.
pub(crate) fn raw(request: &Request) -> Result<RawRequest<'_>, FrameError> {
    let body = request
        .body
        .as_ref()
        .map_err(|_| FrameError::Malformed(StrictError::broken("a request whose values are in bounds")))?;
    let mut raw = RawRequest {
        id: request.id,
        sequence: request.sequence,
        connection_id: request.connection_id,
        owner_epoch: request.owner_epoch,
        deployment_generation: request.deployment_generation,
        operation: body.arguments.operation().as_str().to_owned(),
        timeout_ms: i64::from(body.timeout_ms),
        reference: body.reference,
        bootstrap: None,
        command: None,
        observation: None,
        generation: None,
        compute: None,
        suspend: None,
        resume: None,
        retained: None,
    };
    match &body.arguments {
        Arguments::Info | Arguments::Renew | Arguments::Kill | Arguments::Initial => {}
        Arguments::Create(bootstrap) => raw.bootstrap = Some(Cow::Borrowed(bootstrap)),
        Arguments::Command(command) => raw.command = Some(Cow::Borrowed(command)),
        Arguments::Observe(observation) => raw.observation = Some(Cow::Borrowed(observation)),
        Arguments::NewCompute { generation, retained } => {
            raw.generation = Some(generation.get());
            raw.retained = retained.as_ref().map(Cow::Borrowed);
        }
        Arguments::Compute(compute) | Arguments::KillCompute(compute) | Arguments::ResumeCompute(compute) => {
            raw.compute = Some(Cow::Borrowed(compute));
        }
        Arguments::CommandCompute(compute, command) => {
            raw.compute = Some(Cow::Borrowed(compute));
            raw.command = Some(Cow::Borrowed(command));
        }
        Arguments::Suspend(suspend) => raw.suspend = Some(Cow::Borrowed(suspend)),
        Arguments::Resume(resume) => raw.resume = Some(Cow::Borrowed(resume)),
        Arguments::DeleteRetained(retained) => raw.retained = Some(Cow::Borrowed(retained)),
    }
    raw.check().map_err(FrameError::from)?;
    Ok(raw)
}

impl Arguments {
    pub fn operation(&self) -> Operation {
        match self {
            Self::Create(_) => Operation::Create,
            Self::Info => Operation::Info,
            Self::Renew => Operation::Renew,
            Self::Kill => Operation::Kill,
            Self::Command(_) => Operation::Command,
            Self::Observe(_) => Operation::Observe,
            Self::Initial => Operation::Initial,
            Self::NewCompute { .. } => Operation::NewCompute,
            Self::Compute(_) => Operation::Compute,
            Self::KillCompute(_) => Operation::KillCompute,
            Self::ResumeCompute(_) => Operation::ResumeCompute,
            Self::CommandCompute(..) => Operation::CommandCompute,
            Self::Suspend(_) => Operation::Suspend,
            Self::Resume(_) => Operation::Resume,
            Self::DeleteRetained(_) => Operation::DeleteRetained,
        }
    }
}
