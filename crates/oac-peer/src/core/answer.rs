use oac_model::{Reference, Time};
use oac_wire::{
    frames::{Response, ResponseResult},
    shapes::Operation,
};

use crate::{FailureCode, Outcome, outcome::is_success_of};

/// Reads a response to `operation` on `reference` as protocol.md section 7 does: a success must carry exactly what its
/// row demands and no telemetry from the future of Core's clock `wall`, a failure at most a settled receipt,
/// `unsupported` the declared evidence. Whatever breaks that is unconfirmed, in the operation's own word for it.
pub fn read_answer(
    operation: Operation,
    reference: &Reference,
    unsupported_reason: Option<&str>,
    response: Response,
    wall: Time,
) -> Outcome {
    let unconfirmed = Outcome::failed(FailureCode::unconfirmed(operation));
    let Some(code) = response.error_code else {
        return match response.result {
            Ok(result)
                if is_success_of(operation, reference, result.as_ref())
                    && !is_ahead_of(wall, result.as_ref()) =>
            {
                Outcome::Success(result)
            }
            _ => unconfirmed,
        };
    };
    match (code.as_str(), response.result) {
        ("unsupported", Ok(Some(ResponseResult::Unsupported(evidence))))
            if evidence.operation == operation.method()
                && Some(evidence.reason.as_str()) == unsupported_reason =>
        {
            Outcome::Unsupported(evidence)
        }
        ("unsupported", _) | (_, Ok(Some(ResponseResult::Unsupported(_)))) => unconfirmed,
        (code, result) => {
            let code = match FailureCode::from_text(code) {
                FailureCode::Unconfirmed => FailureCode::unconfirmed(operation),
                code => code,
            };
            let receipt = match result {
                Ok(Some(ResponseResult::Info(info))) => {
                    Some(info).filter(|info| info.is_settled_receipt_of(reference))
                }
                _ => None,
            };
            Outcome::Failed { code, receipt }
        }
    }
}

fn is_ahead_of(wall: Time, result: Option<&ResponseResult>) -> bool {
    matches!(result, Some(ResponseResult::Sample(sample)) if sample.observed_at > wall)
}
