//! Cost of the rewriter: time and allocations for each chunk, by stage and by engine, and bytes per second.
//!
//! `cargo bench --bench rewrite` prints a table; `-- --quick` runs each row only for a moment. Time is processor
//! time of this thread. Allocations are counted in the steady state: the first chunks of a stream, which fix its
//! envelope, are rewritten before the count begins.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    missing_docs,
    reason = "a bench"
)]

use bytes::Bytes;
use samewire::engine::named;
use samewire::plan::{Route, message, shape};
use samewire::request::messages::{MessagesContext, MessagesMode, MessagesRequest, Purpose};
use samewire::request::{ChatRequest, Rules};
use samewire::wire::decode::{EventSink, ReadOptions, decoder};
use samewire::wire::encode::{Encode, MessageEncoder};
use samewire::wire::event::{Delta, Event, FrameExtras, ToolEntry};
use samewire::wire::options::Options;
use samewire::wire::rule::Rule;
use samewire::wire::sse::{Framer, FramerOutput};
use samewire::wire::{AnswerId, Api, OutputBuffer, Rewriter, Stamp};
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Chunks in one measured stretch: a few hundred kilobytes, as a burst of many streams would be.
const CHUNKS: usize = 1000;

struct Engine {
    name: &'static str,
    what: &'static str,
    head: &'static str,
    chunk: fn(usize) -> String,
    /// Parser of the text, and the text that precedes the chunks.
    text: Option<(&'static str, &'static str)>,
}

const PLAIN: Engine = Engine {
    name: "vllm",
    what: "",
    head: "",
    chunk: |_| String::new(),
    text: None,
};

/// Returns a chunk whose text the engine has not parsed.
fn unparsed(at: usize) -> String {
    vllm(&format!("{{\"content\":\" word{}\"}}", at % 10))
}

fn vllm(delta: &str) -> String {
    format!(
        "data: {{\"id\":\"chatcmpl-6ca2ec78dac247598ffcaa13d8b470bf\",\"object\":\"chat.completion.chunk\",\"created\":1779866853,\
         \"model\":\"openai/gpt-oss-120b\",\"choices\":[{{\"index\":0,\"delta\":{delta},\"logprobs\":null,\"finish_reason\":null,\
         \"token_ids\":null}}]}}\n\n"
    )
}

fn sglang(delta: &str) -> String {
    format!(
        "data: {{\"id\":\"d3b406a9b33a435cb7a7bcc2266e48ac\",\"object\":\"chat.completion.chunk\",\"created\":1779866808,\
         \"model\":\"openai/gpt-oss-120b\",\"choices\":[{{\"index\":0,\"delta\":{delta},\"logprobs\":null,\"finish_reason\":null,\
         \"matched_stop\":null}}]}}\n\n"
    )
}

const ENGINES: &[Engine] = &[
    Engine {
        name: "vllm",
        what: "content",
        head: "{\"role\":\"assistant\",\"content\":\"\"}",
        chunk: |at| vllm(&format!("{{\"content\":\" word{}\"}}", at % 10)),
        ..PLAIN
    },
    // No two adjacent chunks have the same spelling, so the fast path never applies.
    Engine {
        name: "vllm",
        what: "content, unlike",
        head: "{\"role\":\"assistant\",\"content\":\"\"}",
        chunk: |at| match at % 2 {
            0 => vllm("{\"content\":\" word\"}"),
            _ => vllm("{\"content\":\" word\",\"refusal\":null}"),
        },
        ..PLAIN
    },
    Engine {
        name: "vllm",
        what: "reasoning, escapes",
        head: "{\"role\":\"assistant\",\"content\":\"\"}",
        chunk: |_| vllm("{\"reasoning\":\" a \\\"b\\\"\\n\"}"),
        ..PLAIN
    },
    Engine {
        name: "vllm",
        what: "tool arguments",
        head: "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"chatcmpl-tool-1\",\"type\":\"function\",\"index\":0,\"function\":{\"name\":\"f\"}}]}",
        chunk: |_| {
            vllm(
                "{\"content\":null,\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{\\\"a\"}}]}",
            )
        },
        ..PLAIN
    },
    Engine {
        name: "sglang",
        what: "content",
        head: "{\"reasoning_content\":null,\"role\":\"assistant\",\"content\":\"\"}",
        chunk: |at| {
            sglang(&format!(
                "{{\"reasoning_content\":null,\"content\":\" word{}\"}}",
                at % 10
            ))
        },
        ..PLAIN
    },
    Engine {
        name: "sglang",
        what: "reasoning",
        head: "{\"reasoning_content\":null,\"role\":\"assistant\",\"content\":\"\"}",
        chunk: |at| sglang(&format!("{{\"reasoning_content\":\" word{}\"}}", at % 10)),
        ..PLAIN
    },
    Engine {
        what: "text, parser",
        chunk: unparsed,
        text: Some(("qwen3", "A")),
        ..PLAIN
    },
    Engine {
        what: "text, any parser",
        chunk: unparsed,
        text: Some(("auto", "A")),
        ..PLAIN
    },
    Engine {
        what: "reasoning in text",
        chunk: unparsed,
        text: Some(("qwen3", "<think>")),
        ..PLAIN
    },
    Engine {
        what: "arguments in text",
        chunk: unparsed,
        text: Some((
            "qwen3",
            "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"",
        )),
        ..PLAIN
    },
];

/// Sink that discards events, for measuring a decoder alone.
struct Nothing;

impl EventSink for Nothing {
    fn event(&mut self, event: Event<'_>) {
        black_box(&event);
    }
    fn delta<'a>(&mut self, _: u32, delta: Delta<'_>, extras: FrameExtras<'a>) -> FrameExtras<'a> {
        black_box(&delta);
        extras
    }
    fn tool<'a>(
        &mut self,
        _: u32,
        entry: ToolEntry<'_>,
        extras: FrameExtras<'a>,
    ) -> FrameExtras<'a> {
        black_box(&entry);
        extras
    }
    fn count_rule(&mut self, _: Rule) {}
}

struct NoEncoder;

impl Encode for NoEncoder {
    fn event(&mut self, event: Event<'_>, _: &mut OutputBuffer) {
        black_box(&event);
    }
}

fn rewriter(engine: &Engine, encoder: Option<Box<dyn Encode>>) -> Rewriter {
    let body = Bytes::from_static(
        b"{\"model\":\"m\",\"stream\":true,\"stream_options\":{\"include_usage\":true},\
          \"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]}",
    );
    let ask = ChatRequest::recall(Api::Chat, &body).unwrap();
    let (route, stamp) = (route(engine), stamp());
    match encoder {
        Some(encoder) => Rewriter::with_encoder(shape(&ask, &route), stamp, encoder),
        None => Rewriter::new(shape(&ask, &route), stamp),
    }
}

/// Returns a rewriter for a client of Messages.
fn messenger(engine: &Engine) -> Rewriter {
    let body = Bytes::from_static(
        b"{\"model\":\"m\",\"stream\":true,\"tools\":[{\"name\":\"f\",\"input_schema\":{}}]}",
    );
    let (route, stamp) = (route(engine), stamp());
    let context = MessagesContext {
        rules: &Rules::ANSWERED,
        options: &route.options,
        model: None,
        open: &|_| None,
        defaults: &[],
        context_length: None,
        mode: MessagesMode::Chat,
        purpose: Purpose::Recall,
    };
    let (plan, reply) = message(&MessagesRequest::read(&body, &context).unwrap(), &route).unwrap();
    Rewriter::with_encoder(
        plan.shape,
        stamp.clone(),
        Box::new(MessageEncoder::new(reply, &stamp)),
    )
}

fn route(engine: &Engine) -> Route {
    let parser = engine
        .text
        .map_or("off", |(parser, _)| parser)
        .to_owned()
        .try_into()
        .unwrap();
    let options = Options {
        parser,
        ..Options::default()
    };
    Route::new(named(engine.name).unwrap(), Arc::new(options), 4 << 20)
}

fn stamp() -> Stamp {
    Stamp {
        id: AnswerId(0),
        now: 1,
        seed: 1,
        ..Stamp::default()
    }
}

/// Runs `work` repeatedly on one stretch. Returns the nanoseconds per chunk of the fastest repetition.
fn nanoseconds(for_long: Duration, mut work: impl FnMut()) -> f64 {
    let mut best = f64::MAX;
    let begun = Instant::now();
    while begun.elapsed() < for_long {
        let start = Instant::now();
        work();
        best = best.min(start.elapsed().as_nanos() as f64);
    }
    best / CHUNKS as f64
}

fn main() {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let for_long = if quick {
        Duration::from_millis(50)
    } else {
        Duration::from_secs(2)
    };
    println!(
        "ns for each chunk (quickest of many stretches of {CHUNKS}), in one read and one chunk a read"
    );
    println!(
        "{:<8}{:<20}{:>7}{:>9}{:>9}{:>11}{:>9}{:>11}{:>10}{:>13}{:>10}{:>7}",
        "engine",
        "chunks of",
        "bytes",
        "framer",
        "+decode",
        "+normalise",
        "+encode",
        "one a read",
        "MB/s",
        "allocations",
        "messages",
        "ratio"
    );
    for engine in ENGINES {
        row(engine, for_long);
    }
}

fn row(engine: &Engine, for_long: Duration) {
    let mut head = match engine.name {
        "vllm" => vllm(if engine.text.is_some() {
            "{\"role\":\"assistant\"}"
        } else {
            engine.head
        }),
        _ => sglang(engine.head),
    };
    if let Some((_, text)) = engine.text {
        head += &vllm(&format!("{{\"content\":{text:?}}}"));
    }
    let chunks: Vec<String> = (0..CHUNKS).map(engine.chunk).collect();
    let stretch = chunks.concat();
    let framer = nanoseconds(for_long, || {
        let mut framer = Framer::new(4 << 20);
        framer.push(stretch.as_bytes(), |found| {
            black_box(&found);
        });
    });
    let decode = nanoseconds(for_long, || {
        let mut framer = Framer::new(4 << 20);
        let mut decoder = decoder(Api::Chat, ReadOptions::default());
        framer.push(stretch.as_bytes(), |found| {
            if let FramerOutput::Frame(frame) = found {
                decoder.frame(frame, &mut Nothing);
            }
        });
    });
    let mut out = OutputBuffer::default();
    out.open().reserve(2 * stretch.len());
    let mut plain = rewriter(engine, Some(Box::new(NoEncoder)));
    plain.push(head.as_bytes(), &mut out);
    let normalise = nanoseconds(for_long, || {
        plain.push(stretch.as_bytes(), &mut out);
    });
    let mut full = rewriter(engine, None);
    full.push(head.as_bytes(), &mut out);
    let encode = nanoseconds(for_long, || {
        out.clear();
        full.push(stretch.as_bytes(), &mut out);
    });
    let single = nanoseconds(for_long, || {
        out.clear();
        for chunk in &chunks {
            full.push(chunk.as_bytes(), &mut out);
        }
    });
    let counted = allocation_counter::measure(|| {
        out.clear();
        full.push(stretch.as_bytes(), &mut out);
    });
    let (chat, messages) = chat_and_messages(engine, &head, &stretch, for_long);
    let bytes = stretch.len() as f64 / CHUNKS as f64;
    println!(
        "{:<8}{:<20}{:>7.0}{:>9.0}{:>9.0}{:>11.0}{:>9.0}{:>11.0}{:>10.0}{:>13}{:>10.0}{:>7.2}",
        engine.name,
        engine.what,
        bytes,
        framer,
        decode,
        normalise,
        encode,
        single,
        bytes / encode * 1000.0,
        counted.count_total,
        messages,
        messages / chat
    );
}

/// Returns the nanoseconds for each chunk, as chat and as Messages, measured in turns.
fn chat_and_messages(engine: &Engine, head: &str, stretch: &str, for_long: Duration) -> (f64, f64) {
    const TURNS: u32 = 8;
    let mut out = OutputBuffer::default();
    let (mut chat, mut messages) = (rewriter(engine, None), messenger(engine));
    let mut best = (f64::MAX, f64::MAX);
    chat.push(head.as_bytes(), &mut out);
    messages.push(head.as_bytes(), &mut out);
    for _ in 0..TURNS {
        for (rewriter, best) in [(&mut chat, &mut best.0), (&mut messages, &mut best.1)] {
            *best = best.min(nanoseconds(for_long / TURNS, || {
                out.clear();
                rewriter.push(stretch.as_bytes(), &mut out);
            }));
        }
    }
    best
}
