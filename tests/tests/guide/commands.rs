//! The guide's commands are commands of the programs: each subcommand and each option that it shows exists, and each
//! option that exists is shown somewhere.

use clap::{Command, CommandFactory};

use super::pages;

/// What stands before a program when it is run as another account.
const RUNNERS: [&str; 2] = ["sudo", "runuser"];

fn programs() -> Vec<Command> {
    let mut programs = vec![
        oac_cli::Cli::command(),
        oac_core::command::CommandLine::command(),
        oac_node::command::CommandLine::command(),
    ];
    for program in &mut programs {
        // Global options reach every subcommand, and `help` is made.
        program.build();
    }
    programs
}

/// One line that a reader may copy, with where it stands.
struct Shown {
    place: String,
    words: Vec<String>,
}

/// Lines of fenced blocks, with what continues them, and spans of code.
fn shown() -> Vec<Shown> {
    let mut all = Vec::new();
    for (page, text) in pages() {
        let mut lines: Vec<(usize, String)> = Vec::new();
        let mut is_fenced = false;
        for (number, line) in text.lines().enumerate() {
            if line.trim_start().starts_with("```") {
                is_fenced = !is_fenced;
            } else if !is_fenced {
                let spans = line.split('`').skip(1).step_by(2);
                lines.extend(spans.map(|span| (number, span.to_owned())));
            } else if let (true, Some((_, before))) = (line.trim_start().starts_with('['), lines.last_mut()) {
                before.push_str(line);
            } else {
                lines.push((number, line.to_owned()));
            }
        }
        for (number, line) in lines {
            // What is set apart by blanks explains the command before it; a continuation begins with a bracket.
            let mut parts = line
                .trim()
                .split("   ")
                .map(str::trim)
                .filter(|part| !part.is_empty());
            let mut command = parts.next().unwrap_or_default().to_owned();
            for part in parts.filter(|part| part.starts_with('[')) {
                command.push(' ');
                command.push_str(part);
            }
            all.push(Shown {
                place: format!("{page}:{}", number + 1),
                words: command.split_whitespace().map(str::to_owned).collect(),
            });
        }
    }
    all
}

/// The words after `program` where `words` run it; more than once in a pipe.
fn runs<'a>(words: &'a [String], program: &str) -> Vec<&'a [String]> {
    let mut found = Vec::new();
    let starts = words.iter().enumerate().filter_map(|(at, _)| {
        let ends = at == 0 || ["|", "&&", ";"].contains(&words[at - 1].as_str());
        ends.then_some(at)
    });
    for start in starts {
        let mut at = start;
        while let Some(word) = words.get(at) {
            at += match word.as_str() {
                "$" | "--" => 1,
                "-u" => 2,
                word if RUNNERS.contains(&word) => 1,
                _ => break,
            };
        }
        let is_run = |word: &String| word == program || word.ends_with(&format!("=$({program}"));
        if words.get(at).is_some_and(is_run) {
            found.push(&words[at + 1..]);
        }
    }
    found
}

/// What is wrong with these words after the program's name.
fn fault(program: &Command, words: &[String]) -> Option<String> {
    let mut command = program;
    let mut words = words.iter().map(|word| word.trim_matches(['[', ']', '(', ')']));
    while let Some(word) = words.next() {
        if word == "--" {
            return None;
        }
        if let Some(option) = word.strip_prefix("--") {
            let (name, has_value) = option
                .split_once('=')
                .map_or((option, false), |(name, _)| (name, true));
            let known = command
                .get_arguments()
                .find(|known| known.get_long() == Some(name));
            let Some(known) = known else {
                return Some(format!("`{}` has no --{name}", command.get_name()));
            };
            if known.get_action().takes_values() && !has_value {
                words.next();
            }
        } else if command.has_subcommands() && !word.is_empty() {
            match command.find_subcommand(word) {
                Some(_) if word == "help" => return None,
                Some(inner) => command = inner,
                // A place for any of them.
                None if word.starts_with(['.', '…', '<']) || word.chars().all(char::is_uppercase) => {
                    return None;
                }
                None => return Some(format!("`{}` has no command {word}", command.get_name())),
            }
        }
    }
    None
}

#[test]
fn every_command_that_the_guide_shows_is_one_of_its_program() {
    let shown = shown();
    let mut faults = Vec::new();
    for program in programs() {
        let name = program.get_name();
        let mut count = 0;
        for Shown { place, words } in &shown {
            for run in runs(words, name) {
                count += 1;
                faults.extend(fault(&program, run).map(|fault| format!("{place}: {fault}")));
            }
        }
        assert!(count >= 5, "the guide's commands of {name} are found: {count}");
    }
    assert_eq!(faults, [""; 0]);
}

#[test]
fn every_option_of_a_program_is_shown_somewhere() {
    fn options(command: &Command, path: &str, found: &mut Vec<(String, String)>) {
        // `generation` is what `oac-node run` starts by itself.
        if ["help", "generation"].contains(&command.get_name()) {
            return;
        }
        let path = format!("{path} {}", command.get_name());
        let own = command.get_arguments().filter(|option| !option.is_hide_set());
        let names = own
            .filter_map(clap::Arg::get_long)
            .filter(|name| !["help", "version"].contains(name));
        found.extend(names.map(|name| (path.clone(), format!("--{name}"))));
        for inner in command.get_subcommands() {
            options(inner, &path, found);
        }
    }
    let text: String = pages().into_iter().map(|(_, text)| text).collect();
    let is_shown = |option: &str| {
        let after = |rest: &str| !rest.starts_with(|c: char| c == '-' || c.is_ascii_alphanumeric());
        text.split(option).skip(1).any(after)
    };
    let mut all = Vec::new();
    for program in programs() {
        options(&program, "", &mut all);
    }
    let installer = oac_install::arguments::HELP.split_whitespace();
    let named = installer
        .map(|word| word.trim_matches(['[', ']']))
        .filter(|word| word.starts_with("--"));
    all.extend(named.map(|option| (" oac-node-install".to_owned(), option.to_owned())));
    assert!(all.len() > 40, "{all:?}");
    let missing: Vec<_> = all.iter().filter(|(_, option)| !is_shown(option)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn what_no_program_knows_is_found() {
    let programs = programs();
    let oac = &programs[0];
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let check = |line: &str| {
        let words = words(line);
        let runs = runs(&words, "oac");
        assert_eq!(runs.len(), 1, "{line}");
        fault(oac, runs[0])
    };
    for fine in [
        "oac --context staging node list",
        "$ S=$(oac session create --name=tutorial)",
        "printf x | oac session exec $S -- sort --reverse",
        "oac session logs S [TURN | --last] [--follow]",
        "oac node cordon | uncordon NODE",
    ] {
        assert_eq!(check(fine), None, "{fine}");
    }
    for wrong in [
        "oac nodes list",
        "oac node list --long",
        "sudo -u you oac deployment set --memory-mib 1",
    ] {
        assert!(check(wrong).is_some(), "{wrong}");
    }
    assert!(runs(&words("install -m 0755 oac /usr/local/bin/oac"), "oac").is_empty());
}
