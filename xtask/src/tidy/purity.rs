//! Pure crates name no clock, no I/O, no async and no SQL crate.
//!
//! The whole control plane runs in a seeded simulation only while its decisions depend on nothing but their arguments.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::marks::lexer::{Kind, Token, tokens};
use crate::workspace::{Metadata, by_name, read};

const PURE: &[&str] = &["oac-model", "oac-proxy", "oac-wire", "oac-peer", "oac-lifecycle"];

/// Crates that bring what the rule forbids, by their names in Cargo.toml.
const CRATES: &[&str] = &[
    "tokio",
    "tokio-util",
    "async-std",
    "smol",
    "futures",
    "futures-util",
    "async-trait",
    "axum",
    "hyper",
    "reqwest",
    "bollard",
    "sqlx",
    "sea-orm",
    "rusqlite",
    "postgres",
    "diesel",
    "rustix",
    "nix",
];

/// Paths that no pure source names, and why.
const PATHS: &[(&str, &str)] = &[
    ("tokio", "it is async"),
    ("sqlx", "SQL lives in the store"),
    ("sea_orm", "SQL lives in the store"),
    ("std::net", "it is I/O"),
    ("std::fs", "it is I/O"),
    ("std::process", "it is I/O"),
    ("std::thread", "it is concurrency"),
    ("Instant::now", "`now` is an argument"),
    ("SystemTime::now", "`now` is an argument"),
    ("Timestamp::now", "`now` is an argument"),
    ("Zoned::now", "`now` is an argument"),
];

pub(super) fn check(root: &Path, metadata: &Metadata, files: &[PathBuf]) -> Result<Vec<String>> {
    let packages = by_name(metadata);
    let mut problems = Vec::new();
    for name in PURE {
        let Some(package) = packages.get(name) else {
            continue;
        };
        for dependency in package
            .dependencies
            .iter()
            .filter(|dependency| dependency.kind.as_deref() != Some("dev"))
        {
            if CRATES.contains(&dependency.name.as_str()) {
                problems.push(format!(
                    "{name} is pure and depends on {}: remove it",
                    dependency.name
                ));
            }
        }
        let source = package
            .folder()
            .strip_prefix(root)
            .unwrap_or(package.folder())
            .join("src");
        for file in files
            .iter()
            .filter(|file| file.starts_with(&source) && file.extension().is_some_and(|e| e == "rs"))
            // A program of a pure crate is a shell around it.
            .filter(|file| !file.starts_with(source.join("bin")))
        {
            for (line, named, why) in impurities(&read(&root.join(file))?) {
                problems.push(format!(
                    "{}:{line}: {name} is pure and names {named}: {why}",
                    file.display()
                ));
            }
        }
    }
    Ok(problems)
}

/// Forbidden paths in `source`: line, what, why. `use` lists are spelled out, so `use std::{fs, net}` hides nothing.
fn impurities(source: &str) -> Vec<(usize, String, &'static str)> {
    let tokens: Vec<Token> = tokens(source)
        .into_iter()
        .filter(|token| !matches!(token.kind, Kind::Comment(_)))
        .collect();
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if tokens[at].word() == Some("async")
            || (tokens[at].is('.') && tokens.get(at + 1).and_then(Token::word) == Some("await"))
        {
            found.push((tokens[at].line, "async".to_owned(), "it is async"));
            at += 2;
        } else if tokens[at].word() == Some("use") {
            let (paths, next) = use_tree(&tokens, at + 1, &[]);
            for (line, path) in paths {
                found.extend(forbidden(&path).map(|(named, why)| (line, named, why)));
            }
            at = next;
        } else if tokens[at].word().is_some() {
            let (path, next) = path(&tokens, at);
            found.extend(forbidden(&path).map(|(named, why)| (tokens[at].line, named, why)));
            at = next;
        } else {
            at += 1;
        }
    }
    found
}

fn is_separator(tokens: &[Token], at: usize) -> bool {
    tokens.get(at).is_some_and(|token| token.is(':')) && tokens.get(at + 1).is_some_and(|token| token.is(':'))
}

/// The path that begins at `at`, and where it ends.
fn path(tokens: &[Token], mut at: usize) -> (Vec<String>, usize) {
    let mut path = Vec::new();
    while let Some(word) = tokens.get(at).and_then(Token::word) {
        path.push(word.to_owned());
        at += 1;
        if !is_separator(tokens, at) || tokens.get(at + 2).and_then(Token::word).is_none() {
            break;
        }
        at += 2;
    }
    (path, at)
}

/// Every path of a use tree, and where the tree ends.
fn use_tree(tokens: &[Token], mut at: usize, before: &[String]) -> (Vec<(usize, Vec<String>)>, usize) {
    let mut here = before.to_vec();
    let mut found = Vec::new();
    let line = tokens.get(at).map_or(0, |token| token.line);
    while let Some(token) = tokens.get(at) {
        if let Some(word) = token.word() {
            if word == "as" {
                at += 1;
            } else {
                here.push(word.to_owned());
            }
            at += 1;
        } else if is_separator(tokens, at) {
            at += 2;
        } else if token.is('*') {
            at += 1;
        } else if token.is('{') {
            at += 1;
            while tokens.get(at).is_some_and(|token| !token.is('}')) {
                let (inner, next) = use_tree(tokens, at, &here);
                found.extend(inner);
                at = if tokens.get(next).is_some_and(|token| token.is(',')) {
                    next + 1
                } else {
                    next.max(at + 1)
                };
                // `next` may stand on the closing brace, which ends this list.
                if tokens.get(next).is_some_and(|token| token.is('}')) {
                    at = next;
                }
            }
            return (found, at + 1);
        } else {
            break;
        }
    }
    if here.len() > before.len() {
        found.push((line, here));
    }
    (found, at)
}

fn forbidden(path: &[String]) -> Option<(String, &'static str)> {
    let names = |wanted: &str| {
        let wanted: Vec<&str> = wanted.split("::").collect();
        let first_upper = wanted[0].starts_with(|sign: char| sign.is_ascii_uppercase());
        // A type may be reached through any path; a crate or module stands at the beginning.
        let places = if first_upper { path.len() } else { 1 };
        (0..places)
            .any(|at| path.len() >= at + wanted.len() && wanted.iter().zip(&path[at..]).all(|(a, b)| a == b))
    };
    PATHS
        .iter()
        .find(|(wanted, _)| names(wanted))
        .map(|(wanted, why)| ((*wanted).to_owned(), *why))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(source: &str) -> Vec<String> {
        impurities(source)
            .into_iter()
            .map(|(_, named, _)| named)
            .collect()
    }

    #[test]
    fn every_way_to_name_the_outside_is_found() {
        for (source, expected) in [
            ("use std::fs;", "std::fs"),
            ("use std::{collections::BTreeMap, net::IpAddr};", "std::net"),
            ("use std::{fmt, fs::{self, File}};", "std::fs"),
            ("fn f() { let _ = std::fs::read(\"x\"); }", "std::fs"),
            ("fn f() { let _ = Instant::now(); }", "Instant::now"),
            (
                "fn f() { let _ = std::time::SystemTime::now(); }",
                "SystemTime::now",
            ),
            ("use tokio::sync::mpsc;", "tokio"),
            ("fn f(x: sqlx::Row) {}", "sqlx"),
            ("async fn f() {}", "async"),
            ("fn f() { x.await }", "async"),
        ] {
            assert!(
                named(source).iter().any(|found| found == expected),
                "{source}: {:?}",
                named(source)
            );
        }
    }

    #[test]
    fn comments_strings_and_other_names_are_no_impurity() {
        let source = "//! Never tokio, never std::fs.
            use std::{fmt, collections::{BTreeMap, BTreeSet}, time::Duration as D};
            use crate::net::Network; use super::{fs_like, a::b};
            /// `Instant::now`
            fn now(instant: Instant) -> &'static str { \"std::net tokio\" }
            fn g() { let fs = 1; self.net.now(); crate::fs::x(); }";
        assert_eq!(named(source), [""; 0]);
    }

    #[test]
    fn the_line_is_that_of_the_name() {
        assert_eq!(
            impurities("\n\nuse std::fs;").first().map(|found| found.0),
            Some(3)
        );
    }
}
