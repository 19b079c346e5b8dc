//! Answers whose text the engine left unparsed: reasoning, calls and Harmony in every notation.

use super::{BOUND_OF_FAST, Form, PIECE, case, chunk, event, grow_evenly, of_chat};
use crate::table::rows;
use bytes::Bytes;
use samewire::engine::named;
use samewire::plan::{Route, shape};
use samewire::request::ChatRequest;
use samewire::wire::{Api, Rewriter, Stamp, Vocabulary};
use serde_json::{Value, json};
use std::sync::Arc;

/// Member of an answer with a call.
const CALL: &str = "\"tool_calls\"";

/// Ways to write a call of `f` with the argument `text`, which takes the place of `…`: the parser is the first word,
/// unless another is named.
const CALLS: &str = r#"
hermes
    <tool_call>\n{"name": "f", "arguments": {"text": "…"}}\n</tool_call>
hermes, quoted
    <tool_call>\n{"name": "f", "arguments": "{\"text\": \"…\"}"}\n</tool_call>
hermes, members behind
    <tool_call>\n{"name": "f", "arguments": {}, "x": "…"}\n</tool_call>
hermes after reasoning by qwen3
    <think>r</think>\n<tool_call>\n{"name": "f", "arguments": {"text": "…"}}\n</tool_call>
qwen3_coder
    <tool_call>\n<function=f>\n<parameter=text>\n…\n</parameter>\n</function>\n</tool_call>
qwen3_coder, object
    <tool_call>\n<function=f>\n<parameter=thing>\n{"a": "…"}\n</parameter>\n</function>\n</tool_call>
qwen3_coder, one object
    <tool_call>\n<function=f>\n{"text": "…"}</function>\n</tool_call>
glm45
    <tool_call>f\n<arg_key>text</arg_key>\n<arg_value>…</arg_value>\n</tool_call>
glm45, object
    <tool_call>f\n<arg_key>thing</arg_key>\n<arg_value>{"a": "…"}</arg_value>\n</tool_call>
hy_v3, object
    <tool_calls>\n<tool_call>f<tool_sep>\n<arg_key>thing</arg_key>\n<arg_value>{"a": "…"}</arg_value>\n</tool_call>\n</tool_calls>
minimax_m2
    <minimax:tool_call>\n<invoke name="f">\n<parameter name="text">…</parameter>\n</invoke>\n</minimax:tool_call>
minimax_m2, object
    <minimax:tool_call>\n<invoke name="f">\n<parameter name="thing">{"a": "…"}</parameter>\n</invoke>\n</minimax:tool_call>
minimax_m3
    ]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name="f">]<]minimax[>[<text>…]<]minimax[>[</text>]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>
minimax_m3, object
    ]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name="f">]<]minimax[>[<thing>{"a": "…"}]<]minimax[>[</thing>]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>
seed_oss
    <seed:tool_call>\n<function=f>\n<parameter=text>…</parameter>\n</function>\n</seed:tool_call>
step3, object
    <｜tool_calls_begin｜>\n<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="f"><steptml:parameter name="thing">{"a": "…"}</steptml:parameter></steptml:invoke><｜tool_call_end｜>\n<｜tool_calls_end｜>
deepseek_v3
    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{"text": "…"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>
deepseek_v31
    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{"text": "…"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>
deepseek_v31, quoted
    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>"{\"text\": \"…\"}"<｜tool▁call▁end｜><｜tool▁calls▁end｜>
deepseek_v32
    <｜DSML｜function_calls>\n<｜DSML｜invoke name="f">\n<｜DSML｜parameter name="text" string="true">…</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>
deepseek_v32, object
    <｜DSML｜function_calls>\n<｜DSML｜invoke name="f">\n<｜DSML｜parameter name="thing" string="false">{"a": "…"}</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>
kimi_k2
    <|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"text": "…"}<|tool_call_end|><|tool_calls_section_end|>
mistral
    [TOOL_CALLS]f[ARGS]{"text": "…"}
mistral, list
    [TOOL_CALLS] [{"name": "f", "arguments": {"text": "…"}}]
llama3_json
    {"name": "f", "parameters": {"text": "…"}}
llama3_json, quoted
    {"name": "f", "parameters": "{\"text\": \"…\"}"}
pythonic
    [f(text='…')]
pythonic, list
    [f(list=['x', 'twenty four letters each', '…'])]
olmo3
    </think><function_calls>f(text='…')</function_calls>
lfm2
    <|tool_call_start|>[f(text="…")]<|tool_call_end|>
gemma4
    <|tool_call>call:f{text:<|"|>…<|"|>}<tool_call|>
internlm
    <|action_start|><|plugin|>\n{"name": "f", "parameters": {"text": "…"}}<|action_end|>
granite
    <|tool_call|>[{"name": "f", "arguments": {"text": "…"}}]
granite, quoted
    <|tool_call|>[{"name": "f", "arguments": "{\"text\": \"…\"}"}]
phi4_mini_json
    functools[{"name": "f", "arguments": {"text": "…"}}]
cohere by cohere_command3
    <|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "f", "parameters": {"text": "…"}}\n]<|END_ACTION|>
"#;

/// Returns a form whose text has these pieces between its beginning and its end.
fn of_text(name: &str, options: Value, before: &str, piece: &str, after: &str) -> Form {
    let parameters = json!({"type": "object", "properties": {
        "text": {"type": "string"}, "list": {"type": "array"}, "thing": {"type": "object"}}});
    let tool = json!({"type": "function", "function": {"name": "f", "parameters": parameters}});
    let case = case(
        Api::Chat,
        Api::Chat,
        "generic",
        &json!({"tools": [tool]}),
        options,
    );
    let piece = piece.to_owned();
    let mut form = of_chat(
        name,
        case,
        &[json!({"content": before})],
        move |_| json!({"content": piece}),
    );
    form.after.insert(0, chunk(&json!({"content": after})));
    form
}

#[test]
fn calls() {
    let forms = rows(CALLS).into_iter().map(|(name, [call])| {
        let (name, parser) = name
            .split_once(" by ")
            .unwrap_or_else(|| (name, name.split(',').next().unwrap()));
        let call = call.replace("\\n", "\n");
        let (before, after) = call.split_once('…').unwrap();
        let form = of_text(name, json!({"parser": parser}), before, PIECE, after);
        // A value that is no text waits until it is complete.
        let bound = if name.ends_with("object") {
            BOUND_OF_FAST
        } else {
            form.bound
        };
        Form {
            shows: CALL,
            bound,
            ..form
        }
    });
    grow_evenly(forms.collect());
}

/// Values that contain tags, each of which may end the value.
#[test]
fn tags_in_values() {
    let value = |parameter: &str, name: &str, before: &str, piece: &str, after: &str| {
        let before = format!("<tool_call>\n<function=f>\n<parameter={parameter}>\n{before}");
        let after = format!("{after}\n</parameter>\n</function>\n</tool_call>");
        Form {
            shows: CALL,
            ..of_text(
                name,
                json!({"parser": "qwen3_coder"}),
                &before,
                piece,
                &after,
            )
        }
    };
    let quoted = "<function=other>\n<parameter=text>\n1\n</parameter>\n</function>\n";
    let text = |name: &str, piece: &str| value("text", name, "a", piece, ".");
    grow_evenly(vec![
        text("closing tags in text", "</parameter> here "),
        text("closing tags of a call in text", "</function>"),
        text(
            "all closing tags in text",
            "</parameter></function></tool_call ",
        ),
        text("keys in text", "<parameter=other> here "),
        text("pieces that begin like arguments", "{\n"),
        text(
            "beginnings of calls in text",
            "<function=f>\n<parameter=text>\n",
        ),
        text("quoted calls in text", quoted),
        value(
            "list",
            "closing tags in a list",
            "[\"",
            "x]</parameter>",
            "\"]",
        ),
    ]);
}

/// Text that is held until more of it has come: the beginning of a marker, and a candidate for a call.
#[test]
fn held_text() {
    let parser = |name: &str| json!({"parser": name});
    let mention = format!("{PIECE}a <tool_call> is no call");
    let early = "<tool_call>\n{\"arguments\": {\"text\": \"";
    let end = "\"}, \"name\": \"f\"}\n</tool_call>";
    let early = of_text(
        "arguments before the name",
        parser("hermes"),
        early,
        "twelve bytes",
        end,
    );
    grow_evenly(vec![
        of_text(
            "markers cut off",
            parser("hermes"),
            "a",
            &format!("{PIECE} <tool_c"),
            "all>",
        ),
        of_text("markers mentioned", parser("hermes"), "a", &mention, "b"),
        of_text(
            "markers in reasoning",
            parser("qwen3"),
            "<think>",
            &mention,
            "</think>b",
        ),
        Form {
            shows: CALL,
            ..early
        },
    ]);
}

/// Places that may have much white space: the parser, what precedes and follows it, and what the answer shows.
const BLANKS: [(&str, &str, &str, &str, &str); 12] = [
    (
        "before all",
        "hermes",
        " ",
        "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>",
        CALL,
    ),
    (
        "before reasoning",
        "qwen3",
        " ",
        "<think>r</think>a",
        "\"r\"",
    ),
    ("in reasoning", "qwen3", "<think>r", "r</think>a", "\"r"),
    ("after reasoning", "qwen3", "<think>r</think>", "a", "\"r\""),
    (
        "before an answer",
        "ernie45",
        "<think>r</think>",
        "<response>a</response>",
        "\"a",
    ),
    (
        "in JSON",
        "hermes",
        "<tool_call>\n{\"name\": \"f\", \"arguments\": {",
        "}}\n</tool_call>",
        CALL,
    ),
    (
        "after JSON",
        "hermes",
        "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}",
        "</tool_call>",
        CALL,
    ),
    (
        "after a call",
        "hermes",
        "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>",
        "a",
        CALL,
    ),
    ("in a pythonic call", "pythonic", "[f(text='x'", ")]", CALL),
    (
        "in a pythonic string",
        "pythonic",
        "[f(text='x",
        "')]",
        CALL,
    ),
    (
        "between tags",
        "qwen3_coder",
        "<tool_call>\n<function=f>\n<parameter=text>\nx\n</parameter>\n",
        "</function>\n</tool_call>",
        CALL,
    ),
    (
        "after a named call",
        "kimi_k2",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}",
        "<|tool_call_end|><|tool_calls_section_end|>",
        CALL,
    ),
];

#[test]
fn white_space() {
    let blank = " \n  \n   \n    ".repeat(2);
    let form = |name: &str, options: Value, before: &str, after: &str, shows: &'static str| {
        let form = of_text(&format!("blanks {name}"), options, before, &blank, after);
        Form { shows, ..form }
    };
    let all = BLANKS.map(|(name, parser, before, after, shows)| {
        form(name, json!({"parser": parser}), before, after, shows)
    });
    let trims = json!({"parser": "qwen3", "think": {"trim": true}});
    let trimmed = form(
        "in trimmed reasoning",
        trims,
        "<think>r",
        "r</think>a",
        "\"r",
    );
    grow_evenly(all.into_iter().chain([trimmed]).collect());
}

#[test]
fn harmony() {
    let text = |name: &str, before: &str| {
        of_text(
            name,
            json!({"harmony": "text"}),
            before,
            PIECE,
            "<|return|>",
        )
    };
    let cut = of_text(
        "Harmony, markers cut off",
        json!({"harmony": "text"}),
        "<|channel|>final<|message|>",
        &format!("{PIECE} <|retur"),
        "<|return|>",
    );
    let messages = of_text(
        "Harmony, many messages",
        json!({"harmony": "text"}),
        "",
        &format!("<|channel|>final<|message|>{PIECE}<|end|><|start|>assistant"),
        "<|channel|>final<|message|>x<|return|>",
    );
    let before = "<|channel|>commentary to=functions.f<|message|>{\"text\": \"";
    let call = of_text(
        "Harmony, a call",
        json!({"harmony": "text"}),
        before,
        PIECE,
        "\"}<|call|>",
    );
    let long = Form {
        shows: CALL,
        ..call
    };
    grow_evenly(vec![
        text("Harmony", "<|channel|>final<|message|>"),
        text("Harmony, reasoning", "<|channel|>analysis<|message|>"),
        long,
        cut,
        messages,
        by_tokens(),
    ]);
}

/// Returns Harmony in which the token ids decide which texts are markers.
fn by_tokens() -> Form {
    // The vocabulary has the token `twenty four letters each` alone.
    let vocabulary =
        Arc::new(Vocabulary::read("dHdlbnR5IGZvdXIgbGV0dGVycyBlYWNo 0\nZmluYWw= 1\n").unwrap());
    let rewriter = move || {
        let body = Bytes::from_static(
            b"{\"model\":\"m\",\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}",
        );
        let ask = ChatRequest::recall(Api::Chat, &body).unwrap();
        let options = Arc::new(serde_json::from_value(json!({"harmony": "tokens"})).unwrap());
        let route = Route::new(named("vllm").unwrap(), options, 1 << 20);
        let route = Route {
            vocabulary: Some(Arc::clone(&vocabulary)),
            ..route
        };
        Rewriter::new(
            shape(&ask, &route),
            Stamp {
                now: 7,
                ..Stamp::default()
            },
        )
    };
    let tokens = |text: &str, ids: &[u32]| {
        let choice = json!({"index": 0, "delta": {"content": text}, "token_ids": ids});
        event(&json!({"id": "chatcmpl-1", "created": 5, "model": "m", "choices": [choice]}))
    };
    let form = of_text("Harmony by tokens", json!({}), "", "", "");
    Form {
        rewriter: Box::new(rewriter),
        before: vec![tokens(
            "<|channel|>final<|message|>",
            &[200_005, 1, 200_008],
        )],
        delta: Box::new(move |_| tokens(PIECE, &[0])),
        after: super::end("stop"),
        ..form
    }
}
