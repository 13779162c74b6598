//! Create, step by step, and what each later question answers when the process dies between two steps.
//!
//! | killed after | the engine has | receipt | `info` | `kill` | another `create` |
//! |---|---|---|---|---|---|
//! | (nothing) | – | – | `not_found` | success, tombstone | as the first |
//! | 1 receipt `creating` durable | – | creating | `not_found`, unsettled | success, tombstone | `exists` |
//! | 2 inventory: nothing there | – | creating | `not_found`, unsettled | success, tombstone | `exists` |
//! | 3 volume home | one volume | creating | the leftover, unsettled | removes it, tombstone | `exists` |
//! | 4 volume environment | two volumes | creating | the leftover, unsettled | removes them, tombstone | `exists` |
//! | 5 container created | and a container, `created` | creating | its id, `created`, unsettled | removes all, tombstone | `exists` |
//! | 6 inspected and verified | the same | creating | the same | the same | `exists` |
//! | 7 bootstrap uploaded to `/home` | the same, with the link credential | creating | the same | the same | `exists` |
//! | 8 directories uploaded to `/environment` | the same | creating | the same | the same | `exists` |
//! | 9 started | a running container | creating | adopted: settled, running | removes all, tombstone | `exists` |
//! | 10 info | the same | settled | settled, running | the same | `exists` |
//! | 11 answered | the same | settled | settled, running | the same | `exists` |
//!
//! Step 8 is left out for an image that ships these directories.
//!
//! A row's engine call may also still be under way when the node dies: its effect then appears later, and each answer
//! is that of the row above until it does. Under a tombstone it is never settled: `info` is `unconfirmed` until a
//! further kill or the next sweep has removed it (INV-V11).
//!
//! A definite refusal of step 3, 4 or 5 is the exception: what was made is removed, absence is confirmed, and the
//! receipt becomes a tombstone at once, so that the answer carries a settled receipt.

use http::Method;
use oac_model::NetworkAccess;
use oac_provider::{Cause, CreateFailure, Failure, PhaseEvent, Receipt, ReceiptError};
use oac_wire::shapes::{Bootstrap, Info, Link};
use serde::Deserialize;

use crate::{
    decide::settled_absent,
    engine::{Body, EngineError},
    inventory::{Container, Inventory, Volume},
    options::Image,
    provider::{Entered, Inner, blocking, cause, inventory_failure, unconfirmed},
};

/// The account that everything in a sandbox runs as.
const USER_ID: u64 = 1000;
const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
/// What the runtime accepts (sessions.md section 5).
const BOOTSTRAP_LIMIT_BYTES: usize = 16 * 1024;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Created {
    id: String,
}

impl Inner {
    pub(crate) async fn create(&self, bootstrap: Bootstrap) -> Result<Info, CreateFailure> {
        if bootstrap.network_access != NetworkAccess::Public {
            let text = "Docker enforces no network access but public";
            return Err(Failure::Invalid(Cause::new(text)).into());
        }
        if bootstrap.workspace.0.is_some() {
            return Err(Failure::Invalid(Cause::new("Docker binds no workspace")).into());
        }
        let Some(seccomp) = &self.options.seccomp else {
            let text = "the seccomp profile is missing; it is repaired first";
            return Err(Failure::Unconfirmed(Cause::new(text)).into());
        };
        let home = home_archive(&bootstrap.link)?;
        let environment = environment_archive().map_err(unconfirmed)?;

        let mut entered = self.begin(&bootstrap).await?;
        let inventory = Inventory::take(&mut entered.session, &entered.names)
            .await
            .map_err(inventory_failure)?;
        if !inventory.is_empty() {
            let text = "a container or volume of this reference is present";
            return Err(Failure::Exists(Cause::new(text)).into());
        }
        let container = match self.make(&mut entered, seccomp).await {
            Ok(container) => container,
            Err(Refusal::Definite(failure)) => return Err(self.made_nothing(&mut entered, failure).await),
            Err(Refusal::Other(failure)) => return Err(failure.into()),
        };
        let image = self.verify(&mut entered, &container).await?;

        let mut uploads = vec![("/home", home)];
        if !image.ships_environment() {
            uploads.push(("/environment", environment));
        }
        for (path, archive) in uploads {
            let call = format!("/containers/{}/archive?path={path}", container.id);
            let body = Some(Body::Tar(archive));
            entered
                .session
                .act(Method::PUT, &call, body)
                .await
                .map_err(unconfirmed)?;
        }
        let call = format!("/containers/{}/start", container.id);
        entered
            .session
            .act(Method::POST, &call, None)
            .await
            .map_err(unconfirmed)?;

        // Settles the receipt when exactly this resource runs.
        let info = self.look(&mut entered).await?;
        if info.provider_id != container.id || !info.bootstrap_complete {
            let text = format!("the runtime is {} after its start", info.state);
            return Err(Failure::Unconfirmed(Cause::new(text)).into());
        }
        Ok(info)
    }

    /// Steps 0 and 1: everything that forbids a create, then the receipt.
    async fn begin(&self, bootstrap: &Bootstrap) -> Result<Entered, Failure> {
        let reference = bootstrap.reference;
        let exists = || Failure::Exists(Cause::new("a receipt of this reference is present"));
        let receipt = self.receipt(reference).await?;
        if receipt
            .as_ref()
            .is_some_and(|r| r.phase() == oac_provider::Phase::Tombstone)
        {
            // INV-V7: not one call.
            return Err(exists());
        }
        let mut entered = self.enter_with(reference, receipt).await?;
        entered.require_same_host()?;
        if entered.receipt.is_some() {
            return Err(exists());
        }
        let boot = entered
            .boot
            .ok_or_else(|| Failure::Unconfirmed(Cause::new("the kernel's boot_id cannot be read")))?;
        let receipt = Receipt::begin(
            PhaseEvent::CreateStarted,
            reference,
            self.generation,
            entered.host_id,
            Some(boot),
        )
        .map_err(unconfirmed)?;
        let (receipts, first) = (self.receipts.clone(), receipt.clone());
        blocking(move || receipts.create(&first))
            .await?
            .map_err(|e| match e {
                ReceiptError::Exists(_) => Failure::Exists(cause(e)),
                _ => unconfirmed(e),
            })?;
        entered.receipt = Some(receipt);
        Ok(entered)
    }

    /// Steps 3 to 5 and the first look at what they made.
    async fn make(&self, entered: &mut Entered, seccomp: &str) -> Result<Container, Refusal> {
        let Entered { session, names, .. } = entered;
        for name in [&names.home, &names.environment] {
            let body = serde_json::json!({"Name": name, "Labels": names.label_map()});
            let volume: Volume = session
                .post("/volumes/create", Body::Json(body))
                .await
                .map_err(refusal)?;
            // The engine answers an existing volume as if it had made it.
            if !names.own(&volume.labels.unwrap_or_default()) {
                let text = format!("volume {name} holds other labels");
                return Err(Refusal::Other(Failure::Ownership(Cause::new(text))));
            }
        }
        let call = format!("/containers/create?name={}", names.container);
        let created: Created = session
            .post(&call, Body::Json(self.options.body(names, seccomp)))
            .await
            .map_err(|error| match error.status() {
                Some(409) => Refusal::Other(Failure::Exists(cause(error))),
                _ => refusal(error),
            })?;
        let path = format!("/containers/{}/json", created.id);
        match session.get::<Container>(&path).await {
            Ok(Some(container)) if names.own(&container.labels()) => Ok(container),
            Ok(Some(_)) => {
                let text = "the container just made holds other labels";
                Err(Refusal::Other(Failure::Ownership(Cause::new(text))))
            }
            Ok(None) => {
                let text = "the container just made is gone";
                Err(Refusal::Other(Failure::Unconfirmed(Cause::new(text))))
            }
            Err(error) => Err(Refusal::Other(unconfirmed(error))),
        }
    }

    /// Step 6. A pure mismatch settles: the native create is over, and nothing follows it.
    async fn verify(&self, entered: &mut Entered, container: &Container) -> Result<Image, CreateFailure> {
        let image = self.image(&mut entered.session).await.map_err(unconfirmed)?;
        let image = image.ok_or_else(|| Failure::Unconfirmed(Cause::new("the image is gone")))?;
        let wrong = self.options.mismatches(container, &image, &entered.names);
        if wrong.is_empty() {
            return Ok(image);
        }
        let receipt = entered.receipt.clone().ok_or_else(|| {
            Failure::Unconfirmed(Cause::new("create has no receipt, which its first step made"))
        })?;
        let settled = receipt.apply(PhaseEvent::CreateVerified).map_err(unconfirmed)?;
        self.store(settled).await?;
        let text = format!("the engine made a container that differs in {}", wrong.join(", "));
        Err(CreateFailure {
            failure: Failure::Invalid(Cause::new(text)),
            receipt: Some(Info {
                reference: entered.reference,
                provider_id: container.id.clone(),
                state: container.state.status.clone(),
                bootstrap_complete: false,
                create_settled: true,
                compute_lost: false,
            }),
        })
    }

    /// After a definite refusal: removes what the earlier steps made, and settles when nothing remains.
    async fn made_nothing(&self, entered: &mut Entered, failure: Failure) -> CreateFailure {
        if let Err(error) = self.remove_all(entered).await {
            tracing::warn!(%error, "a refused create could not be cleaned up; kill will do it");
            return failure.into();
        }
        let Some(receipt) = entered.receipt.clone() else {
            return failure.into();
        };
        let stored = match receipt.apply(PhaseEvent::CreateMadeNothing) {
            Ok(tombstone) => self.store(tombstone).await,
            Err(error) => Err(unconfirmed(error)),
        };
        CreateFailure {
            failure,
            receipt: stored.is_ok().then(|| settled_absent(entered.reference, false)),
        }
    }
}

enum Refusal {
    /// The engine answered that it did not do it.
    Definite(Failure),
    Other(Failure),
}

fn refusal(error: EngineError) -> Refusal {
    match error.status() {
        Some(400) => Refusal::Definite(Failure::Invalid(cause(error))),
        Some(_) => Refusal::Definite(unconfirmed(error)),
        None => Refusal::Other(unconfirmed(error)),
    }
}

/// The one delivery of the link credential (INV-V18).
fn home_archive(link: &Link) -> Result<Vec<u8>, Failure> {
    let file =
        serde_json::to_vec(link).map_err(|_| Failure::Invalid(Cause::new("link cannot be written")))?;
    if file.len() > BOOTSTRAP_LIMIT_BYTES {
        return Err(Failure::Invalid(Cause::new("link is larger than 16 KiB")));
    }
    archive(&[("runtime", None), ("runtime/bootstrap.json", Some(&file))]).map_err(unconfirmed)
}

/// `workspace` is among them because the engine may have made it, as root.
fn environment_archive() -> std::io::Result<Vec<u8>> {
    archive(&[("workspace", None), ("initialization", None), ("packages", None)])
}

/// Directories (without content) and files, with numeric owners.
fn archive(entries: &[(&str, Option<&Vec<u8>>)]) -> std::io::Result<Vec<u8>> {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, content) in entries {
        let mut header = tar::Header::new_ustar();
        header.set_uid(USER_ID);
        header.set_gid(USER_ID);
        let content = match content {
            None => {
                header.set_entry_type(tar::EntryType::Directory);
                header.set_mode(DIRECTORY_MODE);
                &[][..]
            }
            Some(bytes) => {
                header.set_mode(FILE_MODE);
                bytes
            }
        };
        header.set_size(content.len() as u64);
        builder.append_data(&mut header, path, content)?;
    }
    builder.into_inner()
}
