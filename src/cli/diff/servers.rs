//! `samewire diff --ask`: the same request to two servers, and their answers.

use super::super::target::TargetFlags;
use super::super::{CommandFailure, ENVIRONMENT, print_error, runtime};
use crate::diff::{Answer, Form, Head};
use crate::exchange::{Bounds, Ended, Exchange, Failure, Request};
use crate::visible::visible;
use bytes::Bytes;
use clap::Args;
use http::{HeaderMap, Method};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Flags of [`TargetFlags`], which say nothing about files.
const TARGET: [&str; 3] = ["key_file", "header", "ca_file"];
/// Most events of an answer: each takes far more memory than its bytes.
const EVENTS: usize = 20_000;

/// Flags for requests to servers.
#[derive(Debug, Args)]
#[command(mut_args(|flag| if TARGET.contains(&flag.get_id().as_str()) { flag.requires("ask") } else { flag }))]
pub(super) struct Servers {
    /// Send this request to both servers: a body, or the request.json of an exchange
    #[arg(long, value_name = "FILE")]
    pub(super) ask: Option<PathBuf>,
    #[command(flatten)]
    target: TargetFlags,
    /// Longest time for one answer
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = super::super::patience)]
    timeout: Duration,
}

/// Request in a file: that of an exchange, or a body alone, whose members tell the route.
#[derive(Deserialize)]
struct FileRequest<'a> {
    method: Option<String>,
    path: Option<String>,
    #[serde(borrow)]
    body: Option<&'a RawValue>,
    input: Option<IgnoredAny>,
    prompt: Option<IgnoredAny>,
    messages: Option<IgnoredAny>,
}

impl Servers {
    /// Sends the request to both servers at once, and returns their answers.
    pub(super) fn answers(
        &self,
        file: &Path,
        urls: [&str; 2],
    ) -> Result<[Answer; 2], CommandFailure> {
        let request = request(file)?;
        let sender = |url: &str| self.target.sender(url, Bounds::within(self.timeout));
        let [one, two] = urls;
        let (one, two) = (sender(one)?, sender(two)?);
        let both = async { tokio::join!(one.send(request.clone()), two.send(request)) };
        let (a, b) = runtime()?.block_on(both);
        let answer = |exchange: Result<Exchange, Failure>, url: &str| {
            let exchange = exchange.map_err(CommandFailure::environment)?;
            if exchange.ended != Ended::Clean {
                print_error(format_args!("{}: {}.", visible(url), exchange.ended.name()));
            }
            answer(exchange).map_err(|why| CommandFailure(ENVIRONMENT, format!("{url}: {why}")))
        };
        let [first, second] = urls;
        Ok([answer(a, first)?, answer(b, second)?])
    }
}

/// Reads the request of a file.
fn request(file: &Path) -> Result<Request, CommandFailure> {
    let wrong =
        |why: String| CommandFailure::usage(format_args!("--ask {}: {why}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
    let read: FileRequest<'_> =
        serde_json::from_str(&text).map_err(|error| wrong(format!("it is no request: {error}")))?;
    let route = match &read {
        FileRequest { input: Some(_), .. } => "/responses",
        FileRequest {
            prompt: Some(_), ..
        } => "/completions",
        _ => "/chat/completions",
    };
    let is_bare = read.path.is_none();
    if is_bare && read.messages.is_none() && route == "/chat/completions" {
        let why = "it must have `messages`, `input` or `prompt`, or be a request.json with `path` and `body`";
        return Err(wrong(why.to_owned()));
    }
    let path = read.path.unwrap_or_else(|| format!("/v1{route}"));
    let Some(path) = path.strip_prefix("/v1") else {
        return Err(wrong(format!(
            "its path must begin with /v1, and is {path:?}"
        )));
    };
    let method = read.method.as_deref().unwrap_or("POST");
    let method = Method::from_bytes(method.as_bytes())
        .map_err(|_| wrong(format!("{method:?} is no method")))?;
    let body = match read.body {
        Some(body) => body.get().to_owned(),
        None if is_bare => text.clone(),
        None => String::new(),
    };
    Ok(Request {
        method,
        path: path.to_owned(),
        headers: HeaderMap::new(),
        body: Bytes::from(body),
    })
}

/// Returns the answer of an exchange. One that was given up is as far as it came, like one that broke off.
fn answer(exchange: Exchange) -> Result<Answer, String> {
    if let Some(redirect) = exchange.redirect() {
        return Err(redirect);
    }
    let lines = exchange.body.split(|byte| matches!(byte, b'\n' | b'\r'));
    if lines.filter(|line| line.starts_with(b"data")).count() > EVENTS {
        return Err(format!("the answer has more than {EVENTS} events"));
    }
    let content_type = exchange.content_type().to_lowercase();
    let form = match content_type.split(';').next().unwrap_or_default().trim() {
        "text/event-stream" => Form::Events,
        "application/json" => Form::Json,
        _ => Form::Text,
    };
    let head = Head {
        status: exchange.status.as_u16(),
        content_type: Some(content_type).filter(|text| !text.is_empty()),
    };
    let is_cut = exchange.ended != Ended::Clean;
    Answer::read(form, &exchange.body, is_cut, Some(head)).map_err(|mistake| {
        format!(
            "line {} of the answer cannot be read: {}",
            mistake.line, mistake.why
        )
    })
}
