//! The WebSocket `/api/v1/sandbox-link`: from the upgrade to the end of the link.

use std::{net::IpAddr, sync::Arc, time::Instant};

use axum::{
    Extension,
    extract::{
        State, WebSocketUpgrade,
        ws::{WebSocket, rejection::WebSocketUpgradeRejection},
    },
    response::Response,
};
use oac_link::{Hello, HelloError, Opening, Refusal, Socket, Welcome};
use oac_model::{AllocationState, ComputePhase, LinkId};
use oac_store::{AllocationRow, Ownership, StoreError};

use super::Link;
use crate::{
    Core, allocations,
    http::{
        ApiError,
        auth::Credential,
        error::Chain,
        router::{Body, Route},
        serve::Peer,
        strict::{NoQuery, StrictQuery},
    },
    limits,
    task::Kind,
    turns,
};

/// The link's routes.
pub fn routes() -> Vec<Route> {
    vec![Route::new(
        Credential::Link,
        Body::None,
        utoipa_axum::routes!(sandbox_link),
    )]
}

/// A sandbox's runtime connects (WebSocket). It says hello in its first message; nothing in the headers counts.
#[utoipa::path(
    get,
    path = "/api/v1/sandbox-link",
    operation_id = "connect_sandbox_link",
    tag = "machine",
    responses((status = 101, description = "Switching to WebSocket"))
)]
async fn sandbox_link(
    State(core): State<Arc<Core>>,
    Extension(peer): Extension<Peer>,
    StrictQuery(NoQuery {}): StrictQuery<NoQuery>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, ApiError> {
    let upgrade = upgrade
        .map_err(|_| ApiError::invalid_request("This route is a WebSocket: connect with an upgrade."))?;
    let response = upgrade
        .max_message_size(oac_link::limits::MESSAGE_BYTES)
        .max_frame_size(oac_link::limits::MESSAGE_BYTES)
        .on_upgrade(move |socket| async move {
            let this = core.clone();
            core.tasks.spawn(Kind::Connection, "sandbox link", async move {
                serve(this, socket, peer.0).await
            });
        });
    Ok(response)
}

async fn serve(core: Arc<Core>, socket: WebSocket, address: IpAddr) {
    let opening = Opening::new(Socket::from_axum(socket));
    let places = (
        core.links.opening.clone().try_acquire_owned(),
        core.links
            .opening_of
            .open(address, limits::OPENING_LINKS_OF_ADDRESS),
    );
    let (Ok(_), Some(_)) = &places else {
        drop(places);
        return opening.refuse(Refusal::Busy).await;
    };
    let Some((link, driver)) = open(&core, opening, address).await else {
        return;
    };
    drop(places);
    core.links.enter(&link);
    core.pokes.changed(link.allocation_id());
    let (connection, allocation) = (link.connection_id(), link.allocation_id());
    tracing::info!(%allocation, %connection, "a sandbox linked");
    // The Turns are driven exactly as long as the connection moves.
    let end = tokio::select! {
        end = driver.run() => end,
        never = turns::drive(&core, &link) => match never {},
    };
    core.links.leave(&link);
    tracing::info!(%allocation, %connection, %end, "a sandbox's link ended");
    core.pokes.changed(allocation);
}

/// Hello and welcome. `None` after anything else; the peer was told what it may know.
async fn open(
    core: &Arc<Core>,
    mut opening: Opening,
    address: IpAddr,
) -> Option<(Arc<Link>, oac_link::LinkDriver)> {
    // False once the address has had too many hellos refused: then it learns no more than that.
    let reject = || {
        let mut rejections = core.links.rejections.lock();
        let told = rejections.admits(address, Instant::now());
        rejections.record(address, Instant::now());
        told
    };
    let hello = match opening.hello().await {
        Ok(hello) => hello,
        Err(HelloError::VersionUnsupported) => {
            opening.refuse(Refusal::VersionUnsupported).await;
            return None;
        }
        Err(error) => {
            if matches!(error, HelloError::Malformed) {
                reject();
            }
            opening.close().await;
            return None;
        }
    };
    let Some(ownership) = core.owner.ownership() else {
        opening.refuse(Refusal::EpochChanged).await;
        return None;
    };
    let allocation = match core.store.single().allocation(hello.resource.id).await {
        Ok(allocation) => allocation,
        Err(error) => {
            tracing::warn!(error = %Chain(&error), "a link cannot be checked");
            opening.refuse(Refusal::Busy).await;
            return None;
        }
    };
    let Some(allocation) = judge(allocation, &hello) else {
        if !reject() {
            opening.refuse(Refusal::Busy).await;
            return None;
        }
        tracing::info!(event = "link_refused", allocation = %hello.resource.id, %address, "a link was refused");
        opening.refuse(Refusal::CredentialRejected).await;
        return None;
    };
    match rests(core, &allocation).await {
        Ok(false) => welcome(opening, hello, &allocation, ownership).await,
        Ok(true) => {
            opening.refuse(Refusal::Busy).await;
            None
        }
        Err(error) => {
            tracing::warn!(error = %Chain(&error), "a link cannot be checked");
            opening.refuse(Refusal::Busy).await;
            None
        }
    }
}

/// Whether nothing of the allocation may link now: it is suspended, or its restore is not verified, or Core has begun to
/// kill the restored target.
async fn rests(core: &Core, allocation: &AllocationRow) -> Result<bool, StoreError> {
    match allocation.compute_phase {
        ComputePhase::Disabled | ComputePhase::Running | ComputePhase::Quiescing => Ok(false),
        ComputePhase::Suspending | ComputePhase::Suspended | ComputePhase::Restoring => Ok(true),
        ComputePhase::Waking => {
            let target = allocations::newest_compute(&core.store.single(), allocation.id).await?;
            Ok(target.is_some_and(|(_, given_up)| given_up))
        }
    }
}

async fn welcome(
    opening: Opening,
    hello: Hello,
    allocation: &AllocationRow,
    ownership: Ownership,
) -> Option<(Arc<Link>, oac_link::LinkDriver)> {
    let welcome = Welcome {
        connection_id: LinkId::random(),
        owner_epoch: ownership.epoch,
    };
    let (client, driver) = opening.welcome(welcome).await.ok()?;
    let link = Link {
        resource: hello.resource,
        session_id: allocation.session_id,
        instance_id: hello.instance_id,
        ownership,
        client,
        ready: Default::default(),
        wake: Default::default(),
        handed: Default::default(),
        begun: Default::default(),
        asked: Default::default(),
        first: Default::default(),
    };
    Some((Arc::new(link), driver))
}

/// The allocation that the hello opens a link of. Whoever lacks the credential that opens it now learns no more than that:
/// a revocation takes the digest away, so that what was revoked and what never was look the same.
fn judge(allocation: Option<AllocationRow>, hello: &Hello) -> Option<AllocationRow> {
    let allocation = allocation?;
    let digest = allocation.link_digest?;
    let resource = hello.resource;
    let opens = digest.matches(&hello.credential.digest())
        && resource.tenant_id == allocation.tenant_id
        && resource.environment_id == allocation.environment_id
        && resource.generation == allocation.link_generation
        && matches!(
            allocation.state,
            AllocationState::Creating | AllocationState::Running
        );
    opens.then_some(allocation)
}
