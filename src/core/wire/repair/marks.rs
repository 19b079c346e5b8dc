//! Marks that engines leave after a call's arguments: the ends of calls, sections and turns that models write.

/// Ends of calls, sections, messages and turns in the families that `parser` knows, and stray closing signs.
pub(in crate::wire) const MARKS: &[&str] = &[
    "\"",
    "}",
    "]",
    "```",
    "</tool_call>",
    "</tool_code>",
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
    "</｜DSML｜ parameter>",
    "</｜DSML｜ invoke>",
    "</｜DSML｜ calls>",
    "</|DSML|parameter>",
    "</｜｜DSML｜｜parameter>",
    "</｜GCML｜parameter>",
    "</|DSML|invoke>",
    "</|DSML|tool_calls>",
    "</｜｜DSML｜｜invoke>",
    "</｜｜DSML｜｜tool_calls>",
    "</｜GCML｜invoke>",
    "</｜GCML｜tool_calls>",
    "</iquest_tool_call>",
    "</dots_function_call>",
    "</param>",
    "</ifm|arg_value>",
    "</ifm|tool_call>",
    "</ifm|tool_calls>",
    "<|close|>argument<|sep|>",
    "<|close|>call<|sep|>",
    "<|close|>tools<|sep|>",
    "<|close|>message<|sep|>",
    "<|close|> message <|sep|>",
    "<|close|> response <|sep|>",
    "</longcat_tool_call>",
    "<|/tool_call|>",
    "<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>",
    "<|plamo:end_tool_requests:plamo|>",
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
    "<|tools_suffix|>",
    "</atem:parameter>",
    "</atem:invoke>",
    "</atem:function_calls>",
    "</rfl:parameter>",
    "</rfl:call>",
    "<|END_ACTION|>",
    "<|END_OF_TURN_TOKEN|>",
    "<|python_end|>",
    "<tool_call|>",
    "<channel|>",
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
    "[EOT]",
    "[e~[",
    "<|user|>",
    "<|observation|>",
    "<|role_end|>",
    "</assistant>",
    "<seed:eos>",
    "<longcat_s>",
    "<|iquest_end|>",
    "<|message_sep|>",
    "<|plamo:tag|>",
    "<|assistant_end|>",
];

/// Meaning of the text after a closed value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::wire) enum Tail {
    /// White space or nothing.
    Blank,
    /// Marks, with or without white space.
    Marks,
    /// Text that may become a mark.
    Open,
    /// Anything else.
    Other,
}

impl Tail {
    /// Returns the meaning of this text.
    pub(in crate::wire) fn of(text: &str) -> Self {
        let (mut rest, mut found) = (text.trim_start_matches(is_space), Self::Blank);
        let mut is_open = false;
        while !rest.is_empty() {
            is_open |= MARKS.iter().any(|mark| mark.starts_with(rest));
            let longest = MARKS
                .iter()
                .filter_map(|mark| Some((mark.len(), rest.strip_prefix(mark)?)))
                .max();
            match longest {
                Some((_, after)) => rest = after.trim_start_matches(is_space),
                None => return if is_open { Self::Open } else { Self::Other },
            }
            found = Self::Marks;
        }
        found
    }
}

/// Returns true for white space of JSON.
pub(super) fn is_space(sign: char) -> bool {
    matches!(sign, ' ' | '\t' | '\r' | '\n')
}
