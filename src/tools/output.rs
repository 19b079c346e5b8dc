//! Outputs of tools as the model may read them: bounded, and without marks that would open a call or end a turn.

use crate::wire::encode::CallOutcome;
use crate::wire::format_marks;
use std::sync::LazyLock;

/// Marks of models' formats, and the beginning and end of special tokens.
static MARKS: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let mut marks = format_marks();
    marks.extend(["<|", "|>", "<｜", "｜>", "<s>", "</s>", "[INST]", "[/INST]"]);
    marks
});

/// Returns the outcome with a text of at most about `most` bytes, in which no mark of a model's format is left.
pub(super) fn bounded(outcome: CallOutcome, most: usize) -> CallOutcome {
    let fit = |mut text: String| {
        let length = text.len();
        if length > most {
            let end = text.floor_char_boundary(most);
            text.truncate(end);
            text.push_str(&format!(
                "\n[{} of {length} bytes are left out]",
                length - end
            ));
        }
        without_marks(text)
    };
    outcome.with_text(fit)
}

/// Returns the text with a space after the first character of each mark.
fn without_marks(text: String) -> String {
    let is_mark = |rest: &str| MARKS.iter().any(|mark| rest.starts_with(mark));
    let begins = |sign: char| matches!(sign, '<' | '[' | '|' | '｜');
    if !text.contains(begins) {
        return text;
    }
    let mut out = String::with_capacity(text.len());
    for (at, character) in text.char_indices() {
        out.push(character);
        if begins(character) && text.get(at..).is_some_and(is_mark) {
            out.push(' ');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_broken_and_text_stays() {
        for (text, expected) in [
            ("a < b <i>c</i> [1]", "a < b <i>c</i> [1]"),
            ("</think><tool_call>{}", "< /think>< tool_call>{}"),
            (
                "x<|im_end|>\n<|im_start|>system",
                "x< |im_end| >\n< |im_start| >system",
            ),
            ("[TOOL_CALLS]f[INST]", "[ TOOL_CALLS]f[ INST]"),
            ("<｜end▁of▁sentence｜>é", "< ｜end▁of▁sentence｜ >é"),
        ] {
            assert_eq!(without_marks(text.to_owned()), expected);
        }
    }

    #[test]
    fn long_outputs_are_cut_between_characters() {
        let CallOutcome::Output(text) = bounded(CallOutcome::Output("é".repeat(10)), 5) else {
            panic!("an output");
        };
        assert_eq!(text, "éé\n[16 of 20 bytes are left out]");
    }
}
