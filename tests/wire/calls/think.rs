//! Reasoning between tags, in every mode, compared with an obvious reading of the whole text.

use crate::cases::{Case, Cut};
use crate::texts::{cut, said, stream, whole};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use samewire::wire::OutputBuffer;
use serde_json::{Value, json};

const START: &str = "<think>";
const END: &str = "</think>";

/// Splits a text into reasoning and content.
fn reading(mode: &str, trim: bool, tool_start: &str, text: &str) -> (String, String) {
    let begun = text.trim_start();
    let (mut reasoning, mut content) = (String::new(), String::new());
    let mut rest = match mode {
        "auto" if !begun.starts_with(START) => return (reasoning, text.to_owned()),
        "anywhere" => {
            let Some((before, rest)) = text.split_once(START) else {
                return (reasoning, text.to_owned());
            };
            content += before;
            rest
        }
        _ => begun.strip_prefix(START).unwrap_or(text),
    };
    // The tag may be repeated.
    while mode != "anywhere"
        && begun.starts_with(START)
        && let Some(behind) = rest.trim_start().strip_prefix(START)
    {
        if !trim {
            reasoning += &rest[..rest.len() - rest.trim_start().len()];
        }
        rest = behind;
    }
    loop {
        let tool = Some(tool_start)
            .filter(|tool| !tool.is_empty())
            .and_then(|tool| rest.find(tool));
        let (inner, behind) = match (rest.find(END), tool) {
            (Some(end), tool) if tool.is_none_or(|tool| end < tool) => {
                (&rest[..end], &rest[end + END.len()..])
            }
            (_, Some(tool)) => rest.split_at(tool),
            _ => (rest, ""),
        };
        reasoning += if trim { inner.trim() } else { inner };
        let next = if mode == "anywhere" {
            behind.split_once(START)
        } else {
            None
        };
        let answer = next.map_or(behind, |(answer, _)| answer);
        content += if trim { answer.trim_start() } else { answer };
        match next {
            Some((_, behind)) => rest = behind,
            None => return (reasoning, content),
        }
    }
}

fn text() -> impl Strategy<Value = String> {
    let parts = [
        "<think>",
        "</think>",
        "<tool_call>",
        "<th",
        "ink>",
        "</",
        "<",
        "a",
        "é",
        " ",
        "\n",
        "b c",
        "<tool",
    ];
    let begins = select(vec!["", "<think>", " \n<think>", "x", "\n"]);
    (begins, prop::collection::vec(select(parts.to_vec()), 0..14))
        .prop_map(|(begin, parts)| begin.to_owned() + &parts.concat())
}

proptest! {
    #![proptest_config(crate::seeded::seeded(512))]

    #[test]
    fn reasoning_stands_between_tags(
        mode in select(vec!["auto", "forced", "anywhere"]),
        trim in any::<bool>(),
        tool_start in select(vec!["", "<tool_call>"]),
        text in text(),
        finish in select(vec!["stop", "length"]),
        promotes in any::<bool>(),
        places in prop::collection::vec(any::<Index>(), 0..30),
    ) {
        let think = json!({"mode": mode, "trim": trim, "tool_start": tool_start});
        let options = json!({"parser": "off", "think": think, "promote_reasoning": promotes});
        let marks = [START, END, tool_start];
        let is_marked = marks.iter().any(|mark| !mark.is_empty() && text.contains(mark));
        let is_unthought = mode == "forced" && !is_marked && !text.trim().is_empty();
        for case in [stream("off", &cut(&text, &places), finish), whole("off", &text, finish)] {
            let is_promoted = promotes && is_unthought && finish == "stop" && !case.events;
            let expected = match is_promoted {
                true => (String::new(), text.clone()),
                false => reading(mode, trim, tool_start, &text),
            };
            let said = said(&Case { options: options.clone(), ..case });
            prop_assert_eq!((said.reasoning, said.content), expected, "{:?} as {}", text, mode);
            prop_assert_eq!(said.finish.as_str(), finish);
        }
    }
}

/// The opening tag may occur twice at the start, once from the template and once from the model. A tag after other
/// text is text.
#[test]
fn a_tag_that_is_repeated() {
    for (text, reasoning, content) in [
        ("<think><think>abc</think>Answer", "abc", "Answer"),
        (
            "\n<think>\n <think>abc</think><think>d</think>",
            "\n abc",
            "<think>d</think>",
        ),
        ("<think><think><think></think>Answer", "", "Answer"),
        ("<think>a<think>b</think>c", "a<think>b", "c"),
        ("<think><thin", "<thin", ""),
        ("<think>\n", "\n", ""),
    ] {
        let letters: Vec<_> = text.split_inclusive(|_: char| true).collect();
        for parser in ["qwen3", "qwen3_5"] {
            for case in [
                stream(parser, &letters, "stop"),
                stream(parser, &[text], "stop"),
                whole(parser, text, "stop"),
            ] {
                let said = said(&case);
                assert_eq!(
                    (said.reasoning.as_str(), said.content.as_str()),
                    (reasoning, content),
                    "{parser} {text}"
                );
            }
        }
    }
}

/// An empty opening tag has no repetition to skip.
#[test]
fn no_tag_at_all() {
    let think = json!({"mode": "forced", "start": "", "end": "</t>"});
    let said = said(&Case {
        options: json!({"think": think}),
        ..stream("off", &["a", "b</t>", "c"], "stop")
    });
    assert_eq!(
        (said.reasoning.as_str(), said.content.as_str()),
        ("ab", "c")
    );
}

/// The end of reasoning in a whole answer is visible before its start must be decided.
#[test]
fn a_block_that_the_template_opened() {
    let text = "Hm\n</think>\n\nYes</think>";
    let unopened = ("Hm\n".to_owned(), "\n\nYes</think>".to_owned());
    let plain = (String::new(), text.to_owned());
    for (parser, model, streams, expected) in [
        ("auto", "deepseek-ai/DeepSeek-R1", false, &unopened),
        ("auto", "deepseek-ai/DeepSeek-V3.1", false, &unopened),
        ("auto", "Qwen/Qwen3-8B", false, &plain),
        // In a stream it would be too late, unless the model's name implies that the template always opens the
        // block.
        ("auto", "deepseek-ai/DeepSeek-R1", true, &unopened),
        ("auto", "deepseek-ai/DeepSeek-V3.1", true, &plain),
        ("deepseek_r1", "m", true, &unopened),
        ("deepseek_r1", "m", false, &unopened),
        ("deepseek_v31", "m", false, &unopened),
        ("deepseek_v31", "m", true, &plain),
        // Templates that open the block unless told not to.
        ("nemotron_v3", "m", true, &unopened),
        ("nemotron_v3", "m", false, &unopened),
        ("glm47", "m", true, &unopened),
        ("glm47", "m", false, &unopened),
        ("auto", "zai-org/GLM-4.7", true, &unopened),
        ("auto", "zai-org/GLM-4.7", false, &unopened),
        ("glm45", "m", true, &plain),
    ] {
        let mut case = if streams {
            stream(parser, &[text], "stop")
        } else {
            whole(parser, text, "stop")
        };
        case.request["model"] = model.into();
        let said = said(&case);
        assert_eq!(
            &(said.reasoning, said.content),
            expected,
            "{parser} {model} {streams}"
        );
    }
    for text in ["a <think> b</think>", "no end"] {
        let mut case = whole("auto", text, "stop");
        case.request["model"] = "DeepSeek-R1".into();
        assert_eq!(
            said(&case).content,
            text,
            "the text of a whole answer decides"
        );
    }
    for mut case in [
        stream("auto", &["no end"], "length"),
        whole("auto", "no end", "length"),
    ] {
        case.request["model"] = "DeepSeek-R1".into();
        let said = said(&case);
        assert_eq!(
            (&*said.reasoning, &*said.content),
            ("no end", ""),
            "a text that was cut does not tell"
        );
    }
}

/// A model told not to reason begins with its answer.
#[test]
fn a_model_that_does_not_reason() {
    for (key, value) in [
        ("chat_template_kwargs", json!({"enable_thinking": false})),
        ("chat_template_kwargs", json!({"thinking": false})),
        ("reasoning_effort", json!("none")),
        ("reasoning", json!({"effort": "none"})),
        ("reasoning", json!({"enabled": false})),
    ] {
        for parser in ["qwen3_5", "nemotron_v3", "glm47"] {
            for mut case in [
                stream(parser, &["Yes"], "stop"),
                whole(parser, "Yes", "stop"),
            ] {
                assert_eq!(
                    said(&case).reasoning,
                    "Yes",
                    "the template has opened the block"
                );
                case.request[key] = value.clone();
                let said = said(&case);
                assert_eq!(
                    (said.reasoning.as_str(), said.content.as_str()),
                    ("", "Yes"),
                    "{parser} {key}"
                );
            }
        }
    }
}

/// Templates that open a block only if the model is told to reason.
#[test]
fn a_model_that_is_told_to_reason() {
    for (parser, end) in [
        ("deepseek_v31", "</think>"),
        ("deepseek_v32", "</think>"),
        ("kimi_k2", "</think>"),
        ("minimax_m3", "</mm:think>"),
    ] {
        for (key, value, reasons) in [
            ("chat_template_kwargs", json!({"thinking": true}), true),
            (
                "chat_template_kwargs",
                json!({"enable_thinking": true}),
                true,
            ),
            (
                "chat_template_kwargs",
                json!({"thinking": true, "enable_thinking": false}),
                false,
            ),
            ("chat_template_kwargs", json!({"other": true}), false),
            ("reasoning_effort", json!("high"), false),
        ] {
            let text = format!("Hm{end}Yes");
            let mut case = stream(parser, &[&text], "stop");
            case.request[key] = value.clone();
            let said = said(&case);
            let expected = if reasons { ("Hm", "Yes") } else { ("", &*text) };
            assert_eq!(
                (said.reasoning.as_str(), said.content.as_str()),
                expected,
                "{parser} {value}"
            );
        }
    }
}

/// Returns an answer with `promote_reasoning`, without it, and unparsed as the engine sent it.
fn told(parser: &str, choices: &Value, streams: bool) -> [Value; 3] {
    let body =
        json!({"id": "chatcmpl-1", "created": 5, "model": "m", "choices": choices}).to_string();
    let options = [
        json!({"reasoning_field": "reasoning_content", "parser": parser, "promote_reasoning": true}),
        json!({"reasoning_field": "reasoning_content", "parser": parser}),
        json!({"reasoning_field": "reasoning_content", "parser": "off"}),
    ];
    options.map(|options| {
        let mut case = Case {
            options,
            input: body.clone().into_bytes(),
            ..whole("off", "", "stop")
        };
        case.request["logprobs"] = true.into();
        case.request["n"] = choices.as_array().unwrap().len().into();
        case.request["stream"] = streams.into();
        let answer = case.run(&Cut::Whole);
        assert_eq!(answer.status, 200, "{}", answer.body);
        match streams {
            true => answer.body.into(),
            false => serde_json::from_str(&answer.body).unwrap(),
        }
    })
}

/// The template has opened a block, and the model answers inside it without having reasoned.
#[test]
fn an_answer_in_a_block_that_was_not_used() {
    let choice = |index: u32, text: &str, finish: Value| {
        let tokens: Vec<_> = text
            .split_inclusive(' ')
            .map(|token| json!({"token": token, "logprob": -0.5, "bytes": token.as_bytes(), "top_logprobs": []}))
            .collect();
        json!({"index": index, "message": {"role": "assistant", "content": text},
            "logprobs": {"content": tokens, "refusal": null}, "finish_reason": finish})
    };
    let yes = choice(0, "Yes, I do.", "stop".into());
    let [promoted, plain, raw] = told("qwen3_5", &json!([yes]), false);
    assert_eq!(promoted, raw, "as if there were no block");
    assert_ne!(promoted, plain);
    // A streaming client gets events made from the whole answer.
    let [promoted, plain, _] = told("qwen3_5", &json!([yes]), true);
    assert_eq!(
        plain
            .as_str()
            .unwrap()
            .replace("reasoning_content", "content"),
        promoted
    );
    assert_ne!(promoted, plain);
    let [promoted, plain, raw] = told(
        "qwen3_5",
        &json!([yes, choice(1, "Hm, I", "length".into())]),
        false,
    );
    assert_eq!(
        promoted["choices"][0], raw["choices"][0],
        "each choice is judged alone"
    );
    assert_eq!(promoted["choices"][1], plain["choices"][1]);
    let with = |key: &str, value: Value| {
        let mut choice = yes.clone();
        choice["message"][key] = value;
        choice
    };
    let call = "Sure. <tool_call>\n<function=f>\n</function>\n</tool_call>";
    let own =
        json!([{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]);
    for choice in [
        choice(0, "Yes, I", "length".into()),
        choice(0, "Yes, I", "content_filter".into()),
        choice(0, "Yes, I", "ran_out_of_words".into()),
        choice(0, "Yes, I do.", "tool_calls".into()),
        choice(0, "Hm. </think>Yes.", "stop".into()),
        choice(0, "<think>Hm.", "stop".into()),
        choice(0, call, "stop".into()),
        choice(0, call, "tool_calls".into()),
        with("refusal", "No.".into()),
        with("audio", json!({"id": "a"})),
        with("reasoning_content", "Hm.".into()),
        with("tool_calls", own),
    ] {
        let [promoted, plain, _] = told("qwen3_5", &json!([choice]), false);
        assert_eq!(promoted, plain, "{choice}");
    }
}

/// The option `think` takes precedence over the family's tags.
#[test]
fn the_option_beats_the_family() {
    let case = stream("qwen3", &["[T]a[/T]b"], "stop");
    let think = json!({"mode": "auto", "start": "[T]", "end": "[/T]", "tool_start": null});
    let options = json!({"parser": "qwen3", "think": think});
    let said = said(&Case { options, ..case });
    assert_eq!((said.reasoning.as_str(), said.content.as_str()), ("a", "b"));
}

/// Tags may contain characters that JSON escapes, and engines may cut them anywhere, also after other text.
#[test]
fn tags_of_letters_that_json_escapes() {
    let text = "one two three <t>\na\n</t>b";
    let letters: Vec<_> = text.split_inclusive(|_: char| true).collect();
    let lines: Vec<_> = ["one ", "two ", "three ", "<t>\n", "a", "\n</t>", "b"].to_vec();
    for pieces in [vec![text], letters, lines] {
        let case = stream("off", &pieces, "stop");
        let think = json!({"mode": "anywhere", "start": "<t>\n", "end": "\n</t>"});
        let said = said(&Case {
            options: json!({"think": think}),
            ..case
        });
        assert_eq!(
            (said.reasoning.as_str(), said.content.as_str()),
            ("a", "one two three b"),
            "{pieces:?}"
        );
    }
}

/// A tool-call mark ends reasoning if a call follows it; a mark that the model only mentions is text.
#[test]
fn a_mark_that_is_named() {
    let f = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
    let coder = "<tool_call>\n<function=f>\n</function>\n</tool_call>";
    let kimi = "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>";
    for (parser, text, reasoning, content, calls) in [
        (
            "qwen3",
            "<think>I could use <tool_call> here, but <function= no.</think>Yes".to_owned(),
            "I could use <tool_call> here, but <function= no.",
            "Yes",
            0,
        ),
        (
            "qwen3",
            format!("<think>a <tool_call> b {f}"),
            "a <tool_call> b ",
            "",
            1,
        ),
        (
            "qwen3",
            format!("<think>`<tool_call>{{…}}` it is {coder}"),
            "`<tool_call>{…}` it is ",
            "",
            1,
        ),
        (
            "qwen3",
            format!("<think>not `{f}` or ```{f}```, but</think>{f}"),
            &*format!("not `{f}` or ```{f}```, but"),
            "",
            1,
        ),
        (
            "qwen3",
            format!("<think>a <tool_call></think>{f}"),
            "a <tool_call>",
            "",
            1,
        ),
        (
            "qwen3_5",
            format!("<tool_call> or <function=, then{coder}"),
            "<tool_call> or <function=, then",
            "",
            1,
        ),
        (
            "deepseek_r1",
            format!("use <tool_call> or not</think>{f}"),
            "use <tool_call> or not",
            "",
            1,
        ),
        (
            "kimi_k2",
            format!("<think>no <|tool_call_begin|> yet{kimi}"),
            "no <|tool_call_begin|> yet",
            "",
            1,
        ),
        (
            "seed_oss",
            "<seed:think>a <seed:tool_call>, <seed:tool_call>\n</seed:think>b".to_owned(),
            "a <seed:tool_call>, <seed:tool_call>\n",
            "b",
            0,
        ),
        // The text ends before the mark is decided.
        (
            "qwen3",
            "<think>a <tool_call>\n{\"na".to_owned(),
            "a <tool_call>\n{\"na",
            "",
            0,
        ),
        (
            "qwen3",
            "<think>a <tool_call> ".to_owned(),
            "a <tool_call> ",
            "",
            0,
        ),
        ("qwen3", "<think>a <tool_".to_owned(), "a <tool_", "", 0),
    ] {
        let letters: Vec<_> = text.split_inclusive(|_: char| true).collect();
        for case in [
            stream(parser, &letters, "stop"),
            stream(parser, &[&text], "stop"),
            whole(parser, &text, "stop"),
        ] {
            let said = said(&case);
            assert_eq!(
                (
                    said.reasoning.as_str(),
                    said.content.as_str(),
                    said.calls.len()
                ),
                (reasoning, content, calls),
                "{parser} {text}"
            );
        }
    }
    // With this option, the mark ends the reasoning in any case.
    let case = stream("qwen3", &["<think>a <tool_call> b"], "stop");
    let options =
        json!({"parser": "qwen3", "think": {"mode": "auto", "tool_start": "<tool_call>"}});
    let said = said(&Case { options, ..case });
    assert_eq!(
        (said.reasoning.as_str(), said.content.as_str()),
        ("a ", "<tool_call> b")
    );
}

proptest! {
    #![proptest_config(crate::seeded::seeded(1024))]

    /// Marks of which some are mentioned and some used: the result does not depend on the cuts, and what is not a
    /// call remains text.
    #[test]
    fn marks_of_calls_are_told_alike_however_they_are_cut(
        parser in select(vec!["qwen3", "glm45", "kimi_k2", "mistral", "seed_oss", "ernie45", "hunyuan_a13b"]),
        parts in prop::collection::vec(select(MARKS.to_vec()), 0..10),
        places in prop::collection::vec(any::<Index>(), 0..20),
        finish in select(vec!["stop", "length"]),
    ) {
        let (start, end) = match parser {
            "mistral" => ("[THINK]", "[/THINK]"),
            "seed_oss" => ("<seed:think>", "</seed:think>"),
            _ => ("<think>", "</think>"),
        };
        let text = format!("{start}{}", parts.concat().replace("END", end));
        let all = said(&stream(parser, &[&text], finish));
        prop_assert_eq!(&said(&stream(parser, &cut(&text, &places), finish)), &all, "{}", text);
        let is_wrapped = ["ernie45", "hunyuan_a13b"].contains(&parser);
        if all.calls.is_empty() && !is_wrapped {
            let text = text.replacen(start, "", 1);
            let (reasoning, content) = text.split_once(end).unwrap_or((&*text, ""));
            let mut spoken = content;
            while let Some(rest) = spoken.trim_start().strip_prefix(end) {
                spoken = rest;
            }
            let spoken = format!("{reasoning}{spoken}");
            prop_assert_eq!(all.reasoning + &all.content, spoken);
        }
    }
}

/// Fragments of a text: words, marks of several formats, and what may follow them.
const MARKS: [&str; 18] = [
    "END",
    "a",
    " ",
    "\n",
    "<",
    "<tool_call>",
    "<tool_calls>",
    "<function=f>",
    "<seed:tool_call>",
    "<|tool_call_begin|>functions.f:0",
    "<|tool_call_argument_begin|>",
    "[TOOL_CALLS]",
    "f",
    "{\"name\": \"f\"",
    ", \"arguments\": {}}",
    "</tool_call>",
    "<answer>",
    "</answer>",
];

/// Text after a mark is held only until the kind of mark is clear.
#[test]
fn what_is_no_call_goes_on_at_once() {
    for (parser, pieces, seen) in [
        (
            "qwen3",
            ["<think>a <tool_call>", " ", "b", "\"", "c"],
            [1, 0, 0, 1, 1],
        ),
        (
            "seed_oss",
            ["<seed:think>a<", "seed:tool_call>", "\n", "<", "b"],
            [1, 0, 0, 0, 1],
        ),
        (
            "mistral",
            ["[THINK]a", "[TOOL_CALLS]", " is", " a", " mark"],
            [1, 0, 0, 1, 1],
        ),
        (
            "mistral",
            ["[THINK]a", "[TOOL_CALLS]", "是标记", "，", "然后"],
            [1, 0, 0, 1, 1],
        ),
        (
            "kimi_k2",
            [
                "<think>a",
                "<|tool_call_begin|>",
                "这个标记",
                "\u{3000}",
                "然后",
            ],
            [1, 0, 0, 0, 1],
        ),
        (
            "glm45",
            ["<think>a", "<tool_call>", "标记", "」", "然后"],
            [1, 0, 0, 1, 1],
        ),
    ] {
        let mut rewriter = stream(parser, &[], "stop").rewriter(false);
        let said = pieces.map(|piece| {
            let choice = json!({"index": 0, "delta": {"content": piece}, "finish_reason": null});
            let chunk =
                json!({"id": "chatcmpl-1", "created": 5, "model": "m", "choices": [choice]});
            let mut out = OutputBuffer::default();
            rewriter.push(format!("data: {chunk}\n\n").as_bytes(), &mut out);
            String::from_utf8(out.to_vec())
                .unwrap()
                .matches("reasoning_content")
                .count()
        });
        assert_eq!(said, seen, "{parser}");
    }
}
