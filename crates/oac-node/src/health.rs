//! One health report: the host measured and the provider probed for it (P-034).

use std::{
    sync::Arc,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use oac_model::{DiagnosticCode, Time};
use oac_provider::Provider;
use oac_wire::{Nullable, frames::Health};
use parking_lot::Mutex;

use crate::{
    limits::PROBE,
    measure::{Measurements, Meter},
};

/// Measures and probes; at most about 5 s. The probe's text goes to the local log, its code into the report.
pub(crate) async fn report(provider: Arc<dyn Provider>, meter: Arc<Mutex<Meter>>) -> Health {
    let measured = tokio::task::spawn_blocking(move || meter.lock().read());
    let by = Instant::now() + PROBE;
    let (measured, probed) = tokio::join!(measured, tokio::time::timeout(PROBE, provider.probe(by)));
    let diagnostic = match probed {
        Ok(Ok(())) => None,
        Ok(Err(error)) => {
            tracing::warn!(event = "provider_not_ready", code = %error.code, error = error.text, "the provider is not ready");
            Some(error.code)
        }
        Err(_) => {
            tracing::warn!(
                event = "provider_not_ready",
                "the provider's probe did not answer within {PROBE:?}"
            );
            Some(DiagnosticCode::ProviderUnavailable)
        }
    };
    health(measured.unwrap_or_default(), diagnostic)
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
