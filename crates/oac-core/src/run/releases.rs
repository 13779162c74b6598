//! `oac-core release`: may run beside a serving Core.

use std::{collections::BTreeSet, io::Write as _, path::Path};

use oac_model::SourceCommit;
use oac_release::store::{self, Holding, Removal, Shelf};

use super::{ProgramError, StartError, open_store};
use crate::config::Config;

/// Publishes the release in `from`.
pub fn publish_release(config: &Path, from: &Path, keep_current: bool) -> Result<(), ProgramError> {
    let config = Config::load(config)?;
    store::check_owner(&config.release_dir)?;
    let published = store::publish(&config.release_dir, from, keep_current)?;
    let commit = published.source_commit;
    match (published.is_new, published.added.len()) {
        (true, count) => eprintln!("Release {commit} is published with {count} files."),
        (false, 0) => eprintln!("Release {commit} was published already and lacked none of these files."),
        (false, count) => eprintln!("Release {commit} was published already; {count} files were added."),
    }
    if published.is_current {
        eprintln!("It is the current release: new nodes get their program from it.");
    }
    Ok(())
}

/// Lists every published release with what is held of it and which generations select it.
pub async fn list_releases(config: &Path) -> Result<(), ProgramError> {
    let config = Config::load(config)?;
    let shelf = Shelf::read(&config.release_dir, &Shelf::default(), &Default::default());
    let shelf = shelf.map_err(|source| store::StoreError::File {
        path: config.release_dir.clone(),
        source,
    })?;
    let selected = selections(&config).await?;
    let mut out = std::io::stdout();
    for (commit, release) in shelf.releases() {
        let current = if shelf.current() == Some(commit) {
            "  current"
        } else {
            ""
        };
        writeln!(out, "{commit}{current}").map_err(ProgramError::Listed)?;
        for (artifact, holding) in release.metadata.manifest().artifacts().iter().zip(&release.files) {
            let state = match holding {
                Holding::Held(_) | Holding::Unread(_) => "held",
                Holding::Missing => "missing",
                Holding::Wrong => "wrong",
            };
            writeln!(out, "  {state:8}{}", artifact.filename).map_err(ProgramError::Listed)?;
        }
        let generations = selected.iter().filter(|(_, source)| *source == commit);
        let generations: Vec<String> = generations
            .map(|(generation, _)| generation.to_string())
            .collect();
        if !generations.is_empty() {
            writeln!(out, "  selected by generation {}", generations.join(", "))
                .map_err(ProgramError::Listed)?;
        }
    }
    for problem in &shelf.problems {
        eprintln!("{}: {}", problem.path.display(), problem.fault);
    }
    Ok(())
}

/// Takes a release away that is neither the current one nor selected by a kept generation.
pub async fn remove_release(config: &Path, commit: SourceCommit) -> Result<(), ProgramError> {
    let config = Config::load(config)?;
    store::check_owner(&config.release_dir)?;
    let selected = async || {
        let all = selections(&config).await?.into_iter();
        Ok::<BTreeSet<SourceCommit>, ProgramError>(all.map(|(_, source)| source).collect())
    };
    let removal = Removal::begin(&config.release_dir, commit, &selected().await?)?;
    match selected().await {
        Ok(selected) => removal.finish(&selected)?,
        Err(error) => {
            removal.undo()?;
            return Err(error);
        }
    }
    eprintln!(
        "Release {commit} is removed. Nodes that were installed from it can no longer fetch their program."
    );
    Ok(())
}

/// The kept generations and the releases they select.
async fn selections(config: &Config) -> Result<Vec<(oac_model::Generation, SourceCommit)>, ProgramError> {
    let store = open_store(config, 0).await.map_err(StartError::from)?;
    let kept = store.single().kept_generations().await?;
    store.close().await;
    let selected = kept.into_iter().filter_map(|row| {
        let runtime = row.specification.runtime?;
        Some((row.generation, runtime.source_commit))
    });
    Ok(selected.collect())
}
