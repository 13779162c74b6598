//! The marks of one Rust file.

use super::lexer::{Kind, Token, tokens};

/// What one file holds; names are relative to the file's own module.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct File {
    pub(super) marks: Vec<Found>,
    pub(super) ignored: Vec<(Vec<String>, String, String)>,
    pub(super) modules: Vec<Module>,
    /// (line, what is wrong)
    pub(super) problems: Vec<(usize, String)>,
}

/// A `mod name;` and the inline modules around it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Module {
    pub(super) inside: Vec<String>,
    pub(super) name: String,
    pub(super) path: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) id: String,
    pub(super) line: usize,
    pub(super) inside: Vec<String>,
    pub(super) item: Item,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Item {
    Test(String),
    Case {
        test: String,
        number: usize,
        description: Option<String>,
    },
    Named(String),
}

pub(super) fn has_marks(source: &str) -> bool {
    tokens(source)
        .iter()
        .any(|token| matches!(&token.kind, Kind::Comment(text) if super::ids(text).is_some()))
}

pub(super) fn parse(source: &str) -> File {
    let tokens = tokens(source);
    let mut parser = Parser {
        tokens: &tokens,
        at: 0,
        scopes: Vec::new(),
        opener: None,
        pending: Pending::default(),
        file: File::default(),
    };
    while parser.at < tokens.len() {
        parser.step();
    }
    parser.refuse_pending();
    parser.file
}

enum Scope {
    Module(String),
    /// The body of a test: marks in it are the test's.
    Test(String),
    MacroCall,
    MacroRules,
    Other,
}

/// Marks and attributes seen since the last item.
#[derive(Default)]
struct Pending {
    marks: Vec<(String, usize)>,
    /// Marks above the test attribute.
    whole: Vec<(String, usize)>,
    /// Marks that stood directly above a `#[case]`: (id, line, number, description).
    cases: Vec<(String, usize, usize, Option<String>)>,
    case_count: usize,
    is_test: bool,
    ignored: Option<String>,
    path: Option<String>,
    attributes: bool,
}

struct Parser<'a> {
    tokens: &'a [Token],
    at: usize,
    /// One per open brace, bracket or parenthesis.
    scopes: Vec<Scope>,
    /// What the next brace at this depth of `scopes` opens.
    opener: Option<(Scope, usize)>,
    pending: Pending,
    file: File,
}

impl Parser<'_> {
    fn peek(&self, ahead: usize) -> Option<&Token> {
        self.tokens.get(self.at + ahead)
    }

    fn word(&self, ahead: usize) -> Option<&str> {
        self.peek(ahead).and_then(Token::word)
    }

    fn is(&self, ahead: usize, sign: char) -> bool {
        self.peek(ahead).is_some_and(|token| token.is(sign))
    }

    fn inside(&self) -> Vec<String> {
        let modules = self.scopes.iter().filter_map(|scope| match scope {
            Scope::Module(name) => Some(name.clone()),
            _ => None,
        });
        modules.collect()
    }

    fn test_around(&self) -> Option<String> {
        self.scopes.iter().find_map(|scope| match scope {
            Scope::Test(name) => Some(name.clone()),
            _ => None,
        })
    }

    fn in_macro_rules(&self) -> bool {
        self.scopes.iter().any(|scope| matches!(scope, Scope::MacroRules))
    }

    fn open_next(&mut self, scope: Scope) {
        self.opener = Some((scope, self.scopes.len()));
    }

    fn step(&mut self) {
        let Some(token) = self.peek(0) else { return };
        let line = token.line;
        match &token.kind {
            Kind::Comment(text) => {
                match super::ids(text) {
                    Some(Ok(ids)) => self.marks(ids, line),
                    Some(Err(problem)) => self.file.problems.push((line, problem)),
                    None => {}
                }
                self.at += 1;
            }
            Kind::Sign('#') if self.is(1, '[') => self.attribute(2),
            Kind::Sign('#') if self.is(1, '!') && self.is(2, '[') => self.attribute(3),
            Kind::Sign('{' | '(' | '[') => {
                let opens = token.is('{')
                    && self
                        .opener
                        .as_ref()
                        .is_some_and(|(_, depth)| *depth == self.scopes.len());
                let opened = if opens { self.opener.take() } else { None };
                self.scopes.push(opened.map_or(Scope::Other, |(scope, _)| scope));
                self.at += 1;
            }
            Kind::Sign('}' | ')' | ']') => {
                self.refuse_pending();
                self.scopes.pop();
                self.at += 1;
            }
            Kind::Sign(';') => {
                // A function without a body. The semicolon of an array type stands deeper.
                self.opener = self
                    .opener
                    .take()
                    .filter(|(_, depth)| *depth != self.scopes.len());
                self.at += 1;
            }
            Kind::Word(word) => self.item(&word.clone(), line),
            Kind::Text(_) | Kind::Other => {
                self.refuse_pending_marks();
                self.at += 1;
            }
            Kind::Sign(_) => self.at += 1,
        }
    }

    fn marks(&mut self, ids: Vec<String>, line: usize) {
        if let Some(test) = self.test_around() {
            let inside = self.inside();
            self.file.marks.extend(ids.into_iter().map(|id| Found {
                id,
                line,
                inside: inside.clone(),
                item: Item::Test(test.clone()),
            }));
        } else {
            self.pending.marks.extend(ids.into_iter().map(|id| (id, line)));
        }
    }

    /// Reads an attribute whose brackets' content begins `ahead` tokens from here.
    fn attribute(&mut self, ahead: usize) {
        let start = self.at + ahead;
        let mut depth = 1;
        let mut end = start;
        while end < self.tokens.len() && depth > 0 {
            match self.tokens[end].kind {
                Kind::Sign('[') => depth += 1,
                Kind::Sign(']') => depth -= 1,
                _ => {}
            }
            end += 1;
        }
        let content = &self.tokens[start..end.saturating_sub(1).max(start)];
        self.at = end;
        if self.test_around().is_some() {
            return;
        }
        let path: Vec<&str> = content
            .iter()
            .take_while(|token| !token.is('(') && !token.is('='))
            .filter_map(Token::word)
            .collect();
        let first_text = content.iter().find_map(|token| match &token.kind {
            Kind::Text(text) => Some(text.clone()),
            _ => None,
        });
        match path.as_slice() {
            ["case", description @ ..] => {
                self.pending.case_count += 1;
                let description = description.first().map(|name| (*name).to_owned());
                let number = self.pending.case_count;
                let marks = std::mem::take(&mut self.pending.marks);
                self.pending.cases.extend(
                    marks
                        .into_iter()
                        .map(|(id, line)| (id, line, number, description.clone())),
                );
                // An rstest case makes its function a test even where `#[rstest]` stands below it.
                self.pending.is_test = true;
            }
            ["ignore"] => self.pending.ignored = Some(first_text.unwrap_or_default()),
            ["path"] => self.pending.path = first_text,
            [.., "test" | "rstest"] => {
                self.pending.is_test = true;
                // What stands above the test's own attribute is the whole test's, even when a case follows.
                let marks = std::mem::take(&mut self.pending.marks);
                self.pending.whole.extend(marks);
            }
            _ => {}
        }
        self.pending.attributes = true;
    }

    fn item(&mut self, word: &str, line: usize) {
        match word {
            "pub" if self.is(1, '(') => {
                while !self.is(0, ')') && self.peek(0).is_some() {
                    self.at += 1;
                }
                self.at += 1;
            }
            "pub" | "async" | "unsafe" | "extern" | "const" if self.leads_to_fn() => self.at += 1,
            "fn" => self.function(line),
            "mod" if self.word(1).is_some() => self.module(),
            "macro_rules" if self.is(1, '!') => {
                self.refuse_pending();
                self.open_next(Scope::MacroRules);
                self.at += 3;
            }
            _ if !self.pending.marks.is_empty()
                && matches!(self.scopes.last(), Some(Scope::MacroCall))
                && !self.pending.attributes =>
            {
                let inside = self.inside();
                for (id, line) in std::mem::take(&mut self.pending.marks) {
                    self.file.marks.push(Found {
                        id,
                        line,
                        inside: inside.clone(),
                        item: Item::Named(word.to_owned()),
                    });
                }
                self.at += 1;
            }
            _ if self.is(1, '!')
                && self
                    .peek(2)
                    .is_some_and(|token| token.is('{') || token.is('(') || token.is('[')) =>
            {
                self.refuse_pending();
                self.scopes.push(Scope::MacroCall);
                self.at += 3;
            }
            _ => {
                self.refuse_pending();
                self.at += 1;
            }
        }
    }

    /// Whether only further qualifiers stand between here and `fn`.
    fn leads_to_fn(&self) -> bool {
        let mut ahead = 1;
        loop {
            match self.peek(ahead) {
                Some(Token {
                    kind: Kind::Text(_), ..
                }) => ahead += 1,
                Some(token) => match token.word() {
                    Some("async" | "unsafe" | "extern" | "const") => ahead += 1,
                    Some("fn") => return true,
                    _ => return false,
                },
                None => return false,
            }
        }
    }

    fn function(&mut self, line: usize) {
        let inside = self.inside();
        let Some(name) = self.word(1).map(str::to_owned) else {
            // `fn $name` in a macro, or a function pointer type.
            if [&self.pending.marks, &self.pending.whole]
                .iter()
                .any(|list| !list.is_empty())
                || !self.pending.cases.is_empty()
            {
                self.pending = Pending::default();
                let text =
                    "a mark on a test whose name a macro makes: mark the case where the macro is called"
                        .to_owned();
                self.file.problems.push((line, text));
            }
            self.pending = Pending::default();
            self.at += 1;
            return;
        };
        let pending = std::mem::take(&mut self.pending);
        let item = if pending.is_test && !self.in_macro_rules() {
            Item::Test(name.clone())
        } else {
            Item::Named(name.clone())
        };
        for (id, line) in pending.whole.into_iter().chain(pending.marks) {
            self.file.marks.push(Found {
                id,
                line,
                inside: inside.clone(),
                item: item.clone(),
            });
        }
        for (id, line, number, description) in pending.cases {
            let item = Item::Case {
                test: name.clone(),
                number,
                description,
            };
            self.file.marks.push(Found {
                id,
                line,
                inside: inside.clone(),
                item,
            });
        }
        if let Some(why) = pending.ignored {
            self.file.ignored.push((inside, name.clone(), why));
        }
        if pending.is_test {
            self.open_next(Scope::Test(name));
        }
        self.at += 2;
    }

    fn module(&mut self) {
        self.refuse_pending_marks();
        let name = self.word(1).unwrap_or_default().to_owned();
        if self.is(2, '{') {
            self.open_next(Scope::Module(name));
        } else {
            let path = self.pending.path.take();
            self.file.modules.push(Module {
                inside: self.inside(),
                name,
                path,
            });
        }
        self.pending = Pending::default();
        self.at += 2;
    }

    fn refuse_pending(&mut self) {
        self.refuse_pending_marks();
        self.pending = Pending::default();
    }

    fn refuse_pending_marks(&mut self) {
        let whole = std::mem::take(&mut self.pending.whole);
        for (id, line) in whole.into_iter().chain(std::mem::take(&mut self.pending.marks)) {
            self.file.problems.push((
                line,
                format!("the mark {id} stands above no test: move it directly above one"),
            ));
        }
    }
}

#[cfg(test)]
mod tests;
