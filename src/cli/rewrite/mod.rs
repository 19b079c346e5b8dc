//! `samewire rewrite`: rewrites an engine's answer from standard input to standard output.

mod findings;

use super::{CommandFailure, print_error};
use crate::config::{self, Limits};
use crate::engine::{ENGINES, Identity, Version, named};
use crate::filter::{self, FilterError, FilterParams, Target};
use crate::json::{self, Raw, Text, object};
use crate::plan::Route;
use crate::wire::options::Options;
use crate::wire::{Api, Ending, Stamp};
use bytes::Bytes;
use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use findings::{Format, Reporter};
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Rewrite an engine's answer.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Rewrite {
    /// What the bytes are [default: by looking at them, or at the request]
    #[arg(long, value_name = "API")]
    api: Option<Name>,
    /// API of the output [default: the same API, or that of the request]; a chat answer can become one of Responses or Messages
    #[arg(long, value_name = "API")]
    to: Option<Name>,
    /// Which engine the bytes are from
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = engines())]
    engine: String,
    /// The release of that engine, such as 0.21.0 [default: the newest]
    #[arg(long, value_name = "VERSION")]
    engine_version: Option<String>,
    /// The client's request as JSON, or a recorded exchange (path and body) [default: a plain request]
    #[arg(long, value_name = "FILE")]
    request: Option<PathBuf>,
    /// An option of the wire format, such as reasoning_field=reasoning; may be repeated
    #[arg(long, value_name = "OPTION=VALUE")]
    set: Vec<String>,
    /// The status of the engine's answer; with 400 and above the bytes are an error
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u16).range(100..600))]
    status: u16,
    /// How the engine's connection ended: all of the body came, or it broke
    #[arg(long, value_name = "HOW", default_value = "clean")]
    eof: Eof,
    /// The time that is written where the engine gave none, in Unix seconds [default: now]
    #[arg(long, value_name = "SECONDS")]
    now: Option<u64>,
    /// Ids that are written where the engine gave none: counter is the same in each run
    #[arg(long, value_name = "KIND", default_value = "random")]
    ids: Ids,
    /// Say on standard error what is changed: where, by which rule, from what to what; and in the end which engine wrote
    /// the answer, whether it is complete, and which flags of the engine would help
    #[arg(long)]
    explain: bool,
    /// The form of --explain: lines for people, or a JSON object on each line
    #[arg(long, value_name = "FORMAT", default_value = "text", requires = "explain")]
    format: Format,
}

const EXAMPLES: &str = "\
Examples:
  curl -N http://127.0.0.1:8000/v1/chat/completions -H 'content-type: application/json' \\
       -d @request.json | samewire rewrite --request request.json
      What clients of samewire would receive, as it comes.
  samewire rewrite --request request.json < upstream.sse
      A recorded answer.
  samewire rewrite --explain --engine vllm --request request.json < upstream.sse
      And what was changed in request and answer, such as
      'frames 2-57 (56 times)  reasoning_name  reasoning → reasoning_content, reasoning'.
  samewire rewrite --explain --format json < upstream.sse 2> changes.jsonl
      The same for programs.
  samewire rewrite --status 400 --engine vllm < error.json
      An error. Its canonical form is printed, and the exit code is 1.

Each frame is written as soon as it is certain.

Recorded traffic is taken as it is: a request that samewire would refuse, events without blank lines
between them. Standard error says so.

Lines of --explain are 'PLACE  RULE  WHAT'. The rules are those of samewire_rewrites_total; null_fields
and - are counted by none. With --format json each line has a kind:
  change   place (request, frames, answer), first and last (frames), times, rule, change, fields, into,
           before, after, text
  note     text: something odd about the input
  engine   given, recognised, version, evidence, frame, text
  summary  outcome (complete, broken, error), error (status, code, message), finish_reasons, frames_in,
           frames_out, rules, characters_in, characters_out, family, flags, text; always the last
Values are JSON, cut at 40 characters. NO_COLOR turns colours off.

Without --request the request is taken for a plain one of one choice, without usage and logprobs
(--set force_usage=true keeps usage); it is answered with events if the engine's bytes are events.

Exit codes: 0 the canonical answer is a success, 1 it is an error (still printed), 2 wrong usage,
3 a file cannot be read.";

fn engines() -> PossibleValuesParser {
    PossibleValuesParser::new(ENGINES.iter().map(|engine| engine.name))
}

/// Short names of the APIs, as values of `--api` and `--to`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Name {
    Chat,
    Completions,
    Responses,
    Messages,
}

impl Name {
    fn api(self) -> Api {
        match self {
            Self::Chat => Api::Chat,
            Self::Completions => Api::Completions,
            Self::Responses => Api::Responses,
            Self::Messages => Api::Messages,
        }
    }

    fn target(self) -> Target {
        match self {
            Self::Chat => Target::Same(Api::Chat),
            Self::Completions => Target::Same(Api::Completions),
            Self::Responses => Target::Response,
            Self::Messages => Target::Message,
        }
    }
}

/// End of the engine's connection, as the value of `--eof`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Eof {
    Clean,
    Reset,
}

/// Source of ids that the engine did not provide, as the value of `--ids`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Ids {
    Random,
    Counter,
}

impl Rewrite {
    pub(super) fn run(self) -> Result<ExitCode, CommandFailure> {
        let teller = self.explain.then(|| Reporter::new(self.format));
        let order = self.params()?;
        let input = io::stdin();
        if input.is_terminal() {
            print_error(
                "Reading the engine's answer from the terminal; Ctrl-D ends it. See samewire rewrite --help.",
            );
        }
        let (input, output) = (&mut input.lock(), &mut io::stdout().lock());
        let ran = match &teller {
            Some(teller) => {
                let note = &mut |note: &str| teller.note(note);
                filter::explained(order, input, output, note, &mut |finding| teller.finding(&finding))
            }
            None => filter::run(order, input, output, &mut |note| print_error(note)),
        };
        match ran {
            Ok(true) => Ok(ExitCode::SUCCESS),
            Ok(false) => Ok(ExitCode::FAILURE),
            // The reader has closed the pipe.
            Err(FilterError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
                Ok(ExitCode::SUCCESS)
            }
            Err(FilterError::Output(error)) => Err(CommandFailure::at("standard output", error)),
            Err(FilterError::Input(error)) => Err(CommandFailure::at("standard input", error)),
            Err(FilterError::Refused(text)) => Err(CommandFailure::usage(text)),
        }
    }

    fn params(self) -> Result<FilterParams, CommandFailure> {
        let (api, mut to) = (self.api.map(Name::api), self.to.map(Name::target));
        let request = self.request.as_deref().map(request).transpose()?;
        let (asked, request) = request.unzip();
        let mut asked = asked.flatten();
        // An engine may answer a Responses request in either API, so the API is detected from the bytes.
        if asked.take_if(|asked| *asked == Api::Responses).is_some() {
            match to {
                None | Some(Target::Response) => to = Some(Target::Response),
                Some(Target::Same(_) | Target::Message) => {
                    return Err(CommandFailure::usage("--to: the request is one of Responses"));
                }
            }
        }
        // A bare request does not show whether it is one of Chat Completions or of Messages.
        let is_message = to == Some(Target::Message) || [api, asked].contains(&Some(Api::Messages));
        if is_message && matches!(asked, None | Some(Api::Chat | Api::Messages)) {
            if to.is_some_and(|to| to != Target::Message) {
                return Err(CommandFailure::usage("--to: the request is one of Messages"));
            }
            (asked, to) = (None, Some(Target::Message));
        }
        let mut options = Options::default();
        for assignment in &self.set {
            options = config::set(&options, assignment)
                .map_err(|(path, why)| CommandFailure::usage(format!("{path}: {why}")))?;
        }
        let unknown = || CommandFailure::usage(format!("--engine {}: there is no such engine", self.engine));
        let limits = Limits::default();
        let engine = named(&self.engine).ok_or_else(unknown)?;
        let version = self.engine_version.as_deref().map(str::parse::<Version>).transpose();
        let version =
            version.map_err(|_| CommandFailure::usage("--engine-version: a release such as 0.21.0"))?;
        let identity = Identity { version, ..Identity::from(engine) };
        let route = Route::new(identity, Arc::new(options), limits.max_event_bytes);
        Ok(FilterParams {
            api: api.or(asked),
            to,
            request,
            route,
            status: self.status,
            ending: match self.eof {
                Eof::Clean => Ending::Clean,
                Eof::Reset => Ending::Reset,
            },
            stamp: stamp(self.ids, self.now)?,
            limits,
            shown: io::stdout().is_terminal(),
        })
    }
}

/// Returns the ids and the time to write. One answer needs at most one id, so the counter never gets beyond its
/// first number.
fn stamp(ids: Ids, now: Option<u64>) -> Result<Stamp, CommandFailure> {
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let now = now.unwrap_or_else(clock);
    match ids {
        Ids::Counter => Ok(Stamp { id: format!("{:032x}", 1), now, seed: 1, ..Stamp::default() }),
        Ids::Random => {
            let chance = || Ok((getrandom::u64()?, getrandom::u64()?, getrandom::u64()?));
            let (high, low, seed) = chance().map_err(|error: getrandom::Error| {
                CommandFailure::environment(format_args!("no random numbers: {error}"))
            })?;
            Ok(Stamp { id: format!("{high:016x}{low:016x}"), now, seed, ..Stamp::default() })
        }
    }
}

object! {
    /// Members that tell the APIs apart, and a recorded exchange from a plain request.
    struct Request<'a> {
        messages: Raw<'a> = "messages",
        prompt: Raw<'a> = "prompt",
        input: Raw<'a> = "input",
        path: Raw<'a> = "path",
        body: Raw<'a> = "body",
    }
}

/// Reads the request in a file, and the API that it belongs to.
fn request(path: &Path) -> Result<(Option<Api>, Bytes), CommandFailure> {
    if path.as_os_str() == "-" {
        let text = "--request -: standard input holds the engine's answer; the request must be in a file";
        return Err(CommandFailure::usage(text));
    }
    let shown = path.display();
    let bytes =
        std::fs::read(path).map_err(|error| CommandFailure::at(format_args!("--request {shown}"), error))?;
    let wrong = |why: &str| CommandFailure::usage(format!("--request {shown}: {why}"));
    let text = std::str::from_utf8(&bytes).map_err(|_| wrong("it is not UTF-8"))?;
    let text = text.trim_start_matches('\u{feff}');
    let read: Request<'_> = json::read(text)
        .map_err(|error| wrong(&format!("it is not a request, which is a JSON object ({error})")))?;
    let target = read.path.and_then(Text::of).map(|path| path.decoded().into_owned());
    let by_path = match target.as_deref() {
        Some(target) if target.ends_with("/responses") => Some(Api::Responses),
        Some(target) if target.ends_with("/messages") => Some(Api::Messages),
        Some(target) if target.ends_with("/chat/completions") => Some(Api::Chat),
        Some(target) if target.ends_with("/completions") => Some(Api::Completions),
        _ => None,
    };
    let by_field = match (&read.messages, &read.prompt, &read.input) {
        (Some(_), _, _) => Some(Api::Chat),
        (None, Some(_), _) => Some(Api::Completions),
        (None, None, Some(_)) => Some(Api::Responses),
        (None, None, None) => None,
    };
    match read.body.filter(|_| target.is_some()) {
        Some(body) => Ok((by_path, Bytes::copy_from_slice(body.get().as_bytes()))),
        None => Ok((by_field, Bytes::copy_from_slice(text.as_bytes()))),
    }
}
