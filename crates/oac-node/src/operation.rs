//! One request's way into the provider and its outcome's way back. Error texts and paths stop here (INV-N35).

use std::time::Instant;

use oac_model::Reference;
use oac_peer::{FailureCode, Outcome};
use oac_provider::{CreateFailure, Failure, Provider};
use oac_wire::{
    frames::{Arguments, RequestBody, ResponseResult},
    shapes::{Info, Operation, Unsupported},
};

/// Runs the operation; `by` ends the wait, not the native work.
pub(crate) async fn run(provider: &dyn Provider, request: &RequestBody, by: Instant) -> Outcome {
    let operation = request.arguments.operation();
    let r = &request.reference;
    // Before any native work, whatever the adapter does (INV-V1).
    if let Err(refusal) = provider.declarations().require(operation) {
        return failed(operation, r, &refusal, None);
    }
    let answer = match &request.arguments {
        Arguments::Create(bootstrap) => {
            return match provider.create(bootstrap, by).await {
                Ok(info) => Outcome::Success(Some(ResponseResult::Info(info))),
                Err(CreateFailure { failure, receipt }) => failed(operation, r, &failure, receipt),
            };
        }
        Arguments::Info => provider.info(r, by).await.map(ResponseResult::Info).map(Some),
        Arguments::Renew => provider.renew(r, by).await.map(ResponseResult::Info).map(Some),
        Arguments::Kill => provider.kill(r, by).await.map(|()| None),
        Arguments::Command(command) => provider
            .command(r, command, by)
            .await
            .map(ResponseResult::Command)
            .map(Some),
        Arguments::Observe(observation) => provider
            .observe(r, observation, by)
            .await
            .map(ResponseResult::Sample)
            .map(Some),
        Arguments::Initial => provider.initial(r, by).await.map(compute),
        Arguments::NewCompute { generation, retained } => provider
            .new_compute(r, generation.get(), retained.as_deref(), by)
            .await
            .map(compute),
        Arguments::Compute(c) => provider.compute(r, c, by).await.map(state),
        Arguments::KillCompute(c) => provider.kill_compute(r, c, by).await.map(|()| None),
        Arguments::ResumeCompute(c) => provider.resume_compute(r, c, by).await.map(state),
        Arguments::CommandCompute(c, command) => provider
            .command_compute(r, c, command, by)
            .await
            .map(ResponseResult::Command)
            .map(Some),
        Arguments::Suspend(suspend) => provider.suspend(suspend, by).await.map(state),
        Arguments::Resume(resume) => provider.resume(resume, by).await.map(state),
        Arguments::DeleteRetained(retained) => provider.delete_retained(r, retained, by).await.map(|()| None),
    };
    match answer {
        Ok(result) => Outcome::Success(result),
        Err(failure) => failed(operation, r, &failure, None),
    }
}

fn compute(compute: oac_wire::shapes::Compute) -> Option<ResponseResult> {
    Some(ResponseResult::Compute(Box::new(compute)))
}

fn state(state: oac_wire::shapes::ComputeState) -> Option<ResponseResult> {
    Some(ResponseResult::State(Box::new(state)))
}

fn failed(operation: Operation, r: &Reference, failure: &Failure, receipt: Option<Info>) -> Outcome {
    let cause = std::error::Error::source(failure).map(ToString::to_string);
    tracing::info!(
        event = "operation_failed",
        operation = operation.as_str(),
        allocation = %r.allocation_id,
        error = %failure,
        cause,
        "an operation failed"
    );
    let code = match failure {
        Failure::Unsupported { operation, reason } => {
            return Outcome::Unsupported(Unsupported {
                operation: operation.method().to_owned(),
                reason: (*reason).to_owned(),
            });
        }
        Failure::ObservationUnavailable(_) => FailureCode::ObservationUnavailable,
        Failure::RuntimeNotRunning => FailureCode::RuntimeNotRunning,
        Failure::Invalid(_) => FailureCode::Invalid,
        Failure::Ownership(_) => FailureCode::Ownership,
        Failure::Exists(_) => FailureCode::Exists,
        Failure::NotFound => FailureCode::NotFound,
        Failure::CommandUnconfirmed(_) => FailureCode::CommandUnconfirmed,
        Failure::Unconfirmed(_) => FailureCode::Unconfirmed,
    };
    Outcome::Failed { code, receipt }
}
