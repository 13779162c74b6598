//! One health report: the host measured and the provider probed for it (P-034).

use std::{
    sync::Arc,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use oac_model::{DiagnosticCode, Time};
use oac_provider::{ProbeError, Provider};
use oac_wire::{Nullable, frames::Health};
use parking_lot::Mutex;

use crate::{
    limits::PROBE,
    measure::{Measurements, Meter},
};

/// A fixed node's report: measures and probes; at most about 5 s.
pub(crate) async fn report(provider: Arc<dyn Provider>, meter: Arc<Mutex<Meter>>) -> Health {
    let (measured, probed) = tokio::join!(measure(meter), probe(&*provider));
    if let Err(error) = &probed {
        tracing::warn!(event = "provider_not_ready", code = %error.code, error = error.text, "the provider is not ready");
    }
    health(measured, probed.err().map(|error| error.code))
}

/// A managing node's: it says how each of its generations stands, and the connection fills that in.
pub(crate) async fn report_of_host(meter: Arc<Mutex<Meter>>) -> Health {
    health(measure(meter).await, None)
}

async fn measure(meter: Arc<Mutex<Meter>>) -> Measurements {
    let measured = tokio::task::spawn_blocking(move || meter.lock().read()).await;
    measured.unwrap_or_default()
}

/// One probe of at most 5 s. Its text goes to the local log, its code to Core.
pub(crate) async fn probe(provider: &dyn Provider) -> Result<(), ProbeError> {
    let by = Instant::now() + PROBE;
    match tokio::time::timeout(PROBE, provider.probe(by)).await {
        Ok(probed) => probed,
        Err(_) => Err(ProbeError {
            code: DiagnosticCode::ProviderUnavailable,
            text: format!("the provider's probe did not answer within {PROBE:?}"),
        }),
    }
}

fn health(measured: Measurements, diagnostic: Option<DiagnosticCode>) -> Health {
    Health {
        provider_ready: diagnostic.is_none(),
        observed_at: now(),
        // Filled in by the connection, which counts them.
        active_operations: 0,
        cpu_utilization: Nullable(measured.cpu_utilization),
        total_memory_bytes: Nullable(measured.total_memory_bytes),
        effective_cpu_cores: Nullable(measured.effective_cpu_cores),
        cpu_count: Nullable(measured.cpu_count),
        available_memory_bytes: Nullable(measured.available_memory_bytes),
        available_disk_bytes: Nullable(measured.available_disk_bytes),
        execution_class: Nullable(None),
        checkpoint_store: Nullable(None),
        boot_id: Nullable(measured.boot_id),
        diagnostic: diagnostic.map(Into::into),
        generations: None,
    }
}

fn now() -> Time {
    let millis = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as i64);
    Time::from_millis(millis).unwrap_or_else(|| unreachable!("the clock is between 1970 and 9999"))
}
