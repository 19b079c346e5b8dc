//! Marks repeated many times: the cost grows only with the length, and the result does not depend on how the text
//! is cut.

use crate::cases::{Case, Cut};
use crate::growth::processor_time;
use crate::texts::{AnswerParts, said, stream, whole};
use serde_json::json;
use std::time::Duration;

/// Size of a run, in bytes.
const RUN: usize = 256 << 10;
/// Limit far above the processor time of a run, and below the time it would take if each mark had all following text
/// searched.
const MOST: Duration = Duration::from_secs(6);

/// Runs of marks that begin no call: parser, text before the run, and mark.
const RUNS: [(&str, &str, &str); 11] = [
    ("mistral", "", "[TOOL_CALLS]"),
    ("mistral", "", "[TOOL_CALLS] f "),
    ("kimi_k2", "", "<|tool_call_begin|>"),
    ("qwen3", "<think>", "<tool_call>"),
    ("qwen3", "", "<tool_call>"),
    ("qwen3", "", "<tool_call>{\"x\":1"),
    ("qwen3", "<think>", "<tool_call>{\"x\":1"),
    ("deepseek_v31", "", "<｜tool▁call▁begin｜>"),
    (
        "deepseek_v3",
        "",
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
    ),
    ("minimax_m2", "</think>", "<minimax:tool_call>"),
    ("minimax_m2", "", "<minimax:tool_call>"),
];

/// Returns a run as a whole answer, in one chunk, and mark by mark.
fn run(parser: &str, before: &str, mark: &str) -> [Case; 3] {
    let marks: Vec<_> = [before]
        .into_iter()
        .chain(std::iter::repeat_n(mark, RUN / mark.len()))
        .collect();
    let text = marks.concat();
    [
        whole(parser, &text, "stop"),
        stream(parser, &[&text], "stop"),
        stream(parser, &marks, "stop"),
    ]
}

/// Returns the result of `make`. Fails the test if it takes too long.
fn within_limit<T>(name: &str, make: impl FnOnce() -> T) -> T {
    let begun = processor_time();
    let made = make();
    let took = processor_time().saturating_sub(begun);
    assert!(took < MOST, "{name}: {took:?}");
    made
}

#[test]
fn a_run_of_marks_costs_what_its_length_does() {
    for (parser, before, mark) in RUNS {
        let text = mark.repeat(RUN / mark.len());
        for case in run(parser, before, mark) {
            let said = within_limit(&format!("{parser} {before}{mark}"), || said(&case));
            assert!(said.calls.is_empty(), "{parser} {mark}");
            assert!(said.reasoning + &said.content == text, "{parser} {mark}");
        }
    }
    // Each of these is a call, and there are more than an answer may have.
    for case in run("glm45", "", "<tool_call>f<arg_key>") {
        within_limit("glm45", || case.run(&Cut::Whole));
    }
}

/// White space after a mark may come character by character.
#[test]
fn white_space_behind_a_mark_costs_what_its_length_does() {
    for (parser, mark) in [("qwen3", "<tool_call>"), ("kimi_k2", "<|tool_call_begin|>")] {
        let pieces: Vec<_> = [mark]
            .into_iter()
            .chain(std::iter::repeat_n(" ", 64 << 10))
            .collect();
        let case = stream(parser, &pieces, "stop");
        assert_eq!(
            within_limit(parser, || said(&case)).content,
            pieces.concat()
        );
    }
}

/// Returns the result for a text cut into pieces of several lengths, and uncut.
fn cut_in(parser: &str, text: &str) -> Vec<AnswerParts> {
    let cut = |length: usize| {
        let mut pieces = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(rest.ceil_char_boundary(length.min(rest.len())));
            pieces.push(piece);
            rest = behind;
        }
        said(&stream(parser, &pieces, "stop"))
    };
    [1, 7, 600]
        .into_iter()
        .map(cut)
        .chain([
            said(&stream(parser, &[text], "stop")),
            said(&whole(parser, text, "stop")),
        ])
        .collect()
}

/// A mark begins no call if the text after it exceeds the lookahead without deciding.
#[test]
fn reasoning_goes_on_where_no_call_is_told() {
    let answer = "Here is the answer. ".repeat(250);
    let marks = "<tool_call>".repeat(372);
    let late = format!("<tool_call>{{\"x\": \"{}\", ", "y".repeat(5000));
    let call = "<tool_call>{\"name\": \"f\", \"arguments\": {\"text\": \"</think>\"}}</tool_call>";
    for (reasoning, behind, content, calls) in [
        (
            "Each call has the prefix <tool_call>{\" and then a name.",
            format!("</think>{answer}"),
            &*answer,
            0,
        ),
        (&*marks, format!("</think>{answer}"), &*answer, 0),
        (&*late, format!("</think>{answer}"), &*answer, 0),
        (
            "a <tool_call>{\"arguments\": {\"text\": \"",
            "</think>\"}, \"name\": \"f\"}".to_owned(),
            "\"}, \"name\": \"f\"}",
            0,
        ),
        ("a", call.to_owned(), "", 1),
        (
            "a",
            format!(
                "<tool_call>{{\"x\": \"{}\", {}",
                "y".repeat(3000),
                &call["<tool_call>{".len()..]
            ),
            "",
            1,
        ),
    ] {
        for said in cut_in("qwen3", &format!("<think>{reasoning}{behind}")) {
            assert_eq!(
                (said.reasoning.as_str(), said.content.as_str()),
                (reasoning, content)
            );
            assert_eq!(said.calls.len(), calls, "{reasoning}");
        }
    }
}

/// A mark after a call is text unless another call follows it.
#[test]
fn a_mark_behind_a_call_is_not_lost() {
    for (parser, call, text) in [
        (
            "mistral",
            "[TOOL_CALLS]f[ARGS]{\"text\":\"b\"}",
            "[TOOL_CALLS] is the mark",
        ),
        (
            "mistral",
            "[TOOL_CALLS]f[ARGS]{\"text\":\"b\"}",
            "[TOOL_CALLS]",
        ),
        (
            "deepseek_v31",
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"text\":\"b\"}<｜tool▁call▁end｜>",
            "<｜tool▁call▁begin｜>see the docs<｜tool▁calls▁end｜>",
        ),
        (
            "kimi_k2",
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"text\":\"b\"}<|tool_call_end|>",
            "<|tool_call_begin|>see the docs<|tool_calls_section_end|>",
        ),
        (
            "qwen3_coder",
            "<tool_call>\n<function=f>\n<parameter=text>\nb\n</parameter>\n</function>",
            "<tool_call> is the mark",
        ),
    ] {
        for blank in ["", "\n "] {
            for said in cut_in(parser, &format!("hi {call}{blank}{text}")) {
                assert_eq!(said.calls.len(), 1, "{parser}");
                assert_eq!(said.content, format!("hi {blank}{text}"), "{parser}");
            }
        }
        for said in cut_in(parser, &format!("hi {call}{call}")) {
            assert_eq!(
                (said.calls.len(), said.content.as_str()),
                (2, "hi "),
                "{parser}"
            );
        }
    }
}

/// However a text is cut, the same amount of it is held back.
#[test]
fn what_is_waited_for_does_not_depend_on_the_cut() {
    let lines = "\n".repeat(600);
    let long = "x".repeat(5000);
    for (parser, text, calls) in [
        (
            "qwen3_coder",
            format!(
                "<tool_call><function=f>{lines}<parameter=text>x</parameter></function></tool_call>"
            ),
            0,
        ),
        (
            "qwen3_coder",
            format!(
                "<tool_call><function={lines}f><parameter=text>x</parameter></function></tool_call>"
            ),
            0,
        ),
        (
            "glm45",
            format!(
                "<tool_call>f{lines}<arg_key>text</arg_key><arg_value>x</arg_value></tool_call>"
            ),
            0,
        ),
        (
            "glm45",
            format!(
                "<tool_call>{lines}f<arg_key>text</arg_key><arg_value>x</arg_value></tool_call>"
            ),
            0,
        ),
        (
            "glm45",
            format!(
                "<tool_call>f<arg_key>text{lines}</arg_key><arg_value>x</arg_value></tool_call>"
            ),
            1,
        ),
        (
            "glm45",
            format!(
                "<tool_call>f<arg_key>text</arg_key>{lines}<arg_value>x</arg_value></tool_call>"
            ),
            1,
        ),
        (
            "hermes",
            format!(
                "<tool_call>{{\"x\": \"{long}\", \"name\": \"f\", \"arguments\": {{}}}}</tool_call>"
            ),
            0,
        ),
        (
            "hermes",
            format!("<tool_call>{{\"name\": {long} \"f\", \"arguments\": {{}}}}</tool_call>"),
            0,
        ),
        (
            "hermes",
            format!(
                "<tool_call>{{\"arguments\": {{\"text\": \"{long}\"}}, \"name\": \"f\"}}</tool_call>"
            ),
            1,
        ),
    ] {
        let all = cut_in(parser, &text);
        assert_eq!(all[0].calls.len(), calls, "{parser} {text}");
        assert!(all.iter().all(|said| *said == all[0]), "{parser} {all:?}");
        assert!(calls > 0 || all[0].content == text, "{parser} {all:?}");
    }
    for (blank, calls) in [(2000, true), (1000, true)] {
        let text = format!(
            "<think>a</think>b</answer>{}<tool_calls>[{{\"name\":\"f\",\"arguments\":{{}}}}]</tool_calls>",
            " ".repeat(blank)
        );
        let all = cut_in("hunyuan_a13b", &text);
        assert_eq!(!all[0].calls.is_empty(), calls);
        assert_eq!(all[0].content.contains("</answer>"), blank > 1024);
        assert!(all.iter().all(|said| *said == all[0]), "{all:?}");
    }
}

/// Chinese punctuation ends a name, unless the name of a declared tool contains it. A name of no tool makes no call.
#[test]
fn names_may_hold_signs_of_prose() {
    let name = "查询（天气，时间）";
    let tools = json!([{"type": "function", "function": {"name": name}}, {"type": "function", "function": {"name": "查询"}}]);
    for (name, is_offered) in [(name, true), ("查询", true), ("列出", false)] {
        for (parser, text) in [
            ("mistral", format!("[TOOL_CALLS]{name}[ARGS]{{}}")),
            (
                "mistral",
                format!("[TOOL_CALLS]{name}[CALL_ID]a1b2c3d4e[ARGS]{{}}"),
            ),
            ("mistral", format!("[TOOL_CALLS]{name}{{}}")),
            (
                "deepseek_v3",
                format!(
                    "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{{}}\n```<｜tool▁call▁end｜>"
                ),
            ),
            (
                "kimi_k2",
                format!(
                    "<|tool_call_begin|>functions.{name}:0<|tool_call_argument_begin|>{{}}<|tool_call_end|>"
                ),
            ),
            ("glm45", format!("<tool_call>{name}\n</tool_call>")),
            (
                "qwen3_coder",
                format!("<tool_call><function={name}></function></tool_call>"),
            ),
        ] {
            let letters: Vec<_> = text.split_inclusive(|_: char| true).collect();
            for mut case in [
                stream(parser, &letters, "stop"),
                stream(parser, &[&text], "stop"),
                whole(parser, &text, "stop"),
            ] {
                case.request["tools"] = tools.clone();
                let said = said(&case);
                match is_offered {
                    true => assert_eq!(
                        said.calls,
                        [(name.to_owned(), "{}".to_owned())],
                        "{parser} {text}"
                    ),
                    false => assert!(
                        said.calls.is_empty() && said.content.contains(name),
                        "{parser} {text}"
                    ),
                }
            }
        }
    }
    for said in cut_in("mistral", "[TOOL_CALLS]查询（天气，时间）[ARGS]{}") {
        assert_eq!(
            (said.content.as_str(), said.calls.len()),
            ("[TOOL_CALLS]查询（天气，时间）[ARGS]{}", 0)
        );
    }
}
