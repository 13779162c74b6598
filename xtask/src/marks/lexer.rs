//! Rust source as tokens with lines: enough to tell code from comments and strings, and items from each other.
//!
//! A full parser would be the largest dependency of this program and would still not see into macros, where some of
//! the marked tests are. What is needed is far less: a word in a string is no use of a name, and a brace in a comment
//! closes nothing.

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    Word(String),
    Sign(char),
    /// A string, its text without quotes; escapes are left as they are.
    Text(String),
    /// A character, a number or a lifetime: nothing here looks into these.
    Other,
    /// A comment; the text after the slashes, for a doc comment with its third sign.
    Comment(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    /// Counted from 1.
    pub(crate) line: usize,
}

impl Token {
    pub(crate) fn word(&self) -> Option<&str> {
        match &self.kind {
            Kind::Word(word) => Some(word),
            _ => None,
        }
    }

    pub(crate) fn is(&self, sign: char) -> bool {
        self.kind == Kind::Sign(sign)
    }
}

/// Splits `source`; unterminated strings and comments end with the file.
pub(crate) fn tokens(source: &str) -> Vec<Token> {
    let mut lexer = Lexer {
        chars: source.chars().collect(),
        at: 0,
        line: 1,
        found: Vec::new(),
    };
    while lexer.step() {}
    lexer.found
}

struct Lexer {
    chars: Vec<char>,
    at: usize,
    line: usize,
    found: Vec<Token>,
}

impl Lexer {
    fn peek(&self, ahead: usize) -> char {
        self.chars.get(self.at + ahead).copied().unwrap_or('\0')
    }

    fn take(&mut self) -> char {
        let taken = self.peek(0);
        self.at += 1;
        if taken == '\n' {
            self.line += 1;
        }
        taken
    }

    fn push(&mut self, line: usize, kind: Kind) {
        self.found.push(Token { kind, line });
    }

    fn step(&mut self) -> bool {
        if self.at >= self.chars.len() {
            return false;
        }
        let line = self.line;
        match (self.peek(0), self.peek(1)) {
            ('/', '/') => {
                self.at += 2;
                let mut text = String::new();
                while self.at < self.chars.len() && self.peek(0) != '\n' {
                    text.push(self.take());
                }
                self.push(line, Kind::Comment(text));
            }
            ('/', '*') => self.block_comment(),
            ('"', _) => self.string(line, 0, false),
            ('\'', next) => self.quote(line, next),
            (first, _) if first.is_alphabetic() || first == '_' => self.word(line),
            (first, _) if first.is_ascii_digit() => {
                // `1..2` is a number, two dots and a number.
                while self.peek(0).is_alphanumeric()
                    || self.peek(0) == '_'
                    || (self.peek(0) == '.' && self.peek(1).is_ascii_digit())
                {
                    self.take();
                }
                self.push(line, Kind::Other);
            }
            (first, _) => {
                self.take();
                if !first.is_whitespace() {
                    self.push(line, Kind::Sign(first));
                }
            }
        }
        true
    }

    fn block_comment(&mut self) {
        let mut depth = 0;
        while self.at < self.chars.len() {
            match (self.peek(0), self.peek(1)) {
                ('/', '*') => {
                    depth += 1;
                    self.at += 2;
                }
                ('*', '/') => {
                    depth -= 1;
                    self.at += 2;
                    if depth == 0 {
                        return;
                    }
                }
                _ => {
                    self.take();
                }
            }
        }
    }

    /// A character literal, or a lifetime.
    fn quote(&mut self, line: usize, next: char) {
        self.take();
        if next == '\\' {
            self.take();
            self.take();
            while self.at < self.chars.len() && self.take() != '\'' {}
        } else if self.peek(1) == '\'' {
            self.take();
            self.take();
        }
        // A lifetime's name follows as a word of its own; nobody looks for one.
        self.push(line, Kind::Other);
    }

    fn word(&mut self, line: usize) {
        let mut word = String::new();
        while self.peek(0).is_alphanumeric() || self.peek(0) == '_' {
            word.push(self.take());
        }
        let prefix = matches!(word.as_str(), "r" | "b" | "br" | "c" | "cr");
        if prefix && self.peek(0) == '"' {
            return self.string(line, 0, word.contains('r'));
        }
        if prefix && word == "b" && self.peek(0) == '\'' {
            return self.quote(line, self.peek(1));
        }
        if prefix && word.contains('r') && self.peek(0) == '#' {
            let mut hashes = 0;
            while self.peek(hashes) == '#' {
                hashes += 1;
            }
            if self.peek(hashes) == '"' {
                self.at += hashes;
                return self.string(line, hashes, true);
            }
            if word == "r" && hashes == 1 {
                // A raw identifier: `r#type` is the name `type`.
                self.at += 1;
                return self.word(line);
            }
        }
        self.push(line, Kind::Word(word));
    }

    fn string(&mut self, line: usize, hashes: usize, raw: bool) {
        self.take();
        let mut text = String::new();
        while self.at < self.chars.len() {
            let taken = self.take();
            if taken == '\\' && !raw {
                text.push(taken);
                text.push(self.take());
            } else if taken == '"' && (0..hashes).all(|ahead| self.peek(ahead) == '#') {
                self.at += hashes;
                break;
            } else {
                text.push(taken);
            }
        }
        self.push(line, Kind::Text(text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(source: &str) -> Vec<String> {
        tokens(source)
            .iter()
            .filter_map(|token| token.word().map(str::to_owned))
            .collect()
    }

    #[test]
    fn names_in_comments_and_strings_are_no_words() {
        let source = "a /* tokio /* nested */ tokio */ b // tokio\n\"tokio \\\" tokio\" c r#\"tokio \" tokio\"# d b\"tokio\" e";
        assert_eq!(words(source), ["a", "b", "c", "d", "e"]);
    }

    #[test]
    fn a_lifetime_opens_no_string_and_a_quoted_brace_is_no_brace() {
        let found = tokens("fn f<'a>(x: &'a str) { let _ = ['{', '\\'', '\\u{7d}', b'}']; }");
        assert_eq!(found.iter().filter(|token| token.is('{')).count(), 1);
        assert_eq!(found.iter().filter(|token| token.is('}')).count(), 1);
    }

    #[test]
    fn a_raw_identifier_is_its_name_and_lines_are_counted_through_strings() {
        let found = tokens("r#type\n\"two\nlines\"\nlast");
        assert_eq!(found.first().and_then(Token::word), Some("type"));
        assert_eq!(found.last().map(|token| token.line), Some(4));
    }
}
