//! Inputs broken on purpose: fixtures with changed bits, bytes and frames, and bytes that were never a stream.

use crate::cases::{Case, captures, vectors};
use crate::slow;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use samewire::wire::{Api, Ending};
use serde_json::{Value, json};
use std::sync::LazyLock;

/// Cases to start from. Long ones are left out: they cost time and test nothing more.
static POOL: LazyLock<Vec<Case>> = LazyLock::new(|| {
    let captures = captures().into_iter().map(|fixture| fixture.case);
    let all = captures.chain(vectors().into_iter().map(|(case, _)| case));
    all.filter(|case| case.status == 200 && case.input.len() < 6_000)
        .collect()
});

/// Damage done to an input, on the level of bytes, digits or frames.
#[derive(Clone, Debug)]
enum Harm {
    Flip(Index, u8),
    Delete(Index, usize),
    Insert(Index, Vec<u8>),
    /// Replaces a digit: of an index, a count or a time.
    Digit(Index, u8),
    Drop(Index),
    Twice(Index),
    Swap(Index, Index),
    /// Inserts a frame of another fixture.
    Splice(Index, Index, Index),
    Cut(Index),
}

fn harm() -> impl Strategy<Value = Harm> {
    let at = any::<Index>;
    prop_oneof![
        2 => (at(), 0u8..8).prop_map(|(at, bit)| Harm::Flip(at, bit)),
        2 => (at(), 1usize..60).prop_map(|(at, length)| Harm::Delete(at, length)),
        2 => (at(), piece()).prop_map(|(at, bytes)| Harm::Insert(at, bytes)),
        2 => (at(), b'0'..=b'9').prop_map(|(at, digit)| Harm::Digit(at, digit)),
        2 => at().prop_map(Harm::Drop),
        3 => at().prop_map(Harm::Twice),
        3 => (at(), at()).prop_map(|(one, other)| Harm::Swap(one, other)),
        4 => (at(), at(), at()).prop_map(|(to, from, frame)| Harm::Splice(to, from, frame)),
        1 => at().prop_map(Harm::Cut),
    ]
}

impl Harm {
    fn apply(&self, input: &mut Vec<u8>) {
        if input.is_empty() {
            return;
        }
        let place = |at: &Index| at.index(input.len());
        match self {
            Self::Flip(at, bit) => {
                let at = place(at);
                input[at] ^= 1 << bit;
            }
            Self::Delete(at, length) => {
                let at = place(at);
                input.drain(at..(at + length).min(input.len()));
            }
            Self::Insert(at, bytes) => {
                let at = place(at);
                input.splice(at..at, bytes.iter().copied());
            }
            Self::Digit(at, digit) => {
                let digits: Vec<usize> = (0..input.len())
                    .filter(|at| input[*at].is_ascii_digit())
                    .collect();
                if !digits.is_empty() {
                    input[*at.get(&digits)] = *digit;
                }
            }
            Self::Cut(at) => input.truncate(at.index(input.len())),
            Self::Drop(_) | Self::Twice(_) | Self::Swap(..) | Self::Splice(..) => {
                let mut all = split(input);
                self.apply_to_frames(&mut all);
                *input = all.concat();
            }
        }
    }

    fn apply_to_frames(&self, all: &mut Vec<Vec<u8>>) {
        let count = all.len();
        match self {
            Self::Drop(at) => drop(all.remove(at.index(count))),
            Self::Twice(at) => {
                let frame = all[at.index(count)].clone();
                all.insert(at.index(count), frame);
            }
            Self::Swap(one, other) => all.swap(one.index(count), other.index(count)),
            Self::Splice(to, from, frame) => {
                let other = split(&from.get(&POOL).input);
                all.insert(to.index(count + 1), frame.get(&other).clone());
            }
            _ => {}
        }
    }
}

/// Splits the input into frames, each with its blank line.
fn split(input: &[u8]) -> Vec<Vec<u8>> {
    let mut all = vec![Vec::new()];
    for line in input.split_inclusive(|byte| *byte == b'\n') {
        all.last_mut().unwrap().extend_from_slice(line);
        if line == b"\n" {
            all.push(Vec::new());
        }
    }
    all
}

/// Fragments that streams are made of, in random order.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let known = select(vec![
        "data: ",
        "data:",
        "data",
        "\n\n",
        "\n",
        "\r\n",
        "\r",
        ": c\n",
        "event: error\n",
        "id: 1\n",
        "\u{feff}",
        "[DONE]",
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"",
        "\\",
        "\\u",
        "\\ud800",
        "null",
        "0",
        "1",
        "-1",
        "4294967296",
        "\"choices\":",
        "\"index\":",
        "\"delta\":",
        "\"message\":",
        "\"text\":",
        "\"content\":",
        "\"reasoning\":",
        "\"tool_calls\":",
        "\"function\":",
        "\"name\":",
        "\"arguments\":",
        "\"id\":",
        "\"finish_reason\":",
        "\"stop\"",
        "\"length\"",
        "\"abort\"",
        "\"usage\":",
        "\"logprobs\":",
        "\"error\":",
        "\"object\":\"error\"",
        "\"a\"",
        "\"\"",
    ]);
    let chunk = select(vec![
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"text\":\"a\"}]}\n\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
        "data: {\"choices\":[{\"index\":1,\"delta\":{\"role\":\"assistant\"},\"text\":\"\"}]}\n\n",
        "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"function\":{\"arguments\":\"{}\"}}]}}]}\n\n",
        "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":3,\"id\":\"x\",\"function\":{\"name\":\"f\"}}]}}]}\n\n",
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}\n\n",
        "data: {\"choices\":[{\"index\":0,\"logprobs\":{\"content\":[{\"token\":\"a\"}]}}]}\n\n",
        "data: {\"error\":{\"message\":\"m\",\"code\":503}}\n\n",
        "data: [DONE]\n\n",
    ]);
    prop_oneof![
        6 => known.prop_map(|text| text.as_bytes().to_vec()),
        3 => chunk.prop_map(|text| text.as_bytes().to_vec()),
        1 => vec(any::<u8>(), 1..6),
    ]
}

fn ending() -> impl Strategy<Value = Ending> {
    select(vec![
        Ending::Clean,
        Ending::Clean,
        Ending::Reset,
        Ending::Timeout,
    ])
}

fn engine() -> impl Strategy<Value = String> {
    select(vec!["vllm", "sglang", "auto", "generic"]).prop_map(str::to_owned)
}

/// Changes the request to a random combination of the options a client may set.
fn asked(case: &mut Case, stream: bool, usage: bool, logprobs: bool, n: Option<u8>) {
    let request = case.request.as_object_mut().unwrap();
    request.insert("stream".to_owned(), json!(stream));
    request.remove("stream_options");
    if stream && usage {
        let options = json!({"include_usage": true, "continuous_usage_stats": logprobs, "include_obfuscation": true});
        request.insert("stream_options".to_owned(), options);
    }
    if logprobs {
        request.insert(
            "logprobs".to_owned(),
            if case.api == Api::Chat {
                json!(true)
            } else {
                json!(1)
            },
        );
    }
    if let Some(n) = n {
        request.insert("n".to_owned(), json!(n));
        request.remove("best_of");
    }
}

fn options() -> impl Strategy<Value = Value> {
    (slow::random::options(), any::<bool>(), any::<bool>()).prop_map(
        |(mut options, strict, padded)| {
            if strict {
                options["tool_call_ids"] = json!("strict");
            }
            if padded {
                options["obfuscation"] = json!("on_request");
            }
            options
        },
    )
}

/// Generates a fixture with up to five kinds of damage.
pub fn fixture() -> impl Strategy<Value = Case> {
    let wishes = (
        proptest::bool::weighted(0.85),
        any::<bool>(),
        any::<bool>(),
        proptest::option::weighted(0.2, 1u8..4),
    );
    let settings = (options(), engine(), ending(), wishes);
    (any::<Index>(), vec(harm(), 0..6), settings).prop_map(
        |(at, harms, (options, engine, ending, wishes))| {
            let mut case = Case {
                options,
                engine,
                ending,
                ..at.get(&POOL).clone()
            };
            harms.iter().for_each(|harm| harm.apply(&mut case.input));
            asked(&mut case, wishes.0, wishes.1, wishes.2, wishes.3);
            case
        },
    )
}

/// Generates bytes that were never an answer.
pub fn bytes() -> impl Strategy<Value = Case> {
    let input = prop_oneof![
        1 => vec(any::<u8>(), 0..200),
        4 => vec(piece(), 0..40).prop_map(|pieces| pieces.concat()),
    ];
    let settings = (
        options(),
        engine(),
        ending(),
        select(vec![Api::Chat, Api::Completions]),
    );
    (
        input,
        settings,
        any::<[bool; 4]>(),
        proptest::option::weighted(0.3, 1u8..4),
    )
        .prop_map(
            |(input, (options, engine, ending, api), [events, stream, usage, logprobs], n)| {
                let request = json!({"model": "m"});
                let case = Case {
                    api,
                    upstream: api,
                    engine,
                    request,
                    options,
                    ..Case::default()
                };
                let mut case = Case {
                    name: "bytes".to_owned(),
                    input,
                    events,
                    ending,
                    ..case
                };
                asked(&mut case, stream, usage, logprobs, n);
                case
            },
        )
}
