//! The sweep: an engine call may outlive its node, and what it then makes under a tombstone is removed (INV-V31).

use std::{
    collections::BTreeSet,
    time::{Duration, Instant, SystemTime},
};

use oac_model::{AllocationId, Reference};
use oac_provider::{Failure, Phase, SweepReport};

use crate::{
    engine::{Session, filters},
    inventory::{Listed, VolumeList},
    names::{LABEL_INSTALLATION, Labels, reference_of},
    provider::{DockerProvider, Inner, blocking, unconfirmed},
};

/// How long one reference's removal is waited for; the work goes on after it.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long tombstones are kept (providers.md section 4).
const TOMBSTONE_AGE: Duration = Duration::from_secs(30 * 24 * 3600);

impl DockerProvider {
    pub(crate) async fn sweep_tombstones(&self) -> Result<SweepReport, Failure> {
        let inner = &self.inner;
        let mut session = inner.engine.session().await.map_err(unconfirmed)?;
        if !inner.host.is_recorded_host(session.engine_id()) {
            return Ok(SweepReport::default());
        }
        let found = inner.references(&mut session).await?;
        drop(session);
        let mut report = SweepReport::default();
        for reference in &found {
            let (inner, reference) = (self.inner.clone(), *reference);
            let work = async move { inner.sweep_one(reference).await };
            match self.lanes().run(reference, Instant::now() + PATIENCE, work).await {
                Ok(Ok(true)) => report.removed += 1,
                Ok(Ok(false)) => {}
                Ok(Err(error)) => {
                    tracing::warn!(%reference.allocation_id, code = error.code(), "the sweep left something");
                    report.left += 1;
                }
                Err(error) => {
                    tracing::warn!(%reference.allocation_id, %error, "the sweep left something");
                    report.left += 1;
                }
            }
        }
        let present = found.iter().map(|r| r.allocation_id).collect();
        self.forget_old_tombstones(present).await?;
        Ok(report)
    }

    /// Old tombstones of which this sweep found nothing.
    async fn forget_old_tombstones(&self, present: BTreeSet<AllocationId>) -> Result<(), Failure> {
        let receipts = self.inner.receipts.clone();
        let all = blocking(move || receipts.check()).await?.map_err(unconfirmed)?;
        for receipt in all.into_iter().flatten() {
            let reference = receipt.reference;
            if receipt.phase() != Phase::Tombstone || present.contains(&reference.allocation_id) {
                continue;
            }
            let receipts = self.inner.receipts.clone();
            let forget = move || receipts.forget_tombstone(&reference, TOMBSTONE_AGE, SystemTime::now());
            let work = async move { blocking(forget).await?.map_err(unconfirmed) };
            let _ = self.lanes().run(reference, Instant::now() + PATIENCE, work).await;
        }
        Ok(())
    }
}

impl Inner {
    /// Every reference of this installation of which the engine holds a resource with all four labels.
    async fn references(&self, session: &mut Session) -> Result<BTreeSet<Reference>, Failure> {
        let label = format!("{LABEL_INSTALLATION}={}", self.installation);
        let filter = filters(&serde_json::json!({ "label": [label] }));
        let none = || Failure::Unconfirmed(oac_provider::Cause::new("the engine gave no listing"));
        let containers: Vec<Listed> = session
            .get(&format!("/containers/json?all=true&{filter}"))
            .await
            .map_err(unconfirmed)?
            .ok_or_else(none)?;
        let volumes: VolumeList = session
            .get(&format!("/volumes?{filter}"))
            .await
            .map_err(unconfirmed)?
            .ok_or_else(none)?;
        let labels = |l: Option<Labels>| reference_of(self.installation, &l.unwrap_or_default());
        Ok(containers
            .into_iter()
            .filter_map(|c| labels(c.labels))
            .chain(
                volumes
                    .volumes
                    .unwrap_or_default()
                    .into_iter()
                    .filter_map(|v| labels(v.labels)),
            )
            .collect())
    }

    /// In the allocation's place in the queue: the receipt is read again there.
    async fn sweep_one(&self, reference: Reference) -> Result<bool, Failure> {
        let receipt = match self.receipt(reference).await {
            Ok(receipt) => receipt,
            Err(error) => {
                // No tombstone of exactly this reference: nothing of it is touched.
                tracing::warn!(%reference.allocation_id, code = error.code(), "the sweep met an unreadable receipt");
                return Ok(false);
            }
        };
        if receipt.as_ref().map(oac_provider::Receipt::phase) != Some(Phase::Tombstone) {
            return Ok(false);
        }
        let mut entered = self.enter_with(reference, receipt).await?;
        if !entered.same_host() {
            return Ok(false);
        }
        self.remove_all(&mut entered).await
    }
}
