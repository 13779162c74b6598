//! `rebind-host`: an operator confirms that the state now belongs to this host (node.md section 4).
//!
//! Receipts come first and `identity.json` last: whoever is killed in between leaves a state that still counts as another
//! host's, and repeats it. Nothing is sent to Core.

use std::{
    io::{BufRead, IsTerminal, Write},
    path::Path,
};

use oac_model::Digest;
use oac_provider::{ReceiptError, ReceiptStore};

use crate::{
    backend::{HostError, RECEIPTS},
    identity::{IdentityError, IdentityStore},
};

#[derive(Debug, thiserror::Error)]
pub(crate) enum RebindError {
    #[error("the identity cannot be used; stop the service first")]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    Host(#[from] HostError),
    #[error("the receipts cannot be used; nothing of identity.json was changed")]
    Receipts(#[from] ReceiptError),
    #[error("nobody confirmed that the old host is off and stays off; nothing was changed")]
    Unconfirmed,
    #[error("the terminal cannot be used")]
    Terminal(#[from] std::io::Error),
}

/// Stores `present` where another host is recorded. `yes` confirms; else a terminal is asked.
pub(crate) fn rebind(state_dir: &Path, present: Digest, yes: bool) -> Result<String, RebindError> {
    let identity = IdentityStore::open(state_dir)?;
    let mut stored = identity.load()?.ok_or(IdentityError::Missing)?;
    let receipts = ReceiptStore::open(&state_dir.join(RECEIPTS))?;
    let mut others = 0_usize;
    for receipt in receipts.check()? {
        others += usize::from(receipt?.host_id.0.is_some_and(|host| host != present));
    }
    if stored.host_id == present && others == 0 {
        return Ok("everything already belongs to this host; nothing was changed".to_owned());
    }
    let differs = format!(
        "this is host {present}; identity.json is of host {}, and {others} receipts are of another host",
        stored.host_id
    );
    if !yes && !confirmed(&differs)? {
        return Err(RebindError::Unconfirmed);
    }
    let changed = receipts.rebind(present)?;
    stored.host_id = present;
    identity.store(&stored)?;
    Ok(format!(
        "{differs}; {changed} receipts and identity.json now belong to this host"
    ))
}

fn confirmed(differs: &str) -> Result<bool, std::io::Error> {
    let input = std::io::stdin();
    if !input.is_terminal() {
        return Ok(false);
    }
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "{differs}.\nIf the old host still runs, its sandboxes and those of this one would be taken for the same.\n\
         Type yes when the old host is off and stays off:"
    )?;
    out.flush()?;
    let mut answer = String::new();
    input.lock().read_line(&mut answer)?;
    Ok(answer.trim() == "yes")
}
