//! Every relative link and anchor in the documents resolves, and the guide's index names every page.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use anyhow::Result;

use crate::workspace::read;

pub(super) fn check(root: &Path, files: &[PathBuf]) -> Result<Vec<String>> {
    let mut pages = BTreeMap::new();
    for file in files
        .iter()
        .filter(|file| file.extension().is_some_and(|extension| extension == "md"))
    {
        pages.insert(file.clone(), Page::of(&read(&root.join(file))?));
    }
    let all: BTreeSet<&PathBuf> = files.iter().collect();
    let mut problems = Vec::new();
    for (file, page) in &pages {
        for (line, link) in &page.links {
            if let Some(problem) = broken(file, link, &pages, &all) {
                problems.push(format!("{}:{line}: the link `{link}` {problem}", file.display()));
            }
        }
    }
    problems.extend(unlisted(&pages));
    Ok(problems)
}

/// What of one document matters here.
struct Page {
    /// Targets of links and images, with their lines.
    links: Vec<(usize, String)>,
    anchors: BTreeSet<String>,
}

impl Page {
    fn of(text: &str) -> Self {
        let mut page = Self {
            links: Vec::new(),
            anchors: BTreeSet::new(),
        };
        let mut fence: Option<&str> = None;
        let mut used: BTreeMap<String, usize> = BTreeMap::new();
        for (number, line) in text.lines().enumerate().map(|(index, line)| (index + 1, line)) {
            let start = line.trim_start();
            if let Some(mark) = fence {
                if start.starts_with(mark) {
                    fence = None;
                }
                continue;
            }
            if let Some(mark) = ["```", "~~~"].into_iter().find(|mark| start.starts_with(mark)) {
                fence = Some(mark);
                continue;
            }
            let hashes = line.bytes().take_while(|byte| *byte == b'#').count();
            if (1..=6).contains(&hashes) && line[hashes..].starts_with(' ') {
                let slug = slug(line[hashes..].trim());
                let count = used.entry(slug.clone()).or_default();
                page.anchors.insert(if *count == 0 {
                    slug
                } else {
                    format!("{slug}-{count}")
                });
                *count += 1;
            }
            page.links
                .extend(links(&without_code(line)).into_iter().map(|link| (number, link)));
        }
        page
    }
}

/// A heading's anchor, as mdBook and GitHub make it.
fn slug(heading: &str) -> String {
    let mut text = String::new();
    let mut rest = heading;
    // A link in a heading counts with its text.
    while let Some((before, after)) = rest.split_once("](") {
        text.push_str(before);
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    text.push_str(rest);
    text.chars()
        .filter_map(|sign| match sign {
            sign if sign.is_alphanumeric() || sign == '_' || sign == '-' => {
                Some(sign.to_lowercase().next().unwrap_or(sign))
            }
            sign if sign.is_whitespace() => Some('-'),
            _ => None,
        })
        .collect()
}

fn without_code(line: &str) -> String {
    line.split('`')
        .enumerate()
        .map(|(index, part)| {
            if index % 2 == 0 {
                part.to_owned()
            } else {
                "`".repeat(2)
            }
        })
        .collect()
}

/// Targets of `[text](target)`, `![alt](target)` and `[name]: target`.
fn links(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = line;
    while let Some((_, after)) = rest.split_once("](") {
        let mut depth = 0;
        let end = after.char_indices().find(|(_, sign)| match sign {
            '(' => {
                depth += 1;
                false
            }
            ')' if depth > 0 => {
                depth -= 1;
                false
            }
            sign => *sign == ')',
        });
        let Some((end, _)) = end else { break };
        let target = after[..end].split_whitespace().next().unwrap_or_default();
        found.push(target.trim_start_matches('<').trim_end_matches('>').to_owned());
        rest = &after[end..];
    }
    if line.starts_with('[')
        && let Some((name, target)) = line.split_once("]: ")
        && !name[1..].contains(']')
    {
        found.extend(target.split_whitespace().next().map(str::to_owned));
    }
    found
}

fn broken(
    file: &Path,
    link: &str,
    pages: &BTreeMap<PathBuf, Page>,
    all: &BTreeSet<&PathBuf>,
) -> Option<String> {
    let external = ["http://", "https://", "mailto:"]
        .iter()
        .any(|start| link.starts_with(start));
    if external {
        return None;
    }
    let (path, anchor) = link
        .split_once('#')
        .map_or((link, None), |(path, anchor)| (path, Some(anchor)));
    if path.starts_with('/') {
        return Some("is absolute: make it relative to this file".into());
    }
    let target = if path.is_empty() {
        file.to_path_buf()
    } else {
        resolve(file, path)?
    };
    let is_folder = || all.iter().any(|file| file.starts_with(&target));
    if !all.contains(&target) && !is_folder() {
        return Some("leads nowhere: correct it or add the file".into());
    }
    let anchor = anchor?;
    match pages.get(&target) {
        Some(page) if page.anchors.contains(anchor) => None,
        Some(_) => Some(format!("names a heading that {} does not have", target.display())),
        None => Some("names a heading in something that is no document".into()),
    }
}

/// `path` seen from `file`; a path that leaves the repository stays unresolved and is reported as leading nowhere.
fn resolve(file: &Path, path: &str) -> Option<PathBuf> {
    let mut target = file.parent().map(Path::to_path_buf).unwrap_or_default();
    for part in Path::new(path).components() {
        match part {
            Component::Normal(name) => target.push(name),
            Component::ParentDir if target.parent().is_some() => {
                target.pop();
            }
            Component::ParentDir => return Some(PathBuf::from(path)),
            _ => {}
        }
    }
    Some(target)
}

/// mdBook leaves out what the summary does not name.
fn unlisted(pages: &BTreeMap<PathBuf, Page>) -> Vec<String> {
    let summary = Path::new("docs/SUMMARY.md");
    let Some(listed) = pages.get(summary) else {
        return vec!["docs/SUMMARY.md is missing: mdBook builds the guide from it".into()];
    };
    let targets: BTreeSet<PathBuf> = listed
        .links
        .iter()
        .filter_map(|(_, link)| resolve(summary, link.split('#').next()?))
        .collect();
    let missing =
        |page: &&PathBuf| page.starts_with("docs") && page.as_path() != summary && !targets.contains(*page);
    pages
        .keys()
        .filter(missing)
        .map(|page| {
            format!(
                "{}: docs/SUMMARY.md does not name it: add it there",
                page.display()
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn book(files: &[(&str, &str)]) -> Vec<String> {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
            std::fs::write(path, text).expect("a file");
        }
        let files = crate::workspace::files(folder.path()).expect("files");
        check(folder.path(), &files).expect("readable")
    }

    #[test]
    fn links_to_files_folders_and_headings_that_exist_are_fine() {
        let problems = book(&[
            (
                "README.md",
                "# A\n[guide](docs/a.md#set-it-up-1) [crates](docs) [web](https://example.org) ![x](docs/x.png)\n",
            ),
            ("docs/SUMMARY.md", "- [A](a.md)\n- [B](deep/b.md)\n"),
            (
                "docs/a.md",
                "# A: `code`, \"quotes\"\n## Set it up\n## Set it up\n[b](deep/b.md) [own](#a-code-quotes)\n```\n[no](link.md)\n```\n`[no](link.md)`\n",
            ),
            (
                "docs/deep/b.md",
                "[a](../a.md#set-it-up)\n[ref]: ../../README.md\n",
            ),
            ("docs/x.png", ""),
        ]);
        assert_eq!(problems, [""; 0]);
    }

    #[test]
    fn every_kind_of_broken_link_is_found() {
        let problems = book(&[
            ("docs/SUMMARY.md", "- [A](a.md)\n- [Gone](gone.md)\n"),
            (
                "docs/a.md",
                "# A\n[1](#nothing) [2](/etc/passwd) [3](../../x.md)\n[ref]: missing.md\n",
            ),
            ("docs/b.md", "# B\n"),
        ]);
        assert_eq!(problems.len(), 6, "{problems:#?}");
        assert!(
            problems
                .iter()
                .any(|problem| problem.starts_with("docs/a.md:2: the link `#nothing`")),
            "{problems:#?}"
        );
        assert!(
            problems
                .iter()
                .any(|problem| problem.starts_with("docs/b.md: docs/SUMMARY.md")),
            "{problems:#?}"
        );
    }

    #[test]
    fn no_summary_is_a_problem() {
        assert_eq!(book(&[("docs/a.md", "# A\n")]).len(), 1);
    }

    fn guide(page: &str) -> String {
        let text = read(&crate::workspace::root().join("docs").join(page)).expect("a page");
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    // req: G-130, G-131
    #[test]
    fn the_guide_warns_that_docker_mode_is_root_equivalent_and_asks_for_dedicated_hosts() {
        let page = guide("choose-a-backend.md");
        for sentence in [
            "Docker mode is root-equivalent.",
            "Membership in the `docker` group lets the node's account, and so anything that controls the node, act as \
             root on the host, and containers share the host's kernel.",
            "Add Docker nodes only on hosts that do nothing else.",
        ] {
            assert!(page.contains(sentence), "{sentence}");
        }
        // Who adds a node is led there.
        assert!(guide("nodes.md").contains("](choose-a-backend.md#docker)"));
    }

    // req: G-003
    #[test]
    fn every_page_and_contract_of_the_nodes_guide_is_there_and_linked_from_it_and_no_link_is_broken() {
        let root = crate::workspace::root();
        let pages = [
            ("choose-a-backend.md", "# Choose a sandbox backend"),
            ("sandbox-deployment.md", "# The sandbox deployment"),
            ("node-protocol.md", "# The node protocol"),
            ("public-address.md", "# Configure the public address"),
            ("workspace-storage.md", "# Set up workspace storage"),
            ("checkpoint-recovery.md", "# Checkpoint recovery across nodes"),
            (
                "private-endpoints.md",
                "# Sandboxes cannot reach a private endpoint",
            ),
            (
                "change-the-configuration.md",
                "# Change the sandbox configuration",
            ),
            ("reset.md", "# Reset the deployment"),
            ("core-api.md", "# The Core API"),
            ("checkpoint-transfer.md", "# Checkpoint transfer"),
            ("troubleshooting.md", "# Troubleshooting"),
        ];
        let of = |page: &str| Page::of(&read(&root.join("docs").join(page)).expect(page));
        for from in ["nodes.md", "index.md"] {
            let page = of(from);
            let links: BTreeSet<&str> = page.links.iter().map(|(_, link)| link.as_str()).collect();
            for (to, _) in pages {
                assert!(links.contains(to), "{from} does not link to {to}");
            }
            assert!(links.contains("troubleshooting.md#installer-messages"), "{from}");
        }
        for (page, title) in pages {
            let text = read(&root.join("docs").join(page)).expect(page);
            assert_eq!(text.lines().next(), Some(title), "{page}");
            // Something to read, also where a part is not built.
            assert!(text.len() > 1000, "{page}");
        }
        let files = crate::workspace::files(root).expect("files");
        assert_eq!(check(root, &files).expect("readable"), [""; 0]);
    }
}
