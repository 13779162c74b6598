//! The checks of the probe, and what makes each of them fail, on any engine.

use http::Method;
use oac_model::DiagnosticCode::{self, *};
use serde_json::Value;

use crate::tap::{Fault, Tap};

/// How a check of the probe is made to fail.
enum Breach {
    /// The engine says this of itself.
    System(fn(&mut Value)),
    /// It answers so to calls of paths that begin with this.
    Answer(&'static str, u16),
}

/// The probe's checks in their order (providers.md section 6): the engine answers, as that of the recorded host; it limits
/// memory and CPUs; it has memory, and enough CPUs; it has the image, and the network.
const CHECKS: [(DiagnosticCode, Breach); 8] = [
    (ProviderUnavailable, Breach::Answer("/_ping", 500)),
    (
        ProviderUnavailable,
        Breach::System(|info| info["ID"] = "OTHER".into()),
    ),
    (
        HostUnsupported,
        Breach::System(|info| info["MemoryLimit"] = false.into()),
    ),
    (
        HostUnsupported,
        Breach::System(|info| info["CpuCfsQuota"] = false.into()),
    ),
    (
        ProviderUnavailable,
        Breach::System(|info| info["MemTotal"] = 0.into()),
    ),
    (
        CapacityInsufficient,
        Breach::System(|info| info["NCPU"] = 0.into()),
    ),
    (RuntimeImageUnavailable, Breach::Answer("/images/", 404)),
    (ProviderUnavailable, Breach::Answer("/networks/", 404)),
];

pub(crate) fn codes() -> Vec<DiagnosticCode> {
    CHECKS.iter().map(|(code, _)| *code).collect()
}

/// The check of this number and all later ones fail.
pub(crate) fn fail_from(tap: &Tap, first: usize) {
    let mut of_system = Vec::new();
    for (_, breach) in &CHECKS[first..] {
        match *breach {
            Breach::System(change) => of_system.push(change),
            Breach::Answer(begins, status) => {
                let called = move |_: &Method, path: &str| path.starts_with(begins);
                tap.always(Box::new(called), Fault::Refuse(status));
            }
        }
    }
    let system = |_: &Method, path: &str| path == "/info";
    tap.always(Box::new(system), Fault::Belie(of_system));
}
