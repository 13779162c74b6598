//! What a sandbox may reach.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkAccess {
    None,
    Restricted,
    Public,
}

impl NetworkAccess {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Restricted => "restricted",
            Self::Public => "public",
        }
    }
}

/// A Session's network, fixed for its life. Each domain covers its subdomains.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    pub access: NetworkAccess,
    #[serde(default)]
    pub allowed_domains: Vec<String>,
}

impl Default for Network {
    fn default() -> Self {
        Self {
            access: NetworkAccess::Public,
            allowed_domains: Vec::new(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    #[error("allowed_domains belongs to access \"restricted\" alone")]
    DomainsWithoutRestriction,
    #[error("allowed_domains holds at most 64 host names")]
    TooManyDomains,
    #[error("allowed_domains[{0}] is not a host name of at most 253 bytes")]
    NotAHostName(usize),
}

impl Network {
    pub const MAX_DOMAINS: usize = 64;

    /// sessions.md section 2, protocol.md section 7 (bootstrap).
    pub fn validate(&self) -> Result<(), NetworkError> {
        if self.access != NetworkAccess::Restricted && !self.allowed_domains.is_empty() {
            return Err(NetworkError::DomainsWithoutRestriction);
        }
        if self.allowed_domains.len() > Self::MAX_DOMAINS {
            return Err(NetworkError::TooManyDomains);
        }
        match self.allowed_domains.iter().position(|d| !is_host_name(d)) {
            Some(index) => Err(NetworkError::NotAHostName(index)),
            None => Ok(()),
        }
    }
}

fn is_host_name(name: &str) -> bool {
    let label = |l: &str| {
        (1..=63).contains(&l.len())
            && !l.starts_with('-')
            && !l.ends_with('-')
            && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    name.len() <= 253 && name.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_belong_to_restricted_alone_and_are_host_names() {
        let network = |access, domains: &[&str]| Network {
            access,
            allowed_domains: domains.iter().map(|d| (*d).to_owned()).collect(),
        };
        assert_eq!(
            network(NetworkAccess::Restricted, &["example.org", "a-b.c"]).validate(),
            Ok(())
        );
        assert_eq!(
            network(NetworkAccess::Public, &["example.org"]).validate(),
            Err(NetworkError::DomainsWithoutRestriction)
        );
        for bad in ["", "-a.b", "a..b", "a b", "*.example.org", "a/b"] {
            assert_eq!(
                network(NetworkAccess::Restricted, &["ok", bad]).validate(),
                Err(NetworkError::NotAHostName(1)),
                "{bad}"
            );
        }
        let many = vec!["a.b"; 65];
        assert_eq!(
            network(NetworkAccess::Restricted, &many).validate(),
            Err(NetworkError::TooManyDomains)
        );
    }
}
