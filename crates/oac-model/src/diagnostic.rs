//! Readiness codes that leave a node (protocol.md section 3).

use serde::{Deserialize, Deserializer, Serialize};

macro_rules! diagnostics {
    ($($(#[$doc:meta])* $name:ident = $text:literal),* $(,)?) => {
        /// Why a provider, or a generation's preparation, is not ready. Only the code leaves the node.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum DiagnosticCode { $($(#[$doc])* $name),* }

        impl DiagnosticCode {
            pub const ALL: &[Self] = &[$(Self::$name),*];

            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }

            /// The code of a well-formed token; an unknown one is `provider_unavailable` (INV-P27).
            pub fn from_token(token: &str) -> Self {
                match token { $($text => Self::$name,)* _ => Self::ProviderUnavailable }
            }
        }
    };
}

diagnostics! {
    /// The provider's service is unreachable or failed a request, or a failure has no class.
    ProviderUnavailable = "provider_unavailable",
    /// The host lacks a capability the provider requires.
    HostUnsupported = "host_unsupported",
    /// The host has fewer CPUs or less memory than one sandbox.
    CapacityInsufficient = "capacity_insufficient",
    /// The provider does not hold the Runtime image.
    RuntimeImageUnavailable = "runtime_image_unavailable",
    /// A pinned provider file is missing or fails its SHA-256 check.
    ArtifactsUnavailable = "artifacts_unavailable",
    /// Preparation only: transfer, checksum or release provenance failed.
    RuntimeDownloadFailed = "runtime_download_failed",
}

impl std::fmt::Display for DiagnosticCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for DiagnosticCode {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for DiagnosticCode {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Ok(Self::from_token(&String::deserialize(d)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: G-254
    #[test]
    fn each_code_reads_back_as_itself_and_names_no_backend() {
        for code in DiagnosticCode::ALL {
            assert_eq!(DiagnosticCode::from_token(code.as_str()), *code);
            for backend in ["docker", "microsandbox", "kvm", "e2b"] {
                assert!(!code.as_str().contains(backend), "{code}");
            }
        }
    }
}
