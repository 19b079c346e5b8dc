//! Reasoning and tool calls that an engine left in the text: any list of calls, written in any of the formats and
//! cut anywhere, comes out as exactly those calls. Other text comes out unchanged.

mod engines;
mod held;
mod reported;
mod runs;
mod think;
mod unthinking;
mod untouched;

use crate::cases::Case;
use crate::texts::written::{Call, FORMATS, is_message, stands_alone, turn, written};
use crate::texts::{AnswerParts, answers, cut, meant, mixed, opened, said, stream, whole};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Text that a model may pass to a tool: it may look like markup, except for any end of a value in any format.
fn text() -> impl Strategy<Value = String> {
    let parts = prop::sample::select(vec![
        "a",
        " ",
        "é",
        "\n",
        "<",
        "</",
        "<tool_call",
        "{\"",
        "}",
        "]",
        "\\",
        "\"",
        "'",
        "0",
        "true",
        "<b>",
        "```",
        "[",
        ":",
        "｜",
        "😀",
        "null",
        "&lt;",
        "\t",
        "</parameter>.",
        "</arg_value>.",
        "</function>.",
        "</tool_call>.",
        "</invoke>.",
        "<parameter=x>.",
        "<function=f>.",
    ]);
    prop::collection::vec(parts, 0..12)
        .prop_map(|parts| parts.concat())
        .prop_map(|text| text.trim_matches('\n').to_owned())
}

fn arguments() -> impl Strategy<Value = Map<String, Value>> {
    let thing =
        prop::collection::vec(text(), 0..3).prop_map(|all| json!({"x": all, "y": {"z": 1.5}}));
    let all = (
        prop::option::of(text().prop_map(Value::from)),
        prop::option::of(any::<i32>().prop_map(Value::from)),
        prop::option::of((-1000..1000_i32).prop_map(|n| Value::from(f64::from(n) / 8.0))),
        prop::option::of(any::<bool>().prop_map(Value::from)),
        prop::option::of(prop::collection::vec(text(), 0..3).prop_map(Value::from)),
        prop::option::of(thing),
    );
    all.prop_map(|(text, number, share, yes, list, thing)| {
        let all = [
            ("text", text),
            ("number", number),
            ("share", share),
            ("yes", yes),
            ("list", list),
            ("thing", thing),
        ];
        all.into_iter()
            .filter_map(|(key, value)| Some((key.to_owned(), value?)))
            .collect()
    })
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let name =
        prop::sample::select(vec!["get_weather", "f", "g", "a.b-c"]).prop_map(ToOwned::to_owned);
    prop::collection::vec((name, arguments()), 1..4)
}

/// Returns a stream and a whole answer with this text after their reasoning.
fn both(parser: &str, pieces: &[&str], finish: &str) -> [Case; 2] {
    let pieces = [&[opened(parser)], pieces].concat();
    [
        stream(parser, &pieces, finish),
        whole(parser, &pieces.concat(), finish),
    ]
}

proptest! {
    #![proptest_config(crate::seeded::seeded(512))]

    #[test]
    fn answers_come_out_as_they_were_written(answer in answers::written()) {
        prop_assert_eq!(answers::check(&answer), Ok(()));
    }

    #[test]
    fn texts_come_out_as_the_slow_reader_reads_them(text in mixed::mixed()) {
        prop_assert_eq!(mixed::check(&text), Ok(()));
    }

    #[test]
    fn calls_come_out_as_they_were_written(
        format in prop::sample::select(FORMATS.to_vec()),
        calls in calls(),
        before in prop::sample::select(vec!["", "Let me see.\n\n", "<b>1 < 2</b> "]),
        places in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
    ) {
        let (format, parser) = format;
        // Formats without their own mark are alone.
        let before = if stands_alone(format) { "" } else { before };
        let text = format!("{before}{}{}", written(format, &calls), turn(parser));
        for case in both(parser, &cut(&text, &places), "stop") {
            let said = said(&case);
            prop_assert_eq!(meant(&said.calls), calls.clone(), "{}", text);
            prop_assert_eq!(said.content.as_str(), before, "{}", text);
            prop_assert_eq!(said.finish.as_str(), "tool_calls");
        }
    }

    #[test]
    fn other_text_comes_out_as_it_is(
        format in prop::sample::select(FORMATS.to_vec()),
        text in prop::collection::vec(text(), 0..6).prop_map(|parts| format!("x{}", parts.concat())),
        places in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
    ) {
        let (_, parser) = format;
        for case in both(parser, &cut(&text, &places), "stop") {
            let said = said(&case);
            prop_assert_eq!(said.content.as_str(), text.as_str());
            prop_assert!(said.calls.is_empty());
        }
    }

    /// A truncated text yields nothing that was not written, and nothing twice: each part is a beginning of the
    /// part in the full answer, or text.
    #[test]
    fn truncated_text_adds_and_repeats_nothing(
        format in prop::sample::select(FORMATS.to_vec()),
        calls in calls(),
        end in any::<prop::sample::Index>(),
    ) {
        let (format, parser) = format;
        let text = written(format, &calls);
        let short = &text[..text.floor_char_boundary(end.index(text.len() + 1))];
        let [all, _] = both(parser, &[&text], "stop");
        let [some, _] = both(parser, &[short], "length");
        let (all, some) = (said(&all), said(&some));
        prop_assert_eq!(some.finish.as_str(), "length");
        for ((name, arguments), (whole_name, whole_arguments)) in some.calls.iter().zip(&all.calls) {
            prop_assert_eq!(name, whole_name);
            // A cut may leave half an escape or half a mark, which stays as written.
            let same = arguments.char_indices().zip(whole_arguments.chars()).find(|((_, one), other)| one != other);
            let cut = same.map_or("", |((at, _), _)| &arguments[at..]);
            let ends = |cut: &str| short.ends_with(&cut.replace("\\n", "\n").replace("\\\"", "\""));
            let is_cut = ends(cut) || cut == "\\\\" || cut == "\\";
            prop_assert!(is_cut, "{} of {}", arguments, whole_arguments);
        }
        prop_assert!(some.calls.len() <= all.calls.len());
        // Headers of messages are no text.
        if is_message(format) {
            prop_assert!(short.ends_with(&some.content), "{}", some.content);
        } else if some.calls.is_empty() {
            prop_assert_eq!(some.content.as_str(), short);
        }
    }
}

fn call(name: &str, arguments: &str) -> (String, String) {
    (name.to_owned(), arguments.to_owned())
}

#[test]
fn reasoning_stands_before_calls() {
    let text = "<think>Hm </tool_call> <tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
    let expected = AnswerParts {
        reasoning: "Hm </tool_call> ".to_owned(),
        calls: vec![call("f", "{}")],
        finish: "tool_calls".to_owned(),
        ..AnswerParts::default()
    };
    assert_eq!(
        said(&stream("qwen3", &[text], "stop")),
        expected,
        "a call ends reasoning"
    );
    let f = call("f", "{}");
    for (text, reasoning) in [
        (
            "<think>try ```py\nx\n``` ok</think>[{\"name\": \"f\", \"arguments\": {}}]",
            "try ```py\nx\n``` ok",
        ),
        (
            "<think>a ```json\n[]\n```</think>\n```json\n[{\"name\": \"f\", \"arguments\": {}}]\n```",
            "a ```json\n[]\n```",
        ),
    ] {
        let said = said(&stream("xlam", &[text], "stop"));
        assert_eq!(
            (said.reasoning.as_str(), said.content.trim()),
            (reasoning, ""),
            "fences end no reasoning"
        );
        assert_eq!(said.calls, std::slice::from_ref(&f));
    }
    let text = "<think>\nHm\n</think>\n\n<tool_call>\n<function=f>\n</function>\n</tool_call>";
    let said = said(&stream("auto", &[text], "stop"));
    assert_eq!(
        (said.reasoning.as_str(), said.content.as_str()),
        ("\nHm\n", "\n\n")
    );
    assert_eq!(said.calls, [call("f", "{}")]);
}

#[test]
fn without_tools_nothing_is_a_call() {
    for (key, value) in [("tools", Value::Null), ("tool_choice", "none".into())] {
        let mut case = stream(
            "hermes",
            &["<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>"],
            "stop",
        );
        case.request[key] = value;
        let said = said(&case);
        assert!(
            said.calls.is_empty() && said.content.starts_with("<tool_call>"),
            "{said:?}"
        );
    }
}

/// Calls surrounded by other text, and calls that are malformed.
#[test]
fn calls_and_other_text() {
    let f = "{\"name\": \"f\", \"arguments\": {\"text\": \"x\"}}";
    let x = || call("f", "{\"text\": \"x\"}");
    for (parser, text, content, calls) in [
        // Text after a call stays, unless it is blank.
        ("hermes", format!("a\n<tool_call>{f}</tool_call>\n"), "a\n", vec![x()]),
        ("hermes", format!("<tool_call>{f}</tool_call>\nb"), "\nb", vec![x()]),
        ("hermes", format!("<tool_call>{f}</tool_call>b<tool_call>{f}</tool_call>"), "b", vec![x(), x()]),
        // The end of the call is missing; its arguments are missing.
        ("hermes", format!("<tool_call>{f}"), "", vec![x()]),
        ("hermes", "<tool_call>{\"name\": \"f\"}</tool_call>".to_owned(), "", vec![call("f", "{}")]),
        ("hermes", "<tool_call>{\"name\": \"f\", \"arguments\": \"\"}</tool_call>".to_owned(), "", vec![call("f", "{}")]),
        ("hermes", "<tool_call>{\"name\": \"f\", \"arguments\": null}</tool_call>a".to_owned(), "a", vec![call("f", "{}")]),
        (
            "hermes",
            "<tool_call>{\"arguments\": null, \"name\": \"f\"}</tool_call><tool_call>{\"arguments\": \" \", \"name\": \"g\"}</tool_call>".to_owned(),
            "",
            vec![call("f", "{}"), call("g", "{}")],
        ),
        // Arguments before the name, in quotes, under another name, with meaningless keys.
        (
            "hermes",
            "<tool_call>{\"arguments\": {\"n\": 1}, \"id\": 3, \"name\": \"f\"}</tool_call>".to_owned(),
            "",
            vec![call("f", "{\"n\": 1}")],
        ),
        (
            "hermes",
            "<tool_call>{\"name\": \"f\", \"parameters\": \"{\\\"n\\\": 1}\"}</tool_call>".to_owned(),
            "",
            vec![call("f", "{\"n\": 1}")],
        ),
        // An undeclared function is the client's responsibility; without a mark it is not a call.
        ("hermes", "<tool_call>{\"name\": \"h\", \"arguments\": {}}</tool_call>".to_owned(), "<tool_call>{\"name\": \"h\", \"arguments\": {}}</tool_call>", vec![]),
        ("llama3_json", "{\"name\": \"h\", \"parameters\": {}}".to_owned(), "{\"name\": \"h\", \"parameters\": {}}", vec![]),
        ("pythonic", "[1, 2]".to_owned(), "[1, 2]", vec![]),
        ("pythonic", "[f(1)]".to_owned(), "[f(1)]", vec![]),
        // A comma after the last call.
        ("pythonic", "[f(number=1),]".to_owned(), "", vec![call("f", "{\"number\": 1}")]),
        (
            "llama4_pythonic",
            "<|python_start|>[f(number=1), g(), ]<|python_end|>a".to_owned(),
            "a",
            vec![call("f", "{\"number\": 1}"), call("g", "{}")],
        ),
        ("hunyuan_a13b", format!("<tool_calls>[{f},]</tool_calls>"), "", vec![x()]),
        ("mistral", format!("[TOOL_CALLS] [{f}, {f},\n]"), "", vec![x(), x()]),
        ("granite", format!("<|tool_call|>[{f} , ]a"), "a", vec![x()]),
        ("xlam", format!("[{f},]"), "", vec![x()]),
        ("xlam", "[,]".to_owned(), "[,]", vec![]),
        // A comma after the last member.
        ("hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {\"text\": \"x\"},}</tool_call>".to_owned(), "", vec![x()]),
        ("hermes", "<tool_call>{\"arguments\": {\"text\": \"x\"}, \"name\": \"f\", }</tool_call>".to_owned(), "", vec![x()]),
        ("hermes", "<tool_call>{\"name\": \"f\",}</tool_call>".to_owned(), "", vec![call("f", "{}")]),
        ("pythonic", "[,]".to_owned(), "[,]", vec![]),
        ("pythonic", "[]".to_owned(), "[]", vec![]),
        // No calls.
        ("hermes", "<tool_call>nothing</tool_call>".to_owned(), "<tool_call>nothing</tool_call>", vec![]),
        ("hermes", "<tool_call>{\"name\": 1}</tool_call>".to_owned(), "<tool_call>{\"name\": 1}</tool_call>", vec![]),
        ("qwen3_coder", "<function=f\n".to_owned(), "<function=f\n", vec![]),
        ("mistral", "[TOOL_CALLS] none".to_owned(), "[TOOL_CALLS] none", vec![]),
        // The outer tag is missing.
        (
            "qwen3_coder",
            "<function=f>\n<parameter=number>\n7\n</parameter>\n</function>\n</tool_call>".to_owned(),
            "",
            vec![call("f", "{\"number\": 7}")],
        ),
        // Without closing tags, values end where the next key or the end of the call begins.
        (
            "qwen3_coder",
            "<tool_call>\n<function=f>\n<parameter=number>\n7\n<parameter=text>\na < b\n</function>\n</tool_call>\n<tool_call>\n<function=f>\n<parameter=text>\nc\n</tool_call>\n<tool_call>\n<function=g>\n</function>\n</tool_call>".to_owned(),
            "",
            vec![call("f", "{\"number\": 7, \"text\": \"a < b\"}"), call("f", "{\"text\": \"c\"}"), call("g", "{}")],
        ),
        (
            "glm45",
            "<tool_call>f\n<arg_key>text</arg_key>\n<arg_value>a</tool_call>\n<tool_call>g\n<arg_key>text</arg_key>\n<arg_value><arg_key></arg_value>\n</tool_call>".to_owned(),
            "",
            vec![call("f", "{\"text\": \"a\"}"), call("g", "{\"text\": \"<arg_key>\"}")],
        ),
        (
            "minimax_m2",
            "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"text\">a</invoke>\n<invoke name=\"f\">\n<parameter name=\"number\">1</minimax:tool_call>b".to_owned(),
            "b",
            vec![call("f", "{\"text\": \"a\"}"), call("f", "{\"number\": 1}")],
        ),
        (
            "minimax_m3",
            "]<]minimax[>[<tool_call>]<]minimax[>[<invoke name=\"f\">]<]minimax[>[<text>a]<]minimax[>[</invoke>]<]minimax[>[</tool_call>".to_owned(),
            "",
            vec![call("f", "{\"text\": \"a\"}")],
        ),
        // A value that does not fit its type stays a text.
        (
            "glm45",
            "<tool_call>f<arg_key>number</arg_key><arg_value>many</arg_value><arg_key>text</arg_key><arg_value>5</arg_value></tool_call>".to_owned(),
            "",
            vec![call("f", "{\"number\": \"many\", \"text\": \"5\"}")],
        ),
        // A line break before the name.
        (
            "glm45",
            "<tool_call>\nget_weather\n<arg_key>text</arg_key>\n<arg_value>a</arg_value>\n</tool_call>\n<tool_call>\n g</tool_call>".to_owned(),
            "",
            vec![call("get_weather", "{\"text\": \"a\"}"), call("g", "{}")],
        ),
        ("glm45", "<tool_call>\n<arg_key>text</arg_key>".to_owned(), "<tool_call>\n<arg_key>text</arg_key>", vec![]),
        // A name belongs to a call only if the call continues after it.
        ("glm45", "use `<tool_call>f\n` to call".to_owned(), "use `<tool_call>f\n` to call", vec![]),
        ("glm45", "<tool_call>f\n<arg_value>".to_owned(), "<tool_call>f\n<arg_value>", vec![]),
        ("glm45", "<tool_call>f\n".to_owned(), "<tool_call>f\n", vec![]),
        ("glm45", "<tool_call>f\n\n</tool_call>".to_owned(), "", vec![call("f", "{}")]),
        ("glm45", "<tool_call>f {\"number\": 1}</tool_call>".to_owned(), "", vec![call("f", "{\"number\": 1}")]),
        ("glm45", "<tool_call>h\n{\"number\": 1}".to_owned(), "<tool_call>h\n{\"number\": 1}", vec![]),
        ("qwen3", "<tool_call>f</tool_call>".to_owned(), "", vec![call("f", "{}")]),
        ("qwen3", "<tool_call>none</tool_call>".to_owned(), "<tool_call>none</tool_call>", vec![]),
        (
            "qwen3",
            "<tool_call>g<arg_key>text</arg_key><arg_value>a</arg_value></tool_call>".to_owned(),
            "",
            vec![call("g", "{\"text\": \"a\"}")],
        ),
        ("qwen3_coder", "<function=f> calls f".to_owned(), "<function=f> calls f", vec![]),
        // An open object says that the call breaks off.
        ("qwen3_coder", "<tool_call>\n<function=f>".to_owned(), "", vec![call("f", "{")]),
        (
            "minimax_m2",
            "<minimax:tool_call><invoke name=\"f\"></invoke><invoke name=\"f\">? </minimax:tool_call>".to_owned(),
            "<invoke name=\"f\">? </minimax:tool_call>",
            vec![call("f", "{}")],
        ),
        // All parameters in one object.
        (
            "deepseek_v32",
            "<｜DSML｜function_calls><｜DSML｜invoke name=\"f\">{\"n\": 1}</｜DSML｜invoke></｜DSML｜function_calls>".to_owned(),
            "",
            vec![call("f", "{\"n\": 1}")],
        ),
        // Nested elements.
        (
            "minimax_m3",
            "]<]minimax[>[<tool_call>]<]minimax[>[<invoke name=\"f\">]<]minimax[>[<list>]<]minimax[>[<item>a]<]minimax[>[</item>]<]minimax[>[<item>1]<]minimax[>[</item>]<]minimax[>[</list>]<]minimax[>[<thing>]<]minimax[>[<k>v]<]minimax[>[</k>]<]minimax[>[</thing>]<]minimax[>[</invoke>]<]minimax[>[</tool_call>".to_owned(),
            "",
            vec![call("f", "{\"list\": [\"a\", 1], \"thing\": {\"k\": \"v\"}}")],
        ),
        // The word before the colon is missing.
        (
            "gemma4",
            "<|tool_call>:f{text:<|\"|>a<|\"|>}<tool_call|>".to_owned(),
            "",
            vec![call("f", "{\"text\": \"a\"}")],
        ),
        // A number is no name of several tools.
        ("kimi_k2", "<|tool_call_begin|>7<|tool_call_argument_begin|>{}<|tool_call_end|>".to_owned(), "<|tool_call_begin|>7<|tool_call_argument_begin|>{}<|tool_call_end|>", vec![]),
        // Code fences around a call, and around other text.
        ("xlam", format!("```json\n[{f}]\n```"), "", vec![x()]),
        ("xlam", "```json\n[1]\n```".to_owned(), "```json\n[1]\n```", vec![]),
        ("ernie45", format!("Hm</think>\n<tool_call>\n{f}\n</tool_call>"), "", vec![x()]),
        // Marks around the answer.
        ("ernie45", "Hm</think>\n\n<response>\nYes\nNo\n</response>\n".to_owned(), "Yes\nNo", vec![]),
        ("ernie45", "Hm</think>\nNo <response> here".to_owned(), "No <response> here", vec![]),
        // No reasoning precedes it.
        ("ernie45", "<response>\nYes\n</response>\n".to_owned(), "Yes", vec![]),
        // The end tag of the answer precedes a call.
        ("ernie45", format!("Hm</think>\n<response>\nYes\n</response>\n<tool_call>\n{f}\n</tool_call>"), "Yes", vec![x()]),
        ("ernie45", format!("Hm</think>\n</response>\n<tool_call>\n{f}\n</tool_call>\n"), "", vec![x()]),
        (
            "hunyuan_a13b",
            format!("<think>\nHm\n</think>\n<answer>\nYes\n</answer>\n<tool_calls>[{f}]</tool_calls>"),
            "Yes",
            vec![x()],
        ),
        (
            "hunyuan_a13b",
            format!("<answer>Yes</answer> <tool_calls> b <tool_calls>[{f}]</tool_calls>"),
            "Yes</answer> <tool_calls> b ",
            vec![x()],
        ),
        ("ernie45", "Hm</think>No</response>\n<tool".to_owned(), "No</response>\n<tool", vec![]),
        (
            "hunyuan_a13b",
            format!("<think>\nHm\n</think>\n<answer>\nYes <tool_calls>[{f}]</tool_calls>\n</answer>"),
            "Yes ",
            vec![x()],
        ),
        (
            "cohere_command3",
            "<|START_THINKING|>Hm<|END_THINKING|><|START_RESPONSE|>Yes<|END_RESPONSE|><|END_OF_TURN_TOKEN|>".to_owned(),
            "Yes",
            vec![],
        ),
        (
            "cohere_command4",
            "<|START_THINKING|>Hm<|END_THINKING|><|START_TEXT|>Yes<|END_TEXT|><|START_ACTION|>[{\"tool_name\": \"f\", \"parameters\": {\"x\": 1}}]<|END_ACTION|><|END_OF_TURN_TOKEN|>".to_owned(),
            "Yes",
            vec![call("f", "{\"x\": 1}")],
        ),
        ("hy_v3", "<tool_calls>\n<tool_call>f<tool_sep>\n</tool_call>\n</tool_calls>".to_owned(), "", vec![call("f", "{}")]),
        ("hunyuan_a13b", "<answer>a</answer>b".to_owned(), "a</answer>b", vec![]),
        (
            "functiongemma",
            "<start_function_call>call:f{text:<escape>a, b<escape>}<end_function_call>".to_owned(),
            "",
            vec![call("f", "{\"text\": \"a, b\"}")],
        ),
        // The end-of-turn token is removed only at the end.
        ("mistral", "a </s> b</s>\n".to_owned(), "a </s> b", vec![]),
    ] {
        let characters: Vec<_> = text.chars().map(String::from).collect();
        let pieces: Vec<_> = characters.iter().map(String::as_str).collect();
        for case in [stream(parser, &[&text], "stop"), stream(parser, &pieces, "stop"), whole(parser, &text, "stop")] {
            let said = said(&case);
            assert_eq!((said.content.trim_start_matches('\n'), &said.calls), (content.trim_start_matches('\n'), &calls), "{parser}: {text}");
        }
    }
}

/// Engines without a grammar for the model's format constrain a required call to a JSON list.
#[test]
fn a_required_call_may_be_a_bare_list() {
    let text = " [{\"name\": \"f\", \"parameters\": {\"number\": 1}}]";
    for (choice, calls) in [
        (json!("required"), vec![call("f", "{\"number\": 1}")]),
        (
            json!({"type": "function", "function": {"name": "f"}}),
            vec![call("f", "{\"number\": 1}")],
        ),
        (json!("auto"), vec![]),
    ] {
        let mut case = stream("hermes", &[text], "stop");
        case.request["tool_choice"] = choice;
        assert_eq!(said(&case).calls, calls);
    }
}

/// The type of a value may also be given by a reference or a list in the schema.
#[test]
fn types_may_stand_elsewhere() {
    let parameters = json!({
        "type": "object",
        "properties": {
            "count": {"$ref": "#/$defs/Count"},
            "level": {"$ref": "#/definitions/a~1b"},
            "whole": {"allOf": [{"$ref": "#/$defs/Count"}], "description": "d"},
            "maybe": {"anyOf": [{"$ref": "#/$defs/Count"}, {"type": "null"}]},
            "only": {"anyOf": [{"type": "boolean"}]},
            "fixed": {"const": 3},
            "named": {"const": "3"},
            "listed": {"enum": [1, 2]},
            "words": {"type": "string", "enum": ["1", null]},
            "round": {"$ref": "#/$defs/Round"},
            "nowhere": {"$ref": "#/$defs/none"},
            "away": {"$ref": "https://example.com/schema"},
        },
        "$defs": {
            "Count": {"$ref": "#/$defs/Whole"},
            "Whole": {"type": "integer"},
            "Round": {"anyOf": [{"$ref": "#/$defs/Round"}, {"$ref": "#/$defs/Whole"}]},
        },
        "definitions": {"a/b": {"type": "number"}},
    });
    let value = |key: &str, text: &str| {
        let call = [(
            "f".to_owned(),
            Map::from_iter([(key.to_owned(), Value::from(text))]),
        )];
        let mut case = stream("qwen3_coder", &[&written("qwen3_coder", &call)], "stop");
        case.request["tools"] =
            json!([{"type": "function", "function": {"name": "f", "parameters": parameters}}]);
        let arguments: Value = serde_json::from_str(&said(&case).calls[0].1).unwrap();
        arguments[key].clone()
    };
    for (key, text, expected) in [
        ("count", "5", json!(5)),
        ("level", "0.5", json!(0.5)),
        ("whole", "5", json!(5)),
        ("maybe", "5", json!(5)),
        ("maybe", "null", Value::Null),
        ("only", "true", json!(true)),
        ("fixed", "3", json!(3)),
        ("named", "3", json!("3")),
        ("listed", "2", json!(2)),
        ("words", "null", json!("null")),
        ("round", "5", json!(5)),
        ("nowhere", "5", json!("5")),
        ("away", "5", json!("5")),
    ] {
        assert_eq!(value(key, text), expected, "{key}");
    }
    // The whole schema may be a reference.
    let mut case = stream(
        "glm45",
        &["<tool_call>f<arg_key>n</arg_key><arg_value>5</arg_value></tool_call>"],
        "stop",
    );
    case.request["tools"] = json!([{"type": "function", "function": {"name": "f", "parameters": {
        "$ref": "#/$defs/All", "$defs": {"All": {"properties": {"n": {"type": "integer"}}}}}}}]);
    assert_eq!(said(&case).calls, [call("f", "{\"n\": 5}")]);
}
