//! The name of one allocation.

use serde::{Deserialize, Serialize};

use crate::{AllocationId, Digest, EnvironmentId, InstallationId, ProjectId};

/// (tenant, environment, allocation): what every provider operation addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    pub tenant_id: ProjectId,
    pub environment_id: EnvironmentId,
    pub allocation_id: AllocationId,
}

impl Reference {
    /// H of providers.md section 6: the first 32 hex digits of SHA-256 of
    /// `installation:tenant:environment:allocation`; native names derive from it.
    pub fn native_hash(&self, installation: InstallationId) -> String {
        let text = format!(
            "{installation}:{}:{}:{}",
            self.tenant_id, self.environment_id, self.allocation_id
        );
        Digest::of(text).to_string()[..32].to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn native_hash_of_the_design_example() {
        let id = |d: &str| {
            format!(
                "{}-{}-4{}-8{}-{}",
                d.repeat(8),
                d.repeat(4),
                d.repeat(3),
                d.repeat(3),
                d.repeat(12)
            )
        };
        let reference = Reference {
            tenant_id: id("2").parse().unwrap(),
            environment_id: id("3").parse().unwrap(),
            allocation_id: id("4").parse().unwrap(),
        };
        let hash = reference.native_hash(id("1").parse().unwrap());
        assert_eq!(hash, "1fc88697ea621787190e302f34820683");
    }
}
