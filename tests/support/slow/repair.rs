//! Repair of arguments that are no JSON (2.5 rule 15): a parser that also reads the mistakes.

use super::json::Json;

/// Ends of calls, sections and turns, and stray signs, that may follow a value.
const MARKS: &[&str] = &[
    "\"",
    "}",
    "]",
    "```",
    "</tool_call>",
    "</tool_calls>",
    "</function>",
    "</function_calls>",
    "</parameter>",
    "</arg_value>",
    "</invoke>",
    "</minimax:tool_call>",
    "]<]minimax[>[</invoke>",
    "]<]minimax[>[</tool_call>",
    "</｜DSML｜parameter>",
    "</｜DSML｜invoke>",
    "</｜DSML｜function_calls>",
    "</｜DSML｜tool_calls>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool_call_end｜>",
    "<｜tool_calls_end｜>",
    "<｜end▁of▁sentence｜>",
    "</steptml:parameter>",
    "</steptml:invoke>",
    "</seed:tool_call>",
    "<|tool_call_end|>",
    "<|tool_calls_section_end|>",
    "<|tool_call_section_end|>",
    "<|action_end|>",
    "<|END_ACTION|>",
    "<|END_OF_TURN_TOKEN|>",
    "<|python_end|>",
    "<tool_call|>",
    "<end_function_call>",
    "<|im_end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eot|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|call|>",
    "<|end|>",
    "<|return|>",
    "<turn|>",
    "<end_of_turn>",
    "<eos>",
    "</s>",
    "[EOS]",
    "[e~[",
    "<|assistant_end|>",
];

const BLANK: [char; 4] = [' ', '\t', '\r', '\n'];

/// Returns true if a text is white space and at least one mark.
pub fn is_marks(text: &str) -> bool {
    let text = text.trim_start_matches(BLANK);
    MARKS
        .iter()
        .filter_map(|mark| text.strip_prefix(mark))
        .any(|rest| rest.trim_matches(BLANK).is_empty() || is_marks(rest))
}

/// Returns true if a text is the beginning of white space and marks.
pub fn may_be_marks(text: &str) -> bool {
    let text = text.trim_start_matches(BLANK);
    MARKS
        .iter()
        .any(|mark| mark.starts_with(text) || text.strip_prefix(mark).is_some_and(may_be_marks))
}

/// Returns the end of the first complete object or list that a text begins with.
pub fn value_end(text: &str) -> Option<usize> {
    let begins = text.trim_start_matches(BLANK).starts_with(['{', '[']);
    let ends = text
        .char_indices()
        .filter(|(_, c)| "}]".contains(*c))
        .map(|(at, _)| at + 1);
    ends.into_iter()
        .find(|end| begins && Json::parse(&text[..*end]).is_some())
}

/// Returns arguments that are no JSON as JSON; `None` if they are JSON or the option does not repair them. `ended`: the
/// call was not cut.
pub fn repaired(text: &str, option: &str, ended: bool) -> Option<String> {
    if Json::parse(text).is_some() {
        return None;
    }
    match option {
        "tail" => value_end(text)
            .filter(|end| is_marks(&text[*end..]))
            .map(|end| text[..end].to_owned()),
        "json" => {
            let letters: Vec<char> = text.chars().collect();
            let mut reader = Reader {
                letters: &letters,
                at: 0,
                json: String::new(),
                ended,
            };
            reader.blank();
            if !matches!(reader.peek(), Some('{' | '[')) {
                return None;
            }
            reader.value()?;
            let rest: String = letters[reader.at..].iter().collect();
            if rest.trim_matches(BLANK).is_empty() {
                reader.json.push_str(&rest);
            } else if !is_marks(&rest) {
                return None;
            }
            Some(reader.json).filter(|json| Json::parse(json).is_some())
        }
        _ => None,
    }
}

/// Position in the text, and the JSON up to there.
struct Reader<'l> {
    letters: &'l [char],
    at: usize,
    json: String,
    ended: bool,
}

impl Reader<'_> {
    fn peek(&self) -> Option<char> {
        self.letters.get(self.at).copied()
    }

    fn keep(&mut self) {
        self.json.extend(self.peek());
        self.at += 1;
    }

    fn blank(&mut self) {
        while self.peek().is_some_and(|c| BLANK.contains(&c)) {
            self.keep();
        }
    }

    fn value(&mut self) -> Option<()> {
        match self.peek()? {
            '{' => self.list('}'),
            '[' => self.list(']'),
            '"' | '\'' => self.string(),
            _ => self.word(),
        }
    }

    fn list(&mut self, close: char) -> Option<()> {
        self.keep();
        self.blank();
        if self.peek()? == close {
            self.keep();
            return Some(());
        }
        loop {
            if close == '}' {
                self.string()?;
                self.blank();
                if self.peek()? != ':' {
                    return None;
                }
                self.keep();
                self.blank();
            }
            self.value()?;
            self.blank();
            match self.peek() {
                // A number may go on.
                None if self.ended
                    && !self
                        .json
                        .trim_end_matches(BLANK)
                        .ends_with(|c: char| c.is_ascii_digit()) =>
                {
                    self.json.push(close);
                    return Some(());
                }
                Some(',') => {
                    let behind = self.letters[self.at + 1..]
                        .iter()
                        .find(|c| !BLANK.contains(c));
                    match behind {
                        Some('}' | ']') => self.at += 1,
                        _ => self.keep(),
                    }
                    self.blank();
                }
                _ => {}
            }
            match self.peek()? {
                c if c == close => {
                    self.keep();
                    return Some(());
                }
                _ if self.json.trim_end_matches(BLANK).ends_with(',') => {}
                _ => return None,
            }
        }
    }

    fn string(&mut self) -> Option<()> {
        let quote = self.peek().filter(|c| "\"'".contains(*c))?;
        self.at += 1;
        self.json.push('"');
        loop {
            let c = self.peek()?;
            self.at += 1;
            match c {
                _ if c == quote => break,
                '\\' => {
                    let next = self.peek()?;
                    self.at += 1;
                    if !(quote == '\'' && next == '\'') {
                        self.json.push('\\');
                    }
                    self.json.push(next);
                }
                '"' => self.json.push_str("\\\""),
                c if c < ' ' => {
                    let quoted = serde_json::to_string(&c).unwrap();
                    self.json.push_str(&quoted[1..quoted.len() - 1]);
                }
                c => self.json.push(c),
            }
        }
        self.json.push('"');
        Some(())
    }

    fn word(&mut self) -> Option<()> {
        let word: String = self.letters[self.at..]
            .iter()
            .take_while(|c| !BLANK.contains(c) && !"{}[],:\"'".contains(**c))
            .collect();
        self.at += word.chars().count();
        let json = match word.as_str() {
            "True" => "true",
            "False" => "false",
            "None" => "null",
            other => other,
        };
        self.json.push_str(json);
        Json::parse(json).map(|_| ())
    }
}
