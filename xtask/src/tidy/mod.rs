//! `cargo xtask tidy`: the rules of the house that a compiler does not check.
//!
//! Each rule reads files and gives problems, one line each: where, what is wrong, what to do. Nothing is changed but,
//! with `--write`, the generated files.

mod architecture;
mod codes;
mod direction;
mod generated;
mod links;
mod lints;
mod names;
mod observe;
mod openings;
mod purity;
mod sizes;

use anyhow::{Result, bail};

use crate::ledger::catalogue::Catalogue;
use crate::ledger::table;
use crate::{marks, requirements, workspace};

pub(crate) fn run(write: bool) -> Result<()> {
    let root = workspace::root();
    let metadata = workspace::metadata()?;
    let files = workspace::files(root)?;
    let mut problems = purity::check(root, &metadata, &files)?;
    problems.extend(direction::check(&metadata));
    problems.extend(names::check(&files));
    problems.extend(lints::check(&metadata)?);
    problems.extend(openings::check(root, &files)?);
    problems.extend(sizes::check(root, &files)?);
    problems.extend(links::check(root, &files)?);
    problems.extend(codes::check(root, &files)?);
    problems.extend(observe::check(root, &files)?);
    problems.extend(generated::check(&metadata, write)?);
    let catalogue = Catalogue::read(root)?;
    let sources = marks::read(&metadata)?;
    problems.extend(requirements::problems(&catalogue, &sources));
    problems.extend(architecture::check(root, &sources.marks)?);
    match std::fs::read_to_string(root.join(table::PATH)) {
        Ok(text) => problems.extend(table::problems(&catalogue, &text)),
        Err(_) => problems.push(format!(
            "{} is missing: write it with `cargo xtask test`",
            table::PATH
        )),
    }
    for problem in &problems {
        println!("    {problem}");
    }
    match problems.len() {
        0 => Ok(()),
        1 => bail!("one rule is broken"),
        count => bail!("{count} rules are broken"),
    }
}
