//! `oac login`.

use std::path::Path;

use clap::Args;
use oac_model::Secret;

use crate::{
    Failure,
    client::{Client, Key},
    config::{self, Config, Entry, Name},
    output::{self, Form},
    terminal,
};

#[derive(Debug, Args)]
#[command(after_help = "\
Keys are typed without being shown, or read as lines of standard input: the address, the Core key, the Project \
key. They are never taken from arguments or the environment. What is written was accepted by Core first.

Examples:
  oac login
  oac login --context staging")]
pub(super) struct Login {}

impl Login {
    /// Asks for the address and the keys, has Core check them and writes them, with every other context kept.
    pub(super) async fn run(self, path: &Path, context: Option<Name>, form: Form) -> Result<(), Failure> {
        // A file that is refused is refused before anything is asked.
        let before = match Config::load(path) {
            Ok(config) => config,
            Err(Failure::NoConfig { .. }) => Config::default(),
            Err(failure) => return Err(failure),
        };
        let context = context.unwrap_or_else(|| before.current());
        let present = before.get(&context);
        let url = address(present)?;
        // Keys go to the address they were given for, to no other.
        let kept = present.filter(|p| p.url == url);
        let core_key = key(
            "Core key, for operators",
            "oac_core_",
            kept.and_then(|p| p.core_key.as_ref()),
        )?;
        let project_key = key(
            "Project API key, for applications",
            "oac_key_",
            kept.and_then(|p| p.project_key.as_ref()),
        )?;
        if core_key.is_none() && project_key.is_none() {
            return Err(Failure::Usage(
                "enter at least one key; nothing was written".to_owned(),
            ));
        }
        let entry = Entry {
            url,
            core_key,
            project_key,
        };
        verify(&context, &entry).await?;
        let current = Config::edit(path, |config| {
            config.put(context.clone(), entry.clone());
            Ok(config.current())
        })?;
        match form {
            Form::Json => output::json(&serde_json::json!({
                "context": context.as_str(), "url": entry.url, "current": current == context,
                "core_key": entry.core_key.is_some(), "project_key": entry.project_key.is_some(),
            })),
            Form::Text => {
                output::line(&format!("Wrote the context {context} to {}", path.display()));
                if current != context {
                    output::note(&format!(
                        "The current context is still {current}; change it with `oac context use {context}`."
                    ));
                }
            }
        }
        Ok(())
    }
}

fn address(present: Option<&Entry>) -> Result<String, Failure> {
    let text = match present {
        Some(present) => {
            let text = terminal::ask(&format!("Core's address [{}]: ", present.url))?;
            if text.is_empty() {
                present.url.clone()
            } else {
                text
            }
        }
        None => terminal::ask("Core's address (such as https://oac.example.org): ")?,
    };
    if config::is_origin(&text) {
        Ok(text.trim_end_matches('/').to_owned())
    } else {
        Err(Failure::Usage(
            "the address must be http://host or https://host, without a path; nothing was written".to_owned(),
        ))
    }
}

fn key(what: &str, prefix: &str, present: Option<&Secret>) -> Result<Option<Secret>, Failure> {
    let empty = if present.is_some() {
        "empty to keep it"
    } else {
        "empty for none"
    };
    let text = terminal::ask_secret(&format!("{what} ({empty}): "))?;
    if text.is_empty() {
        return Ok(present.cloned());
    }
    if !text.starts_with(prefix) {
        return Err(Failure::Usage(format!(
            "such a key begins with {prefix}; nothing was written"
        )));
    }
    Ok(Some(Secret::new(text)))
}

/// Has Core accept each key.
async fn verify(context: &Name, entry: &Entry) -> Result<(), Failure> {
    let client = Client::new(context.clone(), entry.clone())?;
    let refused = |which: &str, failure: Failure| match failure {
        Failure::Refused { status: 401, .. } => Failure::Unfinished(format!(
            "Core does not know the {which} key: enter one that is not revoked; nothing was written"
        )),
        other => other,
    };
    if entry.core_key.is_some() {
        client
            .check_key(Key::Core)
            .await
            .map_err(|failure| refused("Core", failure))?;
    }
    if entry.project_key.is_some() {
        client
            .check_key(Key::Project)
            .await
            .map_err(|failure| refused("Project", failure))?;
    }
    Ok(())
}
