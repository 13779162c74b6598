//! What leaves as the answer to one request.

use oac_model::RequestId;
use oac_wire::{
    NodeFrame,
    frames::{Response, ResponseResult},
};

use super::{Action, Asked, Node, machine::State};
use crate::{FailureCode, Outcome, outcome::is_success_of};

impl Node {
    /// Answers on the connection that asked; after a disconnect there is no `asked` left to answer.
    pub(super) fn respond(&self, asked: Asked, outcome: Outcome, actions: &mut Vec<Action>) {
        let unconfirmed = FailureCode::unconfirmed(asked.operation).as_str();
        let (code, result) = match outcome {
            Outcome::Success(result) => {
                match is_success_of(asked.operation, &asked.reference, result.as_ref()) {
                    true => (None, result),
                    false => (Some(unconfirmed), None),
                }
            }
            Outcome::Failed { code, receipt } => {
                let receipt = receipt.filter(|info| info.is_settled_receipt_of(&asked.reference));
                (Some(code.as_str()), receipt.map(ResponseResult::Info))
            }
            Outcome::Unsupported(evidence) => {
                (Some("unsupported"), Some(ResponseResult::Unsupported(evidence)))
            }
        };
        let failed = code.unwrap_or(unconfirmed);
        if !self.try_response(asked.id, code, result, actions) {
            // A provider's answer out of bounds; a receipt may be the reason, the class still stands.
            self.send_response(asked.id, Some(failed), None, actions);
        }
    }

    pub(super) fn send_response(
        &self,
        id: RequestId,
        code: Option<&str>,
        result: Option<ResponseResult>,
        actions: &mut Vec<Action>,
    ) {
        let sent = self.try_response(id, code, result, actions);
        debug_assert!(sent, "a response without result is always within bounds");
    }

    fn try_response(
        &self,
        id: RequestId,
        code: Option<&str>,
        result: Option<ResponseResult>,
        actions: &mut Vec<Action>,
    ) -> bool {
        let State::Live(live) = &self.state else {
            return true;
        };
        let response = Response {
            id,
            connection_id: live.connection_id,
            error_code: code.map(str::to_owned),
            result: Ok(result),
        };
        match NodeFrame::Response(Box::new(response)).encode() {
            Ok(text) => {
                actions.push(Action::Send(text));
                true
            }
            Err(_) => false,
        }
    }
}
