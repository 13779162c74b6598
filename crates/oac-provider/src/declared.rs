//! What each backend declares, for those that hold the declarations without holding the backend: Core refuses an
//! unsupported operation before it looks up a node (P-072).

use std::sync::LazyLock;

use oac_model::{NetworkAccess, ProviderKind};
use oac_wire::shapes::Operation;

use crate::{Declarations, Support};

/// Why Docker refuses every operation on checkpoints (providers.md section 3).
pub const DOCKER_REASON: &str = "docker_does_not_support_checkpoints";

static DOCKER: LazyLock<Option<Declarations>> = LazyLock::new(|| {
    let operations: Vec<_> = Operation::ALL
        .iter()
        .map(|operation| match operation {
            Operation::Create
            | Operation::Info
            | Operation::Renew
            | Operation::Kill
            | Operation::Command
            | Operation::Observe => (*operation, Support::Supported),
            _ => (*operation, Support::Unsupported(DOCKER_REASON)),
        })
        .collect();
    Declarations::new(&operations, &[NetworkAccess::Public]).ok()
});

/// The declarations of a backend this workspace has; `None` for one it has not.
pub fn declarations_of(provider: ProviderKind) -> Option<&'static Declarations> {
    match provider {
        ProviderKind::Docker => DOCKER.as_ref(),
        ProviderKind::Microsandbox | ProviderKind::E2b => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn docker_declares_every_operation_and_refuses_those_on_checkpoints() {
        let docker = declarations_of(ProviderKind::Docker).unwrap();
        assert_eq!(docker.support(Operation::Create), Support::Supported);
        assert_eq!(
            docker.support(Operation::Suspend),
            Support::Unsupported(DOCKER_REASON)
        );
        assert!(docker.enforces(NetworkAccess::Public) && !docker.enforces(NetworkAccess::None));
    }
}
