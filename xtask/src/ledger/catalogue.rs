//! `requirements.toml` and `invariants.toml`: every id that a mark may name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

/// All ids in their documents' order.
#[derive(Debug)]
pub(crate) struct Catalogue {
    pub(crate) requirements: Vec<Entry>,
    pub(crate) invariants: Vec<Entry>,
    /// The requirements' groups in the order they are built in.
    pub(crate) capabilities: Vec<String>,
    /// The invariants' subjects in the order of the design.
    pub(crate) subjects: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) id: String,
    pub(crate) text: String,
    /// A capability for a requirement, the design document's subject for an invariant.
    pub(crate) group: String,
}

#[derive(Deserialize)]
struct RequirementFile {
    req: Vec<Requirement>,
    group: Vec<Group>,
}

#[derive(Deserialize)]
struct Requirement {
    id: String,
    text: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    name: String,
    ids: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InvariantFile {
    inv: Vec<Invariant>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Invariant {
    id: String,
    subject: String,
    text: String,
}

impl Catalogue {
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let read = |name: &str| crate::workspace::read(&root.join(name));
        Self::parse(&read("requirements.toml")?, &read("invariants.toml")?)
    }

    /// Refuses a repeated id, a requirement in no group or in two, and a group that names an unknown one.
    pub(crate) fn parse(requirements: &str, invariants: &str) -> Result<Self> {
        let file: RequirementFile =
            toml::from_str(requirements).context("requirements.toml is not readable")?;
        let mut groups: BTreeMap<&str, &str> = BTreeMap::new();
        for group in &file.group {
            for id in &group.ids {
                if groups.insert(id, &group.name).is_some() {
                    bail!("requirements.toml: {id} is in two groups");
                }
            }
        }
        let mut requirements = Vec::new();
        for requirement in &file.req {
            let Some(group) = groups.remove(requirement.id.as_str()) else {
                bail!("requirements.toml: {} is repeated or in no group", requirement.id);
            };
            let entry = Entry {
                id: requirement.id.clone(),
                text: requirement.text.clone(),
                group: group.to_owned(),
            };
            requirements.push(entry);
        }
        if let Some(id) = groups.keys().next() {
            bail!("requirements.toml: a group names {id}, which is no requirement");
        }
        let capabilities = file.group.iter().map(|group| group.name.clone()).collect();
        let file: InvariantFile = toml::from_str(invariants).context("invariants.toml is not readable")?;
        let mut seen = BTreeSet::new();
        for invariant in &file.inv {
            if !seen.insert(&invariant.id) {
                bail!("invariants.toml: {} is repeated", invariant.id);
            }
        }
        let entry = |invariant: &Invariant| Entry {
            id: invariant.id.clone(),
            text: invariant.text.clone(),
            group: invariant.subject.clone(),
        };
        let mut subjects: Vec<String> = Vec::new();
        for invariant in &file.inv {
            if subjects.last() != Some(&invariant.subject) {
                subjects.push(invariant.subject.clone());
            }
        }
        Ok(Self {
            requirements,
            invariants: file.inv.iter().map(entry).collect(),
            capabilities,
            subjects,
        })
    }

    pub(crate) fn knows(&self, id: &str) -> bool {
        self.requirements
            .iter()
            .chain(&self.invariants)
            .any(|entry| entry.id == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INVARIANTS: &str = "[[inv]]\nid = \"INV-C1\"\nsubject = \"core\"\ntext = \"One writes.\"\n";

    fn requirements(groups: &str) -> String {
        format!("[[req]]\nid = \"G-001\"\ntext = \"a\"\n[[req]]\nid = \"G-002\"\ntext = \"b\"\n{groups}")
    }

    #[test]
    fn each_requirement_is_in_exactly_one_group() {
        let whole = requirements("[[group]]\nname = \"one\"\nids = [\"G-001\", \"G-002\"]\n");
        let catalogue = Catalogue::parse(&whole, INVARIANTS).expect("readable");
        assert!(catalogue.knows("G-002") && catalogue.knows("INV-C1") && !catalogue.knows("G-003"));
        for groups in [
            "[[group]]\nname = \"one\"\nids = [\"G-001\"]\n",
            "[[group]]\nname = \"one\"\nids = [\"G-001\", \"G-002\", \"G-003\"]\n",
            "[[group]]\nname = \"one\"\nids = [\"G-001\", \"G-002\"]\n[[group]]\nname = \"two\"\nids = [\"G-001\"]\n",
        ] {
            assert!(
                Catalogue::parse(&requirements(groups), INVARIANTS).is_err(),
                "{groups}"
            );
        }
    }

    #[test]
    fn the_checked_in_files_are_readable() {
        let catalogue = Catalogue::read(crate::workspace::root()).expect("readable");
        assert_eq!(catalogue.requirements.len(), 458);
        assert!(catalogue.invariants.len() > 200);
    }
}
