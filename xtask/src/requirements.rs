//! `cargo xtask requirements`: what the last test run proves.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::ledger::catalogue::{Catalogue, Entry};
use crate::ledger::junit::Report;
use crate::ledger::proof::Proof;
use crate::ledger::table;
use crate::marks::Sources;
use crate::workspace::{self, Metadata};

/// The report of nextest's `ci` profile. nextest takes the folder from its own settings, below the root, wherever
/// cargo puts its output.
pub(crate) fn report_path() -> PathBuf {
    workspace::root().join("target/nextest/ci/junit.xml")
}

/// Reports of other runners (console, host scripts), all of `*.xml`.
pub(crate) fn other_reports(metadata: &Metadata) -> PathBuf {
    metadata.target_directory.join("xtask/reports")
}

/// Present while the reports are those of a full run.
pub(crate) fn full_run_note(metadata: &Metadata) -> PathBuf {
    metadata.target_directory.join("xtask/full-run")
}

pub(crate) fn run() -> Result<()> {
    let metadata = workspace::metadata()?;
    let full = full_run_note(&metadata).exists();
    evaluate(&metadata, full)?;
    if !full {
        println!(
            "{} is unchanged: only a full run (`cargo xtask test`) writes it",
            table::PATH
        );
    }
    Ok(())
}

/// Checks the marks, prints the count proven per group and, after a full run, writes the table.
pub(crate) fn evaluate(metadata: &Metadata, full: bool) -> Result<()> {
    let root = workspace::root();
    let catalogue = Catalogue::read(root)?;
    let sources = crate::marks::read(metadata)?;
    refuse(&problems(&catalogue, &sources))?;
    let report = read_reports(metadata)?;
    let proof = Proof::of(&sources.marks, &report);
    if full {
        let path = root.join(table::PATH);
        let text = table::render(&catalogue, &proof);
        // An unchanged file keeps its time, so that nothing is rebuilt because of it.
        if std::fs::read_to_string(&path).ok().as_deref() != Some(text.as_str()) {
            std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    print_groups(
        "requirements",
        &catalogue.requirements,
        &catalogue.capabilities,
        &proof,
    );
    print_groups("invariants", &catalogue.invariants, &catalogue.subjects, &proof);
    if full {
        refuse(&proof.absent)?;
    }
    Ok(())
}

/// What is wrong with the marks themselves, whatever ran.
pub(crate) fn problems(catalogue: &Catalogue, sources: &Sources) -> Vec<String> {
    let unknown = sources.marks.iter().filter(|mark| !catalogue.knows(&mark.id));
    let unknown = unknown.map(|mark| {
        let file = if mark.id.starts_with("INV-") {
            "invariants.toml"
        } else {
            "requirements.toml"
        };
        format!(
            "{}:{}: {} is not in {file}: correct the id",
            mark.file.display(),
            mark.line,
            mark.id
        )
    });
    sources.problems.iter().cloned().chain(unknown).collect()
}

fn refuse(problems: &[String]) -> Result<()> {
    for problem in problems {
        println!("    {problem}");
    }
    match problems.len() {
        0 => Ok(()),
        1 => bail!("one mark is wrong"),
        count => bail!("{count} marks are wrong"),
    }
}

/// What nextest ran.
pub(crate) fn read_report() -> Result<Report> {
    let path = report_path();
    let text = std::fs::read_to_string(&path).with_context(|| {
        format!(
            "there is no test report in {}: run `cargo xtask test` first",
            path.display()
        )
    })?;
    Report::parse(&text)
}

/// What all runners ran.
fn read_reports(metadata: &Metadata) -> Result<Report> {
    let mut report = read_report()?;
    for path in xml_files(&other_reports(metadata)) {
        report.merge(Report::parse(&workspace::read(&path)?)?);
    }
    Ok(report)
}

fn xml_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    let mut files: Vec<PathBuf> = entries
        .filter(|path| path.extension().is_some_and(|extension| extension == "xml"))
        .collect();
    files.sort();
    files
}

fn print_groups(title: &str, entries: &[Entry], groups: &[String], proof: &Proof) {
    let is_proven = |entry: &&Entry| !proof.tests(&entry.id).is_empty();
    println!(
        "    {title}: {} of {} proven",
        entries.iter().filter(is_proven).count(),
        entries.len()
    );
    for group in groups {
        let of_group = || entries.iter().filter(|entry| entry.group == *group);
        println!(
            "    {:>4} of {:<4} {group}",
            of_group().filter(is_proven).count(),
            of_group().count()
        );
    }
}
