//! `oac context list|show|use|rm`. Nothing here prints a key.

use std::path::Path;

use clap::Subcommand;
use serde_json::{Value, json};

use crate::{
    Failure,
    config::{Config, Entry, Name},
    output::{self, Form},
};

#[derive(Debug, Subcommand)]
pub(super) enum Context {
    /// List contexts; `*` marks the current one
    #[command(visible_alias = "ls")]
    List,
    /// Show a context [default: the current one]
    Show {
        /// Name of a context
        name: Option<Name>,
    },
    /// Make a context the one that commands use
    Use {
        /// Name of a context
        name: Name,
    },
    /// Forget a context and its keys; the keys stay valid
    Rm {
        /// Name of a context
        name: Name,
    },
}

impl Context {
    /// `chosen` is the global `--context`.
    pub(super) fn run(self, path: &Path, chosen: Option<Name>, form: Form) -> Result<(), Failure> {
        match self {
            Self::List => list(&Config::load(path)?, form),
            Self::Show { name } => {
                let config = Config::load(path)?;
                let (name, entry) = config.entry(name.or(chosen).as_ref())?;
                match form {
                    Form::Json => output::json(&document(&config, &name, entry)),
                    Form::Text => output::facts(&[
                        ("Context", name.to_string()),
                        ("Core", entry.url.clone()),
                        ("Core key", held(entry.core_key.is_some()).to_owned()),
                        ("Project key", held(entry.project_key.is_some()).to_owned()),
                        ("File", path.display().to_string()),
                    ]),
                }
            }
            Self::Use { name } => {
                Config::edit(path, |config| config.choose(&name))?;
                if form == Form::Text {
                    output::line(&format!("Commands use the context {name} now"));
                }
            }
            Self::Rm { name } => {
                let current = Config::edit(path, |config| {
                    config.remove(&name)?;
                    Ok(config.current())
                })?;
                if form == Form::Text {
                    output::line(&format!("Removed the context {name}"));
                    if current == name {
                        output::note("It was the current one: choose another with `oac context use`.");
                    }
                }
            }
        }
        Ok(())
    }
}

fn list(config: &Config, form: Form) {
    if form == Form::Json {
        let all: Vec<Value> = config
            .entries()
            .map(|(name, entry)| document(config, name, entry))
            .collect();
        return output::json(&json!({ "data": all }));
    }
    let current = config.current();
    let rows: Vec<Vec<String>> = config
        .entries()
        .map(|(name, entry)| {
            let mark = if *name == current { "*" } else { "" };
            vec![
                mark.to_owned(),
                name.to_string(),
                entry.url.clone(),
                held(entry.core_key.is_some()).to_owned(),
                held(entry.project_key.is_some()).to_owned(),
            ]
        })
        .collect();
    output::table(&["", "CONTEXT", "CORE", "CORE KEY", "PROJECT KEY"], &rows);
}

fn held(there: bool) -> &'static str {
    if there { "yes" } else { "no" }
}

fn document(config: &Config, name: &Name, entry: &Entry) -> Value {
    json!({
        "context": name.as_str(), "url": entry.url, "current": *name == config.current(),
        "core_key": entry.core_key.is_some(), "project_key": entry.project_key.is_some(),
    })
}
