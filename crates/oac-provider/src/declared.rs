//! What each backend declares, for those that hold the declarations without holding the backend: Core refuses an
//! unsupported operation before it looks up a node (P-072), and believes `unsupported` only with the declared reason.

use std::sync::LazyLock;

use oac_model::{NetworkAccess, ProviderKind};
use oac_wire::shapes::Operation;

use crate::{Declarations, NativeWork, Support};

/// Why Docker refuses every operation on checkpoints (providers.md section 3).
pub const DOCKER_REASON: &str = "docker_does_not_support_checkpoints";
/// Why E2B does.
pub const E2B_REASON: &str = "e2b_does_not_support_checkpoints";

/// The table of providers.md section 3; `no_checkpoints` is the reason of a backend that makes none.
fn declare(
    no_checkpoints: Option<&'static str>,
    network_access: &[NetworkAccess],
    native_work: NativeWork,
) -> Option<Declarations> {
    let operations: Vec<_> = Operation::ALL
        .iter()
        .map(|operation| match (operation, no_checkpoints) {
            (
                Operation::Create
                | Operation::Info
                | Operation::Renew
                | Operation::Kill
                | Operation::Command
                | Operation::Observe,
                _,
            )
            | (_, None) => (*operation, Support::Supported),
            (_, Some(reason)) => (*operation, Support::Unsupported(reason)),
        })
        .collect();
    Declarations::new(&operations, network_access, native_work).ok()
}

const EVERY_ACCESS: &[NetworkAccess] = &[
    NetworkAccess::None,
    NetworkAccess::Restricted,
    NetworkAccess::Public,
];

static DOCKER: LazyLock<Option<Declarations>> =
    LazyLock::new(|| declare(Some(DOCKER_REASON), &[NetworkAccess::Public], NativeWork::Engine));
static MICROSANDBOX: LazyLock<Option<Declarations>> =
    LazyLock::new(|| declare(None, EVERY_ACCESS, NativeWork::Helper));
static E2B: LazyLock<Option<Declarations>> =
    LazyLock::new(|| declare(Some(E2B_REASON), EVERY_ACCESS, NativeWork::Service));

/// The declarations of a backend.
pub fn declarations_of(provider: ProviderKind) -> Option<&'static Declarations> {
    match provider {
        ProviderKind::Docker => DOCKER.as_ref(),
        ProviderKind::Microsandbox => MICROSANDBOX.as_ref(),
        ProviderKind::E2b => E2B.as_ref(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_backend_declares_every_operation_and_two_refuse_those_on_checkpoints_with_their_reason() {
        let plain = [
            Operation::Create,
            Operation::Info,
            Operation::Renew,
            Operation::Kill,
            Operation::Command,
            Operation::Observe,
        ];
        for (provider, reason) in [
            (ProviderKind::Docker, Some(DOCKER_REASON)),
            (ProviderKind::Microsandbox, None),
            (ProviderKind::E2b, Some(E2B_REASON)),
        ] {
            let declared = declarations_of(provider).unwrap();
            for operation in Operation::ALL {
                let expected = match reason {
                    Some(reason) if !plain.contains(operation) => Support::Unsupported(reason),
                    _ => Support::Supported,
                };
                assert_eq!(
                    declared.support(*operation),
                    expected,
                    "{provider:?} {operation:?}"
                );
            }
        }
        let enforces = |provider, access| declarations_of(provider).unwrap().enforces(access);
        assert!(enforces(ProviderKind::Docker, NetworkAccess::Public));
        assert!(!enforces(ProviderKind::Docker, NetworkAccess::None));
        assert!(enforces(ProviderKind::Microsandbox, NetworkAccess::Restricted));
    }
}
