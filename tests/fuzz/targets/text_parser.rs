//! Reasoning and tool calls that an engine left in the text: no panic, canonical grammar, independence of the cuts,
//! and text that is not a call stays unchanged.

use super::feed::Feed;
use super::harmony::{collected, stream, text_of};
use crate::cases::Case;
use crate::laws::response;
use samewire::wire::Api;
use serde_json::json;

const PARSERS: [&str; 24] = [
    "auto", "hermes", "qwen3", "qwen3_coder", "glm45", "llama3_json", "pythonic", "olmo3", "lfm2", "mistral",
    "deepseek_v3", "deepseek_v31", "deepseek_v32", "deepseek_r1", "kimi_k2", "minimax_m2", "minimax_m3", "gemma4",
    "step3", "seed_oss", "granite", "xlam", "internlm", "phi4_mini_json",
];

/// Largest text in bytes: in longer ones, what may be a name depends on when it is seen.
const MOST: usize = 2000;

pub fn run(data: &[u8]) {
    let mut feed = Feed(data);
    let parser = PARSERS[usize::from(feed.byte()) % PARSERS.len()];
    let way = feed.byte();
    let size = usize::from(feed.byte()) + 1;
    let text = String::from_utf8_lossy(feed.rest()).into_owned();
    let text = text.get(..text.floor_char_boundary(MOST)).unwrap_or("").to_owned();
    let finish = if way & 1 == 0 { "stop" } else { "length" };
    let characters: Vec<char> = text.chars().collect();
    let pieces: Vec<String> = characters.chunks(size).map(|piece| piece.iter().collect()).collect();
    let tools = json!([{"type": "function", "function": {"name": "f", "parameters": {"properties": {
        "n": {"type": "integer"}, "o": {"type": "object"}, "s": {"type": "string"}}}}}]);
    let [one, cut] = [vec![text.clone()], pieces].map(|pieces| Case {
        request: json!({"model": "m", "stream": true, "tools": tools}),
        options: json!({"parser": parser}),
        ..stream(Api::Chat, &pieces, finish)
    });
    let answer = collected(&one, &cut, &format!("{parser}: {text:?} in pieces of {size}"));
    if !text.contains(['<', '[', '{', ']', '`', 'f']) && !["olmo3", "minimax_m2", "step3", "deepseek_r1"].contains(&parser) {
        assert_eq!(text_of(&answer), text, "{answer}");
    }
    let responses = Case { options: json!({"parser": parser}), ..stream(Api::Responses, &[text], finish) };
    response::check(&responses, &[size]).unwrap_or_else(|wrong| panic!("{wrong}"));
}

pub fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        ("qwen3", "<think>\nA\n</think>\n\nB<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"x\"}}\n</tool_call>"),
        ("auto", "<tool_call>\n<function=f>\n<parameter=n>\n1\n</parameter>\n</function>\n</tool_call>"),
        ("qwen3_coder", "<function=f>\n<parameter=s>\n</parameter>\n</function>"),
        ("glm45", "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>x</arg_value>\n</tool_call>"),
        ("llama3_json", "{\"name\": \"f\", \"parameters\": {\"n\": 1}}; {\"name\": \"f\", \"parameters\": {}}"),
        ("pythonic", "[f(n=1, s='x\\n', o={'k': [True, None]}), f()]"),
        ("olmo3", "A</think><function_calls>\nf(s=\"x\")\nf()\n</function_calls>"),
        ("lfm2", "<|tool_call_start|>[f(n=-1.5)]<|tool_call_end|>B"),
        ("mistral", "[THINK]A[/THINK][TOOL_CALLS]f[CALL_ID]abc[ARGS]{\"n\": 1}</s>"),
        ("mistral", "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}}]"),
        (
            "deepseek_v3",
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        ),
        ("deepseek_v31", "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"s\": \"x\"}<｜tool▁call▁end｜>"),
        (
            "deepseek_v32",
            "<｜DSML｜function_calls><｜DSML｜invoke name=\"f\"><｜DSML｜parameter name=\"n\" string=\"false\">1</｜DSML｜parameter></｜DSML｜invoke></｜DSML｜function_calls>",
        ),
        ("deepseek_r1", "A</think>B"),
        (
            "kimi_k2",
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
        ),
        (
            "minimax_m2",
            "</think><minimax:tool_call><invoke name=\"f\"><parameter name=\"o\">{}</parameter></invoke></minimax:tool_call>",
        ),
        (
            "minimax_m3",
            "]<]minimax[>[<tool_call>]<]minimax[>[<invoke name=\"f\">]<]minimax[>[<s>x]<]minimax[>[</s>]<]minimax[>[</invoke>]<]minimax[>[</tool_call>",
        ),
        ("gemma4", "<|channel>thought\nA<channel|><|tool_call>call:f{s:<|\"|>x<|\"|>,n:1,o:{k:[null]}}<tool_call|><turn|>"),
        (
            "step3",
            "</think><｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name=\"f\"><steptml:parameter name=\"s\">x</steptml:parameter></steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>",
        ),
        ("seed_oss", "<seed:think>A</seed:think><seed:tool_call><function=f><parameter=s>x</parameter></function></seed:tool_call>"),
        ("granite", "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"n\": 1}}]"),
        ("xlam", "```json\n[{\"name\": \"f\", \"arguments\": {}}]\n```"),
        ("internlm", "<|action_start|><|plugin|>{\"name\": \"f\", \"parameters\": {}}<|action_end|>"),
        ("phi4_mini_json", "functools[{\"name\": \"f\", \"arguments\": {\"s\": \"x\"}}]"),
    ];
    let mut all = Vec::new();
    for (at, (parser, text)) in (0_u8..).zip(texts) {
        let place = PARSERS.iter().position(|known| *known == parser).unwrap_or_default();
        let place = u8::try_from(place).unwrap_or_default();
        all.push([&[place, at % 2, at % 7], text.as_bytes()].concat());
    }
    all
}
