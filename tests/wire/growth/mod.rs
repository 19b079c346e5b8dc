//! The work for a delta does not grow with what came before: eight times the deltas take about eight times the
//! processor time, whatever the form of the answer. If each delta read everything anew, they would take 64 times.

mod chat;
mod clients;
mod text;

use crate::cases::Case;
use rustix::time::{ClockId, clock_gettime};
use samewire::wire::{Api, Ending, OutputBuffer, Rewriter};
use serde_json::{Value, json};
use std::time::Duration;

/// Deltas of the short answer.
const DELTAS: usize = 2_048;
/// Ratio of the deltas of the two answers.
const FACTOR: usize = 8;
/// Limit on the ratio of their times: linear work takes 8, quadratic 64.
const BOUND: f64 = 20.0;
/// Limit where each delta would be quick to read everything anew, by a search for the first byte of a marker.
const BOUND_OF_FAST: f64 = 12.0;
/// Measurements of a form before its ratio counts. The smallest is the one without disturbances.
const TRIES: usize = 100;
/// Text of one delta.
const PIECE: &str = "twenty four letters each";

/// Form of an answer: the part before its many deltas, the deltas, and the part after them.
struct Form {
    name: String,
    rewriter: Box<dyn Fn() -> Rewriter>,
    before: Vec<String>,
    delta: Box<dyn Fn(usize) -> String>,
    after: Vec<String>,
    /// Deltas of the short answer.
    deltas: usize,
    /// Text that the client's answer must have, so that the form is what its name says.
    shows: &'static str,
    bound: f64,
}

impl Form {
    /// Returns the reads of an answer with this number of deltas.
    fn reads(&self, deltas: usize) -> Vec<String> {
        let all = self
            .before
            .iter()
            .cloned()
            .chain((0..deltas).map(&self.delta));
        all.chain(self.after.iter().cloned()).collect()
    }

    /// Returns the processor time of an answer with this number of deltas.
    fn time(&self, deltas: usize) -> Duration {
        let (reads, mut rewriter, mut out) = (
            self.reads(deltas),
            (self.rewriter)(),
            OutputBuffer::default(),
        );
        let start = processor_time();
        for read in &reads {
            rewriter.push(read.as_bytes(), &mut out);
            out.clear();
        }
        rewriter.finish(Ending::Clean, &mut out);
        processor_time().saturating_sub(start)
    }

    /// Checks that the answer has the form: it ends, and shows the required parts.
    fn check(&self) {
        let (mut rewriter, mut out) = ((self.rewriter)(), OutputBuffer::default());
        for read in &self.reads(self.deltas) {
            rewriter.push(read.as_bytes(), &mut out);
        }
        rewriter.finish(Ending::Clean, &mut out);
        assert!(
            rewriter.reader.failure().is_none(),
            "{}: {:?}",
            self.name,
            rewriter.reader.failure()
        );
        let body = String::from_utf8(out.to_vec()).unwrap();
        let begun = body.get(..body.floor_char_boundary(2_000)).unwrap();
        assert!(body.contains(self.shows), "{}: {begun}", self.name);
    }
}

/// Returns the ratio of the times that a long and a short answer take, each the smallest of its measurements.
///
/// `time` takes a number of deltas. The short answer is read as often as gives the deltas of the long one: both
/// measurements take about as long, so that a disturbance meets one as likely as the other. A ratio well below `bound`
/// counts at once.
fn growth(time: impl Fn(usize) -> Duration, deltas: usize, bound: f64) -> f64 {
    let mut least = (Duration::MAX, Duration::MAX);
    let ratio = |(short, long): (Duration, Duration)| {
        long.as_secs_f64() / short.as_secs_f64() * FACTOR as f64
    };
    for _ in 0..TRIES {
        least.0 = least.0.min((0..FACTOR).map(|_| time(deltas)).sum());
        least.1 = least.1.min(time(deltas * FACTOR));
        if ratio(least) < bound * 0.8 {
            break;
        }
    }
    ratio(least)
}

/// Returns the processor time of this thread.
pub fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        time.tv_sec.try_into().unwrap(),
        time.tv_nsec.try_into().unwrap(),
    )
}

/// Checks that each form takes time in proportion to its deltas.
fn grow_evenly(forms: Vec<Form>) {
    let mut steep = Vec::new();
    for form in &forms {
        form.check();
        let ratio = growth(|deltas| form.time(deltas), form.deltas, form.bound);
        eprintln!("{ratio:>8.1} times for {}", form.name);
        if ratio >= form.bound {
            steep.push(format!("{}: {ratio:.1}, {} allowed", form.name, form.bound));
        }
    }
    assert!(
        steep.is_empty(),
        "{FACTOR} times the deltas take this many times as long: {steep:#?}"
    );
}

/// Returns a case without input.
fn case(api: Api, upstream: Api, engine: &str, request: &Value, options: Value) -> Case {
    let mut all = json!({"model": "m", "stream": true, "max_tokens": 1_000_000});
    if api == Api::Responses {
        all = json!({"model": "m", "stream": true, "input": "x", "store": false});
    }
    if api != Api::Responses {
        all["messages"] = json!([{"role": "user", "content": "x"}]);
    }
    for (key, value) in request.as_object().unwrap() {
        all[key] = value.clone();
    }
    Case {
        name: "growth".to_owned(),
        api,
        upstream,
        engine: engine.to_owned(),
        request: all,
        options,
        now: 7,
        ..Case::default()
    }
}

/// Returns an event with this data.
fn event(data: &Value) -> String {
    match data["type"].as_str() {
        Some(name) => format!("event: {name}\ndata: {data}\n\n"),
        None => format!("data: {data}\n\n"),
    }
}

/// Returns a chunk with this delta of a choice.
fn chunk_of(choice: usize, delta: &Value, finish: &Value) -> String {
    let choice = json!({"index": choice, "delta": delta, "finish_reason": finish});
    event(&json!({"id": "chatcmpl-1", "created": 5, "model": "m", "choices": [choice]}))
}

fn chunk(delta: &Value) -> String {
    chunk_of(0, delta, &Value::Null)
}

/// Returns the end of a stream of one choice.
fn end(finish: &str) -> Vec<String> {
    vec![
        chunk_of(0, &json!({}), &finish.into()),
        "data: [DONE]\n\n".to_owned(),
    ]
}

/// Returns an entry of `tool_calls` that begins a call.
fn begun_call(index: usize, name: &str) -> Value {
    let function = json!({"name": name, "arguments": ""});
    json!({"tool_calls": [{"index": index, "id": format!("call_{index}"), "type": "function", "function": function}]})
}

/// Returns an entry of `tool_calls` with a piece of arguments.
fn arguments(index: usize, piece: &str) -> Value {
    json!({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
}

/// Returns a form whose engine answers in Chat Completions.
fn of_chat(
    name: &str,
    case: Case,
    before: &[Value],
    delta: impl Fn(usize) -> Value + 'static,
) -> Form {
    Form {
        name: name.to_owned(),
        rewriter: Box::new(move || case.rewriter(false)),
        before: before.iter().map(chunk).collect(),
        delta: Box::new(move |at| chunk(&delta(at))),
        after: end("stop"),
        deltas: DELTAS,
        shows: PIECE,
        bound: BOUND,
    }
}
