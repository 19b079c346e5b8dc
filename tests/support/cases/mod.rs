//! Test cases for the wire format: vectors and captured fixtures as one type, and the one way to run them.
#![allow(dead_code, reason = "each test crate uses its part")]

#[path = "../messages/mod.rs"]
pub mod messages;
mod shown;
mod transcript;

use bytes::{Bytes, BytesMut};
use samewire::engine::named;
use samewire::plan::{Route, message, response, shape};
use samewire::request::ChatRequest;
use samewire::request::messages::{MessagesMode, Purpose};
use samewire::request::responses::{ResponsesMode, ResponsesRequest};
use samewire::wire::encode::{Encode, MessageEncoder, Response};
use samewire::wire::event;
use samewire::wire::fault::Failure;
use samewire::wire::options::Options;
use samewire::wire::{AnswerId, Api, Ending, OutputBuffer, Rewriter, Stamp, TemplateFacts};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use transcript::Transcript;

/// Engine's answer to one client request, with the options it is rewritten by.
#[derive(Clone, Debug)]
pub struct Case {
    pub name: String,
    /// API of the client's request.
    pub api: Api,
    /// API of the request to the engine.
    pub upstream: Api,
    pub engine: String,
    pub request: Value,
    pub options: Value,
    pub template: TemplateFacts,
    pub status: u16,
    pub input: Vec<u8>,
    /// True if the input is an event stream.
    pub events: bool,
    pub ending: Ending,
    pub now: u64,
}

/// Streamed answer of an engine of an unknown kind to a chat request, with nothing in it yet.
impl Default for Case {
    fn default() -> Self {
        Self {
            name: String::new(),
            api: Api::Chat,
            upstream: Api::Chat,
            engine: "auto".to_owned(),
            request: serde_json::json!({"model": "m", "stream": true}),
            options: serde_json::json!({}),
            template: TemplateFacts::UNKNOWN,
            status: 200,
            input: Vec::new(),
            events: true,
            ending: Ending::Clean,
            now: 1,
        }
    }
}

/// Response that the client receives: status and body, streamed or whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub body: String,
}

/// Division of the input into reads. The answer must not depend on it.
pub enum Cut<'a> {
    Whole,
    At(usize),
    Bytes,
    Sizes(&'a [usize]),
    /// Cuts at `first`, `first + step`, …
    Comb {
        first: usize,
        step: usize,
    },
}

impl Case {
    /// Switches the parser of text off, unless the case names one, so that the text stays as the engine sent it.
    #[must_use]
    pub fn unparsed(mut self) -> Self {
        if self.options.get("parser").is_none() {
            self.options["parser"] = "off".into();
        }
        self
    }

    pub fn rewriter(&self, transcript: bool) -> Rewriter {
        self.rewriter_within(4 << 20, transcript)
    }

    /// Creates the rewriter for this case, with another `max_event_bytes`.
    pub fn rewriter_within(&self, max_event_bytes: usize, transcript: bool) -> Rewriter {
        let body = Bytes::from(self.request.to_string());
        let options: Options = serde_json::from_value(self.options.clone()).unwrap();
        let engine = named(&self.engine).or_else(|| named("auto")).unwrap();
        let route = Route {
            template: self.template,
            ..Route::new(engine, Arc::new(options), max_event_bytes)
        };
        let stamp = Stamp {
            id: AnswerId(1),
            now: self.now,
            seed: 1,
            ..Stamp::default()
        };
        if self.api == Api::Responses {
            return self.responder(&route, stamp, transcript);
        }
        if self.api == Api::Messages {
            return self.messenger(&route, stamp, transcript);
        }
        let request = ChatRequest::recall(self.api, &body)
            .unwrap_or_else(|failure| panic!("{}: {failure:?}", self.name));
        let shape = shape(&request, &route);
        match transcript {
            true => Rewriter::with_encoder(shape, stamp, Box::new(Transcript)),
            false => Rewriter::new(shape, stamp),
        }
    }

    /// Creates the rewriter for a client of Messages.
    fn messenger(&self, route: &Route, stamp: Stamp, transcript: bool) -> Rewriter {
        let body = Bytes::from(self.request.to_string());
        let mode = if self.upstream == Api::Messages {
            MessagesMode::Native
        } else {
            MessagesMode::Chat
        };
        let request = messages::read(&body, &route.options, None, mode, Purpose::Recall)
            .unwrap_or_else(|failure| panic!("{}: {failure:?}", self.name));
        let (plan, mut reply) = message(&request, route).unwrap();
        reply.sign = Some(Box::new(messages::sign));
        let encoder: Box<dyn Encode> = match transcript {
            true => Box::new(Transcript),
            false => Box::new(MessageEncoder::new(reply, &stamp)),
        };
        Rewriter::with_encoder(plan.shape, stamp, encoder)
    }

    /// Creates the rewriter for a Responses client.
    fn responder(&self, route: &Route, stamp: Stamp, transcript: bool) -> Rewriter {
        // Some recordings were requested with an id, which clients must not send.
        let mut request = self.request.clone();
        request
            .as_object_mut()
            .map(|request| request.remove("request_id"));
        let body = Bytes::from(request.to_string());
        let way = if self.upstream == Api::Responses {
            ResponsesMode::Native
        } else {
            ResponsesMode::Chat
        };
        let request = ResponsesRequest::recall(&body, &route.options, way)
            .unwrap_or_else(|failure| panic!("{}: {failure:?}", self.name));
        let (_, shape, reply) = response(
            &request,
            &Route {
                responses: way,
                ..route.clone()
            },
        );
        let encoder: Box<dyn Encode> = match transcript {
            true => Box::new(Transcript),
            false => Box::new(Response::new(reply, &stamp)),
        };
        Rewriter::with_encoder(shape, stamp, encoder)
    }

    /// Runs the case with its input cut into these reads.
    pub fn run(&self, cut: &Cut<'_>) -> Answer {
        self.run_within(4 << 20, cut)
    }

    /// Runs the case with another `max_event_bytes`.
    pub fn run_within(&self, max_event_bytes: usize, cut: &Cut<'_>) -> Answer {
        if !(200..300).contains(&self.status) {
            return self.error(&Failure::of_answer(self.status, &self.input, false));
        }
        let mut rewriter = self.rewriter_within(max_event_bytes, false);
        let mut out = OutputBuffer::default();
        if self.events {
            for read in reads(&self.input, cut) {
                rewriter.push(read, &mut out);
            }
            rewriter.finish(self.ending, &mut out);
        } else {
            rewriter.whole(&self.input, &mut out);
        }
        match rewriter.writer.failure() {
            Some(failure) => {
                assert!(out.is_empty(), "{}: bytes before an HTTP error", self.name);
                self.error(failure)
            }
            None => Answer {
                status: 200,
                body: String::from_utf8(out.to_vec()).expect("canonical output is UTF-8"),
            },
        }
    }

    /// Returns the answer to a request that has failed before anything was sent.
    fn error(&self, failure: &Failure) -> Answer {
        if self.api == Api::Messages {
            let (status, body) = messages::error(failure);
            return Answer { status, body };
        }
        let mut out = BytesMut::new();
        failure.write(false, &mut out);
        Answer {
            status: failure.status,
            body: String::from_utf8(out.to_vec()).unwrap(),
        }
    }

    /// Returns the grammatical events of the case, one per line.
    pub fn transcript(&self) -> String {
        let mut rewriter = self.rewriter(true);
        let mut out = OutputBuffer::default();
        if self.events {
            rewriter.push(&self.input, &mut out);
            rewriter.finish(self.ending, &mut out);
        } else {
            rewriter.whole(&self.input, &mut out);
        }
        if let Some(failure) = rewriter.writer.failure() {
            return format!(
                "fail {} {} {:?}\n",
                failure.status,
                failure.code.as_deref().unwrap_or("-"),
                failure.message
            );
        }
        String::from_utf8(out.to_vec()).unwrap()
    }

    /// Returns the case in which the engine sends this canonical answer. The text of Responses has been read.
    pub fn fed_back(&self, canonical: &str) -> Self {
        let mut options = self.options.clone();
        if let (Api::Responses, Some(options)) = (self.api, options.as_object_mut()) {
            options.retain(|option, _| !["harmony", "think"].contains(&option.as_str()));
            options.insert("parser".to_owned(), "off".into());
        }
        Self {
            options,
            upstream: self.api,
            input: canonical.as_bytes().to_vec(),
            events: self.streams(),
            ending: Ending::Clean,
            ..self.clone()
        }
    }

    /// Returns the case with a request to the engine in this API.
    pub fn upstream_of(self, upstream: Api) -> Self {
        Self { upstream, ..self }
    }

    /// Returns true if the client allows only one tool call per answer.
    pub fn wants_one_call(&self) -> bool {
        self.request["parallel_tool_calls"] == false
    }

    /// Returns true if an option, or a limit that cuts the header of gpt-oss, turns text into something else.
    pub fn parses_text(&self) -> bool {
        let is_gpt_oss = self.request["model"]
            .as_str()
            .is_some_and(|model| model.contains("gpt-oss"));
        let is_cut = is_gpt_oss
            && self.request["max_tokens"]
                .as_u64()
                .is_some_and(|limit| limit <= 2);
        is_cut
            || ["harmony", "think", "parser"]
                .iter()
                .any(|option| self.options.get(option).is_some_and(|value| value != "off"))
    }

    pub fn streams(&self) -> bool {
        self.request.get("stream") == Some(&Value::Bool(true))
    }
}

fn reads<'a>(input: &'a [u8], cut: &Cut<'_>) -> Vec<&'a [u8]> {
    match cut {
        Cut::Whole => vec![input],
        Cut::At(at) => vec![&input[..*at], &input[*at..]],
        Cut::Bytes => input.chunks(1).collect(),
        Cut::Comb { first, step } => {
            let (head, tail) = input.split_at((*first).min(input.len()));
            std::iter::once(head).chain(tail.chunks(*step)).collect()
        }
        Cut::Sizes(sizes) => {
            let mut rest = input;
            let mut reads = Vec::new();
            for size in sizes.iter().cycle() {
                if rest.is_empty() || sizes.is_empty() {
                    break;
                }
                let (head, tail) = rest.split_at((*size).clamp(1, rest.len()));
                reads.push(head);
                rest = tail;
            }
            reads
        }
    }
}

/// Returns the repository's `fixtures` folder.
pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

/// Returns the worked examples of the wire format for Chat Completions and Completions, each with its expectation.
pub fn vectors() -> Vec<(Case, Value)> {
    let all = vectors_of(&[Api::Chat, Api::Completions]);
    assert!(all.len() > 60, "the vectors are there");
    all
}

/// Returns the worked examples for Responses.
pub fn response_vectors() -> Vec<(Case, Value)> {
    let all = vectors_of(&[Api::Responses]);
    assert!(all.len() > 15, "the vectors are there");
    all
}

/// Returns the worked examples for Messages whose request reaches the engine.
pub fn message_vectors() -> Vec<(Case, Value)> {
    let mut all = vectors_of(&[Api::Messages]);
    assert!(all.len() >= 33, "the vectors are there");
    all.retain(|(_, vector)| !vector["engine_request"].is_null());
    all
}

fn vectors_of(clients: &[Api]) -> Vec<(Case, Value)> {
    let named = |name: &str| match name {
        "chat.completions" => Some(Api::Chat),
        "completions" => Some(Api::Completions),
        "responses" => Some(Api::Responses),
        "messages" => Some(Api::Messages),
        _ => None,
    };
    let mut all = Vec::new();
    let mut paths: Vec<_> = std::fs::read_dir(fixtures().join("vectors"))
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    paths.sort();
    for path in paths {
        let vector: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let text = |key: &str| vector[key].as_str().unwrap_or_default().to_owned();
        let apis = named(&text("client_api")).zip(named(&text("upstream_api")));
        let Some((api, upstream)) = apis.filter(|(client, _)| clients.contains(client)) else {
            continue;
        };
        // A whole-object vector, for which vectors.rs has a separate test.
        if text("name").starts_with("json-010") {
            continue;
        }
        let mut options = vector["options"].clone();
        let now = options
            .as_object_mut()
            .and_then(|options| options.remove("test_now"))
            .and_then(|now| now.as_u64());
        // Vectors use one name for reasoning, unless they set another (wire-format 9).
        if options["reasoning_field"].is_null() {
            options["reasoning_field"] = "reasoning_content".into();
        }
        let events = vector["upstream_headers"]["content-type"]
            .as_str()
            .is_some_and(|ct| ct.contains("event-stream"));
        let case = Case {
            name: text("name"),
            api,
            upstream,
            engine: text("engine"),
            request: vector["request"].clone(),
            options,
            status: vector["upstream_status"].as_u64().unwrap_or(200) as u16,
            input: text("input").into_bytes(),
            events,
            ending: if text("upstream_eof") == "reset" {
                Ending::Reset
            } else {
                Ending::Clean
            },
            now: now.unwrap_or(1_779_866_853),
            ..Case::default()
        };
        all.push((case, vector));
    }
    all
}

/// Captured exchange: the case and the folder of its files.
pub struct Fixture {
    pub case: Case,
    pub folder: PathBuf,
}

/// Returns every captured exchange of Chat Completions and Completions under `fixtures/<engine>/`.
pub fn captures() -> Vec<Fixture> {
    let mut all = captures_of();
    all.retain(|fixture| fixture.case.api != Api::Responses);
    assert!(all.len() > 100, "the captures are there");
    all
}

/// Returns every captured exchange of Responses.
pub fn responses() -> Vec<Fixture> {
    let mut all = captures_of();
    all.retain(|fixture| fixture.case.api == Api::Responses);
    assert!(all.len() > 30, "the captures are there");
    all
}

/// Reads the recorded exchanges of each engine, and those written by hand from descriptions.
fn captures_of() -> Vec<Fixture> {
    let folders = |path: &Path| {
        let mut all: Vec<_> = std::fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|at| at.is_dir())
            .collect();
        all.sort();
        all
    };
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    let is_engine = |path: &PathBuf| named(&name(path)).is_some() && name(path) != "openai";
    let described = folders(&fixtures().join("described"));
    let engines = folders(&fixtures())
        .into_iter()
        .filter(is_engine)
        .chain(described);
    engines
        .flat_map(|engine| {
            folders(&engine)
                .into_iter()
                .map(move |folder| (name(&engine), folder))
        })
        .filter_map(|(engine, folder)| capture(&engine, folder))
        .collect()
}

fn capture(engine: &str, folder: PathBuf) -> Option<Fixture> {
    let read = |name: &str| std::fs::read(folder.join(name)).ok();
    let request: Value = serde_json::from_slice(&read("request.json")?).ok()?;
    let path = request["path"].as_str().unwrap_or("/v1/chat/completions");
    let api = match path.rsplit('/').next() {
        Some("responses") => Api::Responses,
        Some("completions") if path.ends_with("/v1/completions") => Api::Completions,
        _ => Api::Chat,
    };
    let (events, input) = match read("upstream.sse") {
        Some(input) => (true, input),
        None => (
            false,
            read("upstream.json").or_else(|| read("upstream.txt"))?,
        ),
    };
    let head = String::from_utf8(read("upstream.http").unwrap_or_default()).unwrap();
    let status = head
        .split_whitespace()
        .nth(1)
        .and_then(|status| status.parse().ok())
        .unwrap_or(200);
    let reset = read("eof").is_some_and(|eof| eof.starts_with(b"reset"));
    let mut body = request
        .get("body")
        .cloned()
        .filter(Value::is_object)
        .unwrap_or_else(|| serde_json::json!({}));
    // Some captures show an engine's answer to a request that samewire refuses. Only the members that affect the
    // answer are kept.
    if api != Api::Responses
        && ChatRequest::recall(api, &Bytes::from(body.to_string())).is_err()
        && let Some(body) = body.as_object_mut()
    {
        body.retain(|key, _| ["model", "stream", "stream_options"].contains(&key.as_str()));
        if body.get("stream") != Some(&Value::Bool(true)) {
            body.remove("stream_options");
        }
    }
    let name = folder
        .strip_prefix(fixtures())
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned();
    let case = Case {
        name,
        api,
        upstream: api,
        engine: engine.to_owned(),
        request: body,
        status,
        input,
        events,
        ending: if reset { Ending::Reset } else { Ending::Clean },
        now: 1_779_866_853,
        ..Case::default()
    };
    Some(Fixture { case, folder })
}
