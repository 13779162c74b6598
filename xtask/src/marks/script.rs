//! The marks of TypeScript tests and of host scripts.
//!
//! There a test is known by its file and its title: the string of the next `test(` or `it(`, or the name of the next
//! shell function. Their runners report the file as the suite.

use std::path::Path;

use super::{Mark, Sources, Subject};

pub(super) fn read(file: &Path, text: &str, sources: &mut Sources) {
    let shell = file.extension().is_some_and(|extension| extension == "sh");
    let mut pending: Vec<(String, usize)> = Vec::new();
    for (number, line) in text
        .lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line.trim()))
    {
        let comment = if shell {
            line.strip_prefix('#')
        } else {
            line.strip_prefix("//")
        };
        if let Some(comment) = comment {
            match super::ids(comment) {
                Some(Ok(ids)) => pending.extend(ids.into_iter().map(|id| (id, number))),
                Some(Err(problem)) => sources
                    .problems
                    .push(format!("{}:{number}: {problem}", file.display())),
                None => {}
            }
        } else if !pending.is_empty() && !line.is_empty() {
            let title = if shell {
                shell_function(line)
            } else {
                script_title(line)
            };
            for (id, line) in pending.drain(..) {
                match &title {
                    Some(name) => sources.marks.push(Mark {
                        id,
                        subject: Subject::Test {
                            suite: file.display().to_string(),
                            name: name.clone(),
                        },
                        file: file.to_path_buf(),
                        line,
                    }),
                    None => sources.problems.push(format!(
                        "{}:{line}: the mark {id} stands above no test: move it directly above one",
                        file.display()
                    )),
                }
            }
        }
    }
    for (id, line) in pending {
        sources.problems.push(format!(
            "{}:{line}: the mark {id} stands above no test: move it directly above one",
            file.display()
        ));
    }
}

fn shell_function(line: &str) -> Option<String> {
    let (name, rest) = line.split_once("()")?;
    let named = !name.trim().is_empty()
        && name
            .trim()
            .chars()
            .all(|sign| sign.is_alphanumeric() || sign == '_');
    (named && rest.trim_start().starts_with('{')).then(|| name.trim().to_owned())
}

fn script_title(line: &str) -> Option<String> {
    let (call, rest) = line.split_once('(')?;
    if !matches!(call.split('.').next(), Some("test" | "it")) {
        return None;
    }
    let quote = rest
        .chars()
        .next()
        .filter(|sign| matches!(sign, '"' | '\'' | '`'))?;
    rest[1..].split(quote).next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subjects(file: &str, text: &str) -> (Vec<String>, usize) {
        let mut sources = Sources::default();
        read(Path::new(file), text, &mut sources);
        let name = |mark: &Mark| match &mark.subject {
            Subject::Test { suite, name } => format!("{} {suite} {name}", mark.id),
            other => format!("{other:?}"),
        };
        (sources.marks.iter().map(name).collect(), sources.problems.len())
    }

    #[test]
    fn a_mark_in_a_script_belongs_to_the_next_title_or_function() {
        let text = "// req: G-044\n// why\ntest(\"shows the command once\", async () => {\n// inv: INV-W1\n  it('x', f)";
        let expected = vec![
            "G-044 a.test.ts shows the command once".to_owned(),
            "INV-W1 a.test.ts x".to_owned(),
        ];
        assert_eq!(subjects("a.test.ts", text), (expected, 0));
        let text = "# req: G-036\ninstaller_refuses_an_ordinary_user() {\n  true\n}\n";
        assert_eq!(
            subjects("h.sh", text),
            (
                vec!["G-036 h.sh installer_refuses_an_ordinary_user".to_owned()],
                0
            )
        );
    }

    #[test]
    fn a_mark_above_anything_else_in_a_script_is_refused() {
        assert_eq!(
            subjects("a.ts", "// req: G-044\nconst a = 1;\n// req: G-045"),
            (vec![], 2)
        );
    }
}
