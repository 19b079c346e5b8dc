//! Correction of a fixed list of mistakes in JSON that a model wrote: one pass over the text.

use super::marks::{Tail, is_space};
use super::{ArgumentsEnd, Repaired};
use crate::json::escaped;
use crate::wire::rule::Rule;

/// Text on its way from what the model wrote to JSON.
struct Correction<'t> {
    rest: &'t str,
    json: String,
    /// Closing brackets that are due, innermost last.
    due: Vec<char>,
    /// Last character that is not white space; `"` after a string.
    last: char,
    rules: Vec<Rule>,
}

/// Returns the text with each mistake of the list corrected; `None` if it is no object or array that ends. The result
/// need not be JSON. Missing brackets are a mistake if `end` is known, else the sign of a cut.
pub(super) fn corrected(text: &str, end: ArgumentsEnd) -> Option<Repaired> {
    let mut found = Correction {
        rest: text,
        json: String::new(),
        due: Vec::new(),
        last: ':',
        rules: Vec::new(),
    };
    while let Some(sign) = found.next() {
        found.sign(sign)?;
        if found.due.is_empty() && !is_space(sign) {
            found.tail()?;
        }
    }
    if !found.due.is_empty() {
        found.close(end)?;
    }
    Some(Repaired {
        text: found.json,
        rules: found.rules,
    })
}

impl Correction<'_> {
    fn next(&mut self) -> Option<char> {
        let sign = self.rest.chars().next()?;
        self.rest = self.rest.get(sign.len_utf8()..).unwrap_or("");
        Some(sign)
    }

    fn apply(&mut self, rule: Rule) {
        if !self.rules.contains(&rule) {
            self.rules.push(rule);
        }
    }

    /// Corrects what begins with this character, outside of strings. Fails on a bracket that closes another one.
    fn sign(&mut self, sign: char) -> Option<()> {
        match sign {
            '"' | '\'' => return self.string(sign),
            '{' => self.due.push('}'),
            '[' => self.due.push(']'),
            '}' | ']' if self.due.pop() != Some(sign) => return None,
            ',' if self.is_before_end() => {
                self.apply(Rule::ToolArgumentsComma);
                return Some(());
            }
            letter if letter.is_ascii_alphabetic() => {
                self.word(letter);
                return Some(());
            }
            _ => {}
        }
        self.json.push(sign);
        if !is_space(sign) {
            self.last = sign;
        }
        Some(())
    }

    /// Returns true if a value precedes the comma just read, and a closing bracket follows it.
    fn is_before_end(&self) -> bool {
        !"{[,:".contains(self.last)
            && self
                .rest
                .trim_start_matches(is_space)
                .starts_with(['}', ']'])
    }

    /// Corrects a string up to its closing quote. Fails if the text ends before.
    fn string(&mut self, quote: char) -> Option<()> {
        if quote == '\'' {
            self.apply(Rule::ToolArgumentsQuotes);
        }
        self.json.push('"');
        loop {
            match self.next()? {
                sign if sign == quote => break,
                '\\' => match self.next()? {
                    '\'' if quote == '\'' => self.json.push('\''),
                    sign => self.json.extend(['\\', sign]),
                },
                '"' => self.json.push_str("\\\""),
                sign if sign < ' ' => {
                    self.apply(Rule::ToolArgumentsControls);
                    self.json.push_str(&escaped(sign.encode_utf8(&mut [0; 4])));
                }
                sign => self.json.push(sign),
            }
        }
        self.json.push('"');
        self.last = '"';
        Some(())
    }

    fn word(&mut self, first: char) {
        let is_of_word = |sign: char| sign.is_ascii_alphanumeric() || sign == '_';
        let length = self
            .rest
            .find(|sign| !is_of_word(sign))
            .unwrap_or(self.rest.len());
        let (rest, after) = self.rest.split_at(length);
        let written = format!("{first}{rest}");
        let json = match written.as_str() {
            "True" => "true",
            "False" => "false",
            "None" => "null",
            other => other,
        };
        if json != written {
            self.apply(Rule::ToolArgumentsWords);
        }
        self.json.push_str(json);
        // A word may be the end of a number, such as 1e5.
        self.last = json.chars().next_back().unwrap_or(first);
        self.rest = after;
    }

    /// Reads what follows the value: white space stays, marks go. Fails if it is anything else, or if there was no value.
    fn tail(&mut self) -> Option<()> {
        if !matches!(self.last, '}' | ']') {
            return None;
        }
        let rest = std::mem::take(&mut self.rest);
        match Tail::of(rest) {
            Tail::Blank => self.json.push_str(rest),
            Tail::Marks => self.apply(Rule::ToolArgumentsTail),
            Tail::Open | Tail::Other => return None,
        }
        Some(())
    }

    /// Adds missing brackets after a complete member. Fails if the call may have been cut: a number may go on, unless
    /// markup follows.
    fn close(&mut self, end: ArgumentsEnd) -> Option<()> {
        let is_open =
            "{[,:".contains(self.last) || end == ArgumentsEnd::Said && self.last.is_ascii_digit();
        if is_open || end == ArgumentsEnd::Unknown {
            return None;
        }
        self.apply(Rule::ToolArgumentsBrackets);
        self.json.extend(self.due.drain(..).rev());
        Some(())
    }
}
