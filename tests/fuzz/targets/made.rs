//! Exchanges made of bytes: six bytes select the client's request and the proxy's options, the rest is the engine's
//! answer.

use super::feed::Feed;
use crate::cases::{
    Case, captures, fixtures, message_vectors, response_vectors, responses, vectors,
};
use samewire::wire::{Api, Ending};
use serde_json::{Value, json};

/// Number of bytes that select request and options.
const HEAD: usize = 6;

const ENGINES: [&str; 4] = ["vllm", "sglang", "auto", "generic"];

/// Exchange made from the fuzzer's bytes, and the sizes of the reads that its input is cut into.
pub(crate) struct Made {
    pub(crate) case: Case,
    pub(crate) sizes: [usize; 2],
}

/// Makes an exchange of Chat Completions or Completions.
pub(crate) fn exchange(data: &[u8]) -> Made {
    let (head, [one, other], input) = head(data);
    let asked = head[0];
    let flag = |bit: u8| asked >> bit & 1 == 1;
    let api = if flag(7) { Api::Completions } else { Api::Chat };
    let mut request = json!({"model": "m", "stream": flag(0)});
    if flag(0) && flag(1) {
        request["stream_options"] = json!({
            "include_usage": true, "continuous_usage_stats": flag(2), "include_obfuscation": flag(2),
        });
    }
    if flag(3) {
        request["logprobs"] = if api == Api::Chat {
            json!(true)
        } else {
            json!(1)
        };
    }
    if flag(5) && api == Api::Chat {
        request["tool_choice"] = json!({"type": "function", "function": {"name": "forced"}});
    }
    if flag(6) {
        request["max_tokens"] = json!(5);
    }
    let n = head[1] >> 4 & 3;
    if n > 0 {
        request["n"] = json!(n);
    }
    let case = case(
        api,
        api,
        head[1],
        request,
        options(head[2], head[3]),
        input,
        !flag(4),
    );
    Made {
        case,
        sizes: [one, other],
    }
}

/// Makes an exchange with a Responses client, whose engine gets requests in this API.
pub(crate) fn response(upstream: Api, data: &[u8]) -> Made {
    let (head, [one, other], input) = head(data);
    let flag = |bit: u8| head[0] >> bit & 1 == 1;
    let mut request = json!({"model": "m", "stream": flag(0)});
    if flag(3) {
        request["include"] = json!(["message.output_text.logprobs"]);
    }
    let mut options = json!({});
    let dialects = ["openai", "openresponses", "codex-legacy", "openai"];
    let reasoning = ["content", "summary", "both", "none"];
    options["responses_dialect"] = json!(dialects[usize::from(head[2] & 3)]);
    options["responses_reasoning"] = json!(reasoning[usize::from(head[2] >> 2 & 3)]);
    if head[2] >> 4 & 1 == 1 {
        options["invalid_event"] = json!("skip");
    }
    let case = case(
        Api::Responses,
        upstream,
        head[1],
        request,
        options,
        input,
        !flag(4),
    );
    Made {
        case,
        sizes: [one, other],
    }
}

/// Makes an exchange with a client of Messages, whose engine gets requests in this API.
pub(crate) fn message(upstream: Api, data: &[u8]) -> Made {
    let (head, [one, other], input) = head(data);
    let flag = |bit: u8| head[0] >> bit & 1 == 1;
    let mut request = json!({"model": "m", "stream": flag(0), "messages": []});
    if flag(1) {
        request["max_tokens"] = json!(5);
    }
    if flag(2) {
        request["stop_sequences"] = json!(["a"]);
    }
    if flag(3) {
        request["messages"] = json!([{"role": "assistant", "content": [
            {"type": "tool_use", "id": "call_1", "name": "f", "input": {}},
        ]}]);
    }
    let shown = ["request", "shown", "omitted", "none"];
    let mut options = json!({ "messages_thinking": shown[usize::from(head[2] & 3)] });
    if head[2] >> 4 & 1 == 1 {
        options["invalid_event"] = json!("skip");
    }
    let case = case(
        Api::Messages,
        upstream,
        head[1],
        request,
        options,
        input,
        !flag(4),
    );
    Made {
        case,
        sizes: [one, other],
    }
}

fn case(
    api: Api,
    upstream: Api,
    way: u8,
    request: Value,
    options: Value,
    input: &[u8],
    events: bool,
) -> Case {
    Case {
        name: "fuzzed".to_owned(),
        api,
        upstream,
        engine: ENGINES[usize::from(way & 3)].to_owned(),
        request,
        options,
        input: input.to_vec(),
        events,
        ending: [Ending::Clean, Ending::Reset, Ending::Timeout, Ending::Clean]
            [usize::from(way >> 2 & 3)],
        now: 1_795_000_000,
        ..Case::default()
    }
}

fn head(data: &[u8]) -> ([u8; 4], [usize; 2], &[u8]) {
    let mut feed = Feed(data);
    let head = [feed.byte(), feed.byte(), feed.byte(), feed.byte()];
    let sizes = [usize::from(feed.byte()) + 1, usize::from(feed.byte()) + 1];
    (head, sizes, feed.rest())
}

/// Makes options of the wire format; zeros give the defaults.
pub(crate) fn options(one: u8, other: u8) -> Value {
    let mut options = json!({});
    let mut set = |on: bool, name: &str, value: Value| {
        if on {
            options[name] = value;
        }
    };
    let flag = |bit: u8| one >> bit & 1 == 1;
    set(flag(0), "role_frame", json!("openai"));
    set(flag(1), "named_tool_choice_finish", json!("openai"));
    set(flag(2), "missing_finish", json!("stop"));
    set(flag(3), "error_frame", json!("flat+nested"));
    set(flag(4), "invalid_event", json!("skip"));
    set(flag(5), "unknown_fields", json!("pass"));
    set(flag(6), "tool_call_ids", json!("preserve"));
    set(flag(7), "continuous_usage", json!("pass"));
    let of = |bit: u8| usize::from(other >> bit & 3);
    set(
        of(0) > 0,
        "reasoning_field",
        json!(["", "reasoning", "reasoning_content", "none"][of(0)]),
    );
    set(
        of(2) > 0,
        "system_fingerprint",
        json!(["", "hash", "pass", "hash"][of(2)]),
    );
    set(
        of(4) > 0,
        "model_name",
        json!(["", "requested", "an-alias", "requested"][of(4)]),
    );
    set(other >> 6 & 1 == 1, "force_usage", json!(true));
    set(other >> 7 & 1 == 1, "stop_details", json!(true));
    options
}

/// Returns the bytes that make this exchange, as far as bytes can.
fn of(case: &Case) -> Vec<u8> {
    let request = &case.request;
    let usage = &request["stream_options"];
    let flags = [
        case.streams(),
        usage["include_usage"] == true,
        usage["continuous_usage_stats"] == true,
        request["logprobs"] == true
            || request["logprobs"].is_u64()
            || request["include"].is_array(),
        !case.events,
        request["tool_choice"]["function"]["name"].is_string(),
        false,
        case.api == Api::Completions,
    ];
    let asked = (0..8)
        .zip(flags)
        .fold(0, |all, (bit, on)| all | u8::from(on) << bit);
    let engine = ENGINES
        .iter()
        .position(|name| *name == case.engine)
        .unwrap_or(2);
    let ending = u8::from(case.ending == Ending::Reset);
    let n = request["n"].as_u64().unwrap_or(0).min(3) as u8;
    let mut bytes = vec![asked, engine as u8 | ending << 2 | n << 4, 0, 0, 6, 40];
    assert_eq!(bytes.len(), HEAD);
    bytes.extend_from_slice(&case.input);
    bytes
}

/// Largest seed, in bytes: longer ones teach a fuzzer nothing and slow it down.
const LONGEST: usize = 6_000;

fn short(case: &Case) -> bool {
    case.status == 200 && case.input.len() <= LONGEST
}

/// Returns every short exchange of Chat Completions and Completions.
pub(crate) fn exchanges() -> Vec<Case> {
    let captures = captures().into_iter().map(|fixture| fixture.case);
    captures
        .chain(vectors().into_iter().map(|(case, _)| case))
        .filter(short)
        .collect()
}

/// Returns the bytes of these cases.
pub(crate) fn seeds(cases: &[Case]) -> Vec<Vec<u8>> {
    cases.iter().map(of).collect()
}

/// Returns every short exchange of Responses.
pub(crate) fn answers() -> Vec<Case> {
    let captures = responses().into_iter().map(|fixture| fixture.case);
    let vectors = response_vectors().into_iter().map(|(case, _)| case);
    captures
        .chain(vectors)
        .filter(|case| short(case) && case.upstream == Api::Responses)
        .collect()
}

/// Returns every short exchange of Messages with an engine whose own route is used.
pub(crate) fn messages() -> Vec<Case> {
    let native = |(case, vector): (Case, Value)| match vector["expected"].as_array() {
        _ if case.upstream == Api::Messages => Some(case),
        // The canonical form is one that an engine may send.
        Some(lines) => {
            let body: String = lines
                .iter()
                .map(|line| format!("{}\n", line.as_str().unwrap_or_default()))
                .collect();
            Some(case.fed_back(&body))
        }
        None => None,
    };
    message_vectors()
        .into_iter()
        .filter_map(native)
        .filter(short)
        .collect()
}

/// Returns the engine's bytes of inputs that were once answered wrongly.
pub(crate) fn regressions() -> Vec<Vec<u8>> {
    let mut folders: Vec<_> = std::fs::read_dir(fixtures().join("regressions"))
        .expect("the folder is there")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    folders.sort();
    let mut all = Vec::new();
    for folder in folders {
        for (name, whole) in [("upstream.sse", 0), ("upstream.json", 1 << 4)] {
            if let Ok(input) = std::fs::read(folder.join(name))
                && input.len() <= LONGEST
            {
                // Streamed with logprobs, to Chat Completions and to Completions.
                for api in [0, 1 << 7] {
                    all.push([&[1 | 1 << 3 | whole | api, 2, 0, 0, 6, 40], &input[..]].concat());
                }
            }
        }
    }
    all
}

/// Returns the data of all events, and all whole bodies.
pub(crate) fn objects(cases: &[Case]) -> Vec<String> {
    let mut all = Vec::new();
    for case in cases {
        let text = String::from_utf8_lossy(&case.input).into_owned();
        if case.events {
            all.extend(
                text.lines()
                    .filter_map(|line| line.strip_prefix("data: "))
                    .map(str::to_owned),
            );
        } else {
            all.push(text);
        }
    }
    all.sort();
    all.dedup();
    all
}
