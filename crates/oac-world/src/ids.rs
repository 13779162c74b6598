//! Ids that a seed repeats and a reader of a trace can tell apart: their kind and their number.

use oac_model::{
    AllocationId, BootId, ConnectionId, EnvironmentId, InstallationId, NodeId, OperationId, ProjectId,
    Reference, RequestId, SessionId, StoreId,
};
use uuid::Uuid;

fn uuid(kind: u8, number: u64) -> Uuid {
    Uuid::from_u128(u128::from(kind) << 120 | 0x4111_8111 << 64 | u128::from(number + 1))
}

/// The number that [`uuid`] was given.
pub(crate) fn number(id: Uuid) -> u64 {
    (id.as_u128() as u64).saturating_sub(1)
}

macro_rules! ids {
    ($($name:ident: $id:ident = $kind:literal),* $(,)?) => { $(
        pub(crate) fn $name(number: u64) -> $id {
            $id::from_uuid(uuid($kind, number)).unwrap_or_else(|| unreachable!("it is not the nil UUID"))
        }
    )* };
}

ids! {
    installation: InstallationId = 1,
    project: ProjectId = 2,
    environment: EnvironmentId = 3,
    allocation: AllocationId = 4,
    connection: ConnectionId = 5,
    request: RequestId = 6,
    node: NodeId = 7,
    session: SessionId = 8,
    boot: BootId = 9,
    operation: OperationId = 10,
    store: StoreId = 11,
}

/// Of an allocation of a Session.
pub(crate) fn reference(session: SessionId, allocation: AllocationId) -> Reference {
    Reference {
        tenant_id: project(0),
        environment_id: environment(number(session.as_uuid())),
        allocation_id: allocation,
    }
}
