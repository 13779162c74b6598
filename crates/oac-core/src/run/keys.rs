//! `oac-core core-key`: may run beside a serving Core.

use std::{io::Write as _, path::Path};

use oac_model::CoreKeyId;

use super::{ProgramError, StartError, open_store};
use crate::{config::Config, entropy, http::check_name};

/// Creates a Core key: the key goes to standard output, alone on its line, what it is to standard error.
pub async fn create_core_key(config: &Path, name: &str) -> Result<(), ProgramError> {
    check_name("name", name).map_err(|_| ProgramError::KeyName)?;
    let store = open_store(&Config::load(config)?, 0)
        .await
        .map_err(StartError::from)?;
    let key = entropy::secret(entropy::CORE_KEY_PREFIX).map_err(ProgramError::Entropy)?;
    let row = store.create_core_key(name, key.digest()).await?;
    store.close().await;
    // The one time it is shown.
    writeln!(std::io::stdout(), "{}", key.expose()).map_err(ProgramError::Output)?;
    eprintln!(
        "Core key {} ({name}) was created. Keep the key: it is shown only now.",
        row.id
    );
    Ok(())
}

/// Lists every Core key, oldest first, one on a line; of the keys themselves Core knows nothing.
pub async fn list_core_keys(config: &Path) -> Result<(), ProgramError> {
    let store = open_store(&Config::load(config)?, 0)
        .await
        .map_err(StartError::from)?;
    let keys = store.single().core_keys().await?;
    store.close().await;
    let mut out = std::io::stdout();
    for key in keys {
        let revoked = key.revoked_at.map_or_else(|| "-".to_owned(), |at| at.to_string());
        // A terminal obeys no name.
        let name = key.name.escape_debug();
        writeln!(out, "{}  {}  {revoked}  {name}", key.id, key.created_at).map_err(ProgramError::Listed)?;
    }
    Ok(())
}

/// Revokes a Core key; its console sessions end with it.
pub async fn revoke_core_key(config: &Path, id: CoreKeyId) -> Result<(), ProgramError> {
    let store = open_store(&Config::load(config)?, 0)
        .await
        .map_err(StartError::from)?;
    let revoked = store.revoke_core_key(id).await?;
    store.close().await;
    if !revoked {
        return Err(ProgramError::NoSuchKey);
    }
    eprintln!("Core key {id} is revoked.");
    Ok(())
}
