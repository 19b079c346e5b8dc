//! Argument values in the notation of Python or Gemma, converted to JSON while they arrive.
//!
//! Takes: text, cut anywhere. Gives: JSON. Remembers: the open brackets and the current string. Never: emits JSON
//! for input it does not understand; it stops there.

use crate::json::{Raw, escaped, quoted};

/// Nesting limit of brackets.
const DEPTH: usize = 64;
/// Length limit of a number or word in bytes.
const WORD: usize = 512;

/// Syntax of strings in the notation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::wire::parse) enum Quotes {
    /// Python strings: quotes of either kind, single or triple, with backslash escapes.
    Python,
    /// Strings between two copies of this marker, without escapes.
    Mark(&'static str),
}

/// Converter for the arguments of one call.
#[derive(Debug)]
pub(super) struct Notation {
    quotes: Quotes,
    equals: char,
    levels: Vec<Level>,
    expects: Expected,
}

/// Open bracket.
#[derive(Debug)]
struct Level {
    kind: BracketKind,
    /// True if the bracket contains at least one item, so that the next one needs a comma.
    some: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BracketKind {
    /// Mapping with unquoted keys.
    Named {
        close: char,
    },
    /// Mapping with quoted keys (a Python dictionary).
    Quoted,
    List {
        close: char,
    },
}

impl BracketKind {
    fn close(self) -> char {
        match self {
            Self::Named { close } | Self::List { close } => close,
            Self::Quoted => '}',
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// Item, or the end of the bracket.
    Item,
    Equals,
    Value,
    /// Rest of a string up to `mark`. `plain`: backslashes are literal; `key`: the string is a key.
    Text {
        mark: &'static str,
        plain: bool,
        key: bool,
    },
    /// Comma, or the end of the bracket.
    Comma,
}

/// Result of reading arguments; the numbers are bytes of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadArguments {
    /// Bytes read; the arguments continue.
    Some(usize),
    /// Bytes read; the arguments are complete.
    All(usize),
    /// Bytes read; the rest does not belong to the notation.
    Wrong(usize),
}

/// Reason why a step has read nothing: too little text, or text that is not of the notation.
enum StepError {
    More,
    Wrong,
}

impl Notation {
    /// Creates the converter for text after the opening bracket. `equals`: sign between key and value; `close`:
    /// closing bracket.
    pub(super) fn new(quotes: Quotes, equals: char, close: char) -> Self {
        let first = Level {
            kind: BracketKind::Named { close },
            some: false,
        };
        Self {
            quotes,
            equals,
            levels: vec![first],
            expects: Expected::Item,
        }
    }

    /// Converts the next text and appends its JSON to `out`. `last`: no more text follows, so undecided words end
    /// here.
    pub(super) fn read(&mut self, text: &str, last: bool, out: &mut String) -> ReadArguments {
        let mut at = 0;
        loop {
            if self.levels.is_empty() {
                return ReadArguments::All(at);
            }
            let rest = text.get(at..).unwrap_or("");
            let within = matches!(self.expects, Expected::Text { .. });
            let begun = if within { rest } else { rest.trim_start() };
            if begun.is_empty() {
                return ReadArguments::Some(at);
            }
            match self.step(begun, last, out) {
                Ok(read) => at += rest.len() - begun.len() + read,
                Err(StepError::More) => return ReadArguments::Some(at),
                Err(StepError::Wrong) => return ReadArguments::Wrong(at),
            }
        }
    }

    fn step(&mut self, text: &str, last: bool, out: &mut String) -> Result<usize, StepError> {
        let kind = self
            .levels
            .last()
            .map(|level| level.kind)
            .ok_or(StepError::Wrong)?;
        match self.expects {
            Expected::Text { mark, plain, key } => self.text(text, (mark, plain, key), last, out),
            Expected::Item | Expected::Comma if text.starts_with(kind.close()) => {
                Ok(self.close(kind, out))
            }
            Expected::Comma if text.starts_with(',') => {
                self.expects = Expected::Item;
                Ok(1)
            }
            Expected::Comma => Err(StepError::Wrong),
            Expected::Equals => {
                let sign = if matches!(kind, BracketKind::Named { .. }) {
                    self.equals
                } else {
                    ':'
                };
                let read = text
                    .starts_with(sign)
                    .then_some(sign.len_utf8())
                    .ok_or(StepError::Wrong)?;
                out.push_str(": ");
                self.expects = Expected::Value;
                Ok(read)
            }
            Expected::Item => match kind {
                BracketKind::Named { .. } => self.key(text, last, out),
                BracketKind::Quoted => {
                    let read = self.scalar(text, last, true, out)?;
                    Ok(read)
                }
                BracketKind::List { .. } => self.value(text, last, true, out),
            },
            Expected::Value => self.value(text, last, false, out),
        }
    }

    /// Appends what precedes an item in JSON: a comma, or the opening brace of the arguments.
    fn separate(&mut self, out: &mut String) {
        let first = self.levels.len() == 1;
        if let Some(level) = self.levels.last_mut() {
            out.push_str(match std::mem::replace(&mut level.some, true) {
                true => ", ",
                false if first => "{",
                false => "",
            });
        }
    }

    fn close(&mut self, kind: BracketKind, out: &mut String) -> usize {
        let empty = self.levels.pop().is_some_and(|level| !level.some);
        out.push_str(match kind {
            BracketKind::List { .. } => "]",
            _ if empty && self.levels.is_empty() => "{}",
            _ => "}",
        });
        self.expects = Expected::Comma;
        kind.close().len_utf8()
    }

    /// Parses a key and the sign after it; for notations with string markers also a marked key.
    fn key(&mut self, text: &str, last: bool, out: &mut String) -> Result<usize, StepError> {
        if let Quotes::Mark(mark) = self.quotes
            && mark.starts_with(text.get(..mark.len().min(text.len())).unwrap_or("\0"))
        {
            return self.scalar(text, last, true, out);
        }
        let is_of_key = |sign: char| sign.is_alphanumeric() || "_-.$".contains(sign);
        let length = text.find(|sign| !is_of_key(sign)).unwrap_or(text.len());
        let key = text.get(..length).unwrap_or("");
        let after = text.get(length..).unwrap_or("").trim_start();
        match after.chars().next() {
            None if !last && text.len() <= WORD => return Err(StepError::More),
            Some(sign) if sign == self.equals && !key.is_empty() => {}
            _ => return Err(StepError::Wrong),
        }
        self.separate(out);
        out.push_str(&quoted(key));
        out.push_str(": ");
        self.expects = Expected::Value;
        Ok(text.len() - after.len() + self.equals.len_utf8())
    }

    /// Parses a scalar, or the bracket that opens a compound value. `listed`: it is an item of a list.
    fn value(
        &mut self,
        text: &str,
        last: bool,
        listed: bool,
        out: &mut String,
    ) -> Result<usize, StepError> {
        let kind = match text.chars().next() {
            Some('[') => BracketKind::List { close: ']' },
            Some('(') if self.quotes == Quotes::Python => BracketKind::List { close: ')' },
            Some('{') if self.quotes == Quotes::Python => BracketKind::Quoted,
            Some('{') => BracketKind::Named { close: '}' },
            _ if listed => return self.scalar(text, last, false, out),
            _ => return self.scalar_here(text, last, false, out),
        };
        if self.levels.len() >= DEPTH {
            return Err(StepError::Wrong);
        }
        if listed {
            self.separate(out);
        }
        out.push(if matches!(kind, BracketKind::List { .. }) {
            '['
        } else {
            '{'
        });
        self.levels.push(Level { kind, some: false });
        self.expects = Expected::Item;
        Ok(1)
    }

    /// Parses a string or word as its own item, with the separator in front of it.
    fn scalar(
        &mut self,
        text: &str,
        last: bool,
        key: bool,
        out: &mut String,
    ) -> Result<usize, StepError> {
        let mut own = String::new();
        let read = self.scalar_here(text, last, key, &mut own)?;
        self.separate(out);
        out.push_str(&own);
        Ok(read)
    }

    fn scalar_here(
        &mut self,
        text: &str,
        last: bool,
        key: bool,
        out: &mut String,
    ) -> Result<usize, StepError> {
        if let Some((mark, plain, length)) = self.opening(text, last)? {
            out.push('"');
            self.expects = Expected::Text { mark, plain, key };
            return Ok(length);
        }
        // A partial string marker at the end of the text is not a word with a quote after it.
        let is_mark = matches!(self.quotes, Quotes::Mark(mark) if mark.starts_with(text));
        let is_end =
            |sign: char| !is_mark && (sign.is_whitespace() || ",:=()[]{}'\"".contains(sign));
        let length = match text.find(is_end) {
            Some(0) => return Err(StepError::Wrong),
            Some(length) => length,
            None if text.len() > WORD => return Err(StepError::Wrong),
            None if !last => return Err(StepError::More),
            None => text.len(),
        };
        let word = text.get(..length).unwrap_or("");
        // A word cut off by the end of the text is emitted unchanged.
        let cut = length == text.len();
        out.push_str(&if key {
            quoted(word)
        } else if cut {
            word.to_owned()
        } else {
            plain_value(word)
        });
        self.expects = if key {
            Expected::Equals
        } else {
            Expected::Comma
        };
        Ok(length)
    }

    /// Recognises the start of a string: its closing mark, true if backslashes are literal, and the length of the
    /// opening.
    fn opening(
        &self,
        text: &str,
        last: bool,
    ) -> Result<Option<(&'static str, bool, usize)>, StepError> {
        if let Quotes::Mark(mark) = self.quotes {
            return match text.strip_prefix(mark) {
                Some(_) => Ok(Some((mark, true, mark.len()))),
                None if mark.starts_with(text) && !last => Err(StepError::More),
                None => Ok(None),
            };
        }
        let letters = text
            .find(|sign: char| !"rRbBuUfF".contains(sign))
            .unwrap_or(text.len());
        let rest = text.get(letters..).unwrap_or("");
        let plain = text.get(..letters).unwrap_or("").contains(['r', 'R']);
        for (one, three) in [("\"", "\"\"\""), ("'", "'''")] {
            if letters > 2 || !rest.starts_with(one) {
                continue;
            }
            return match rest.strip_prefix(three) {
                Some(_) => Ok(Some((three, plain, letters + 3))),
                None if three.starts_with(rest) && !last => Err(StepError::More),
                None => Ok(Some((one, plain, letters + 1))),
            };
        }
        Ok(None)
    }

    /// Parses more of a string, up to its closing mark, and returns the bytes read.
    fn text(
        &mut self,
        text: &str,
        (mark, plain, key): (&'static str, bool, bool),
        last: bool,
        out: &mut String,
    ) -> Result<usize, StepError> {
        let mut at = 0;
        let mut said = String::new();
        let mut more = false;
        while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
            if rest.starts_with(mark) {
                out.push_str(&escaped(&said));
                out.push('"');
                self.expects = if key {
                    Expected::Equals
                } else {
                    Expected::Comma
                };
                return Ok(at + mark.len());
            }
            if mark.starts_with(rest) && !last {
                more = true;
                break;
            }
            let sign = rest.chars().next().unwrap_or_default();
            if sign == '\\' && !plain && self.quotes == Quotes::Python {
                match escape(rest) {
                    Some((length, meant)) => {
                        out.push_str(&escaped(&said));
                        said.clear();
                        out.push_str(&meant);
                        at += length;
                        continue;
                    }
                    None if !last => {
                        more = true;
                        break;
                    }
                    None => {}
                }
            }
            said.push(sign);
            at += sign.len_utf8();
        }
        out.push_str(&escaped(&said));
        if at == 0 && more {
            Err(StepError::More)
        } else {
            Ok(at)
        }
    }
}

/// Returns a number or word as JSON: literals and numbers translated, anything else as a string.
fn plain_value(word: &str) -> String {
    match word {
        "True" | "true" => "true".to_owned(),
        "False" | "false" => "false".to_owned(),
        "None" | "null" | "nil" => "null".to_owned(),
        _ => {
            let number = word.replace('_', "");
            let number = number.strip_prefix('+').unwrap_or(&number);
            let is_number = number.starts_with(|sign: char| sign == '-' || sign.is_ascii_digit());
            // Python also writes numbers like `.5` and `1.`, which JSON lacks.
            let full = match number.split_once('.') {
                Some(("", fraction)) => format!("0.{fraction}"),
                Some((whole, "")) => format!("{whole}.0"),
                _ => number.to_owned(),
            };
            let valid = (is_number || number.starts_with('.')) && Raw::of(&full).is_some();
            if valid { full } else { quoted(word) }
        }
    }
}

/// Translates a backslash escape to JSON. Returns its length in bytes and the JSON; `None` if the text ends within
/// it.
fn escape(text: &str) -> Option<(usize, String)> {
    let sign = text.chars().nth(1)?;
    let hex = |length: usize| -> Option<Option<u32>> {
        let digits = text.get(2..2 + length)?;
        Some(u32::from_str_radix(digits, 16).ok())
    };
    let length = match sign {
        'x' => 2,
        'u' => 4,
        'U' => 8,
        _ => {
            let meant = match sign {
                'n' => "\\n",
                't' => "\\t",
                'r' => "\\r",
                'b' => "\\b",
                'f' => "\\f",
                '\\' => "\\\\",
                '"' => "\\\"",
                '\'' => "'",
                '\n' => "",
                // An unknown escape is literal, backslash included.
                _ => return Some((1, "\\\\".to_owned())),
            };
            return Some((2, meant.to_owned()));
        }
    };
    // An escape with invalid hexadecimal digits is literal.
    let itself = Some((1, "\\\\".to_owned()));
    let is_cut =
        text.len() < 2 + length && text.get(2..)?.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_cut {
        return None;
    }
    match hex(length).flatten() {
        // Each half of a surrogate pair is a separate escape, in JSON as well.
        Some(code) if code <= 0xffff => Some((2 + length, format!("\\u{code:04x}"))),
        Some(code) => match char::from_u32(code) {
            Some(sign) => Some((2 + length, escaped(&sign.to_string()))),
            None => itself,
        },
        None => itself,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the JSON of arguments; asserts that it is the same in one piece and character by character.
    fn noted(quotes: Quotes, equals: char, close: char, text: &str) -> (String, ReadArguments) {
        let mut whole = String::new();
        let all = Notation::new(quotes, equals, close).read(text, true, &mut whole);
        let (mut pieces, mut at) = (String::new(), 0);
        let mut notation = Notation::new(quotes, equals, close);
        let mut end = ReadArguments::Some(0);
        for upto in text
            .char_indices()
            .map(|(at, _)| at)
            .skip(1)
            .chain([text.len()])
        {
            end = notation.read(&text[at..upto], upto == text.len(), &mut pieces);
            let (ReadArguments::Some(read) | ReadArguments::All(read) | ReadArguments::Wrong(read)) =
                end;
            at += read;
            if !matches!(end, ReadArguments::Some(_)) {
                break;
            }
        }
        assert_eq!(pieces, whole, "{text}");
        assert_eq!(
            std::mem::discriminant(&end),
            std::mem::discriminant(&all),
            "{text}"
        );
        (whole, all)
    }

    #[test]
    fn python_becomes_json() {
        for (text, json) in [
            (")", "{}"),
            (" a = 1 )", r#"{"a": 1}"#),
            (
                r#"a="x", b='y"', c=True, d=None)"#,
                r#"{"a": "x", "b": "y\"", "c": true, "d": null}"#,
            ),
            (
                r#"a=[1, -2.5, ("x",),], b={'k': {"l": []}, 3: false})"#,
                r#"{"a": [1, -2.5, ["x"]], "b": {"k": {"l": []}, "3": false}}"#,
            ),
            (r#"a="\n\x41\u00e9\'\q")"#, r#"{"a": "\n\u0041\u00e9'\\q"}"#),
            (
                r#"a=r"\n", b="""x"y""", c="")"#,
                r#"{"a": "\\n", "b": "x\"y", "c": ""}"#,
            ),
            (
                "a=1_000, b=.5, c=+3, d=1e5, e=celsius)",
                r#"{"a": 1000, "b": 0.5, "c": 3, "d": 1e5, "e": "celsius"}"#,
            ),
        ] {
            assert_eq!(
                noted(Quotes::Python, '=', ')', text),
                (json.to_owned(), ReadArguments::All(text.len()))
            );
        }
        for (text, json) in [
            ("1)", ""),
            ("a=1, 2)", r#"{"a": 1"#),
            (r#"a="x" + "y")"#, r#"{"a": "x""#),
        ] {
            assert_eq!(noted(Quotes::Python, '=', ')', text).0, json, "{text}");
        }
        assert_eq!(noted(Quotes::Python, '=', ')', "a=\"x").0, r#"{"a": "x"#);
    }

    #[test]
    fn gemma_becomes_json() {
        for (text, json) in [
            ("}", "{}"),
            (
                "city:<|\"|>Paris \"x\" <|\"|>,n:1,ok:true}",
                r#"{"city": "Paris \"x\" ", "n": 1, "ok": true}"#,
            ),
            (
                "a:[<|\"|>x<|\"|>,2],o:{<|\"|>k<|\"|>:null,l:{}}}",
                r#"{"a": ["x", 2], "o": {"k": null, "l": {}}}"#,
            ),
        ] {
            assert_eq!(
                noted(Quotes::Mark("<|\"|>"), ':', '}', text),
                (json.to_owned(), ReadArguments::All(text.len()))
            );
        }
    }

    #[test]
    fn escapes_become_those_of_json() {
        for (text, expected) in [
            (r"\x41", Some((4, r"\u0041"))),
            (r"\u0041", Some((6, r"\u0041"))),
            (r"\U0001f600", Some((10, "\u{1f600}"))),
            (r"\U00000041", Some((10, r"\u0041"))),
            // The text ends within the escape.
            (r"\", None),
            (r"\x4", None),
            (r"\u00e", None),
            (r"\U0001f60", None),
            // No escapes.
            (r"\x4g", Some((1, r"\\"))),
            (r"\x4 ", Some((1, r"\\"))),
            (r"\xg", Some((1, r"\\"))),
            (r"\Uffffffff", Some((1, r"\\"))),
        ] {
            assert_eq!(
                escape(text),
                expected.map(|(length, json)| (length, json.to_owned())),
                "{text}"
            );
        }
    }

    #[test]
    fn words_that_are_too_long_are_none() {
        let (fits, long) = ("a".repeat(512), "a".repeat(513));
        for (text, expected) in [
            (&fits, ReadArguments::Some(0)),
            (&long, ReadArguments::Wrong(0)),
        ] {
            let found =
                Notation::new(Quotes::Python, '=', ')').read(text, false, &mut String::new());
            assert_eq!(found, expected, "key of {} letters", text.len());
        }
        for (text, expected) in [
            (&fits, ReadArguments::Some(2)),
            (&long, ReadArguments::Wrong(2)),
        ] {
            let text = format!("k={text}");
            let found =
                Notation::new(Quotes::Python, '=', ')').read(&text, false, &mut String::new());
            assert_eq!(found, expected, "value of {} letters", text.len());
        }
    }

    #[test]
    fn brackets_and_letters_of_each_notation() {
        // Round brackets are a list in Python alone, and braces without quotes an object elsewhere.
        assert_eq!(
            noted(Quotes::Mark("<|\"|>"), ':', '}', "a:(1)}").0,
            "{\"a\": "
        );
        assert_eq!(
            noted(Quotes::Python, '=', ')', "a={b: 1})").0,
            r#"{"a": {"b": 1}}"#
        );
        for (text, json) in [
            (r#"a=rb"\x")"#, r#"{"a": "\\x"}"#),
            (r#"a=rbu"x")"#, r#"{"a": "rbu""#),
            // The text ends within a string or between two quotes.
            (r#"a=""#, r#"{"a": ""#),
            (r#"a="""#, r#"{"a": """#),
            (r#"a="x\x4"#, r#"{"a": "x\\x4"#),
        ] {
            assert_eq!(noted(Quotes::Python, '=', ')', text).0, json, "{text}");
        }
        let mark = Quotes::Mark("<|\"|>");
        assert_eq!(noted(mark, ':', '}', "a:<|\"|>x<|\"").0, r#"{"a": "x<|\""#);
    }
}
