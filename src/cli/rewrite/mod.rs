//! `samewire rewrite`: rewrites an engine's answer from standard input to standard output.

mod findings;
mod recorded;

use super::{CommandFailure, print_error};
use crate::config::{self, Limits};
use crate::engine::{ENGINES, EngineIdentity, EngineVersion, named};
use crate::filter::{self, FilterError, FilterParams};
use crate::plan::Route;
use crate::visible::visible;
use crate::wire::options::Options;
use crate::wire::{AnswerId, Api, Ending, Stamp};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use findings::{Format, Reporter};
use recorded::RequestFile;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Rewrite an engine's answer.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Rewrite {
    /// What the bytes are [default: by looking at them, or at the request]
    #[arg(long, value_name = "API", value_parser = apis())]
    api: Option<Api>,
    /// API of the output [default: the same API, or that of the request]; a chat answer can become one of Responses or Messages
    #[arg(long, value_name = "API", value_parser = apis())]
    to: Option<Api>,
    /// Which engine the bytes are from [default: auto, or the one in rewrite.json]
    #[arg(long, value_name = "NAME", value_parser = engines())]
    engine: Option<String>,
    /// The release of that engine, such as 0.21.0 [default: the newest, or the one in rewrite.json]
    #[arg(long, value_name = "VERSION")]
    engine_version: Option<String>,
    /// The client's request as JSON, or a recorded exchange (path and body) [default: a plain request]
    #[arg(long, value_name = "FILE")]
    request: Option<PathBuf>,
    /// Facts about the model's chat template, as JSON: the object "facts" of a model in /status on the admin port, or
    /// "template" of doctor --json [default: not known, or what rewrite.json says]
    #[arg(long, value_name = "FILE")]
    facts: Option<PathBuf>,
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
    #[arg(
        long,
        value_name = "FORMAT",
        default_value = "text",
        requires = "explain"
    )]
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
  samewire rewrite --explain --request captured/client/request.json < captured/upstream.sse
      A captured exchange. Its rewrite.json says which engine it was, and which options were in force.
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

/// Returns the parser of `--api` and `--to`, whose values are short names of the APIs.
fn apis() -> impl TypedValueParser<Value = Api> {
    PossibleValuesParser::new(["chat", "completions", "responses", "messages"]).map(|name| {
        match name.as_str() {
            "completions" => Api::Completions,
            "responses" => Api::Responses,
            "messages" => Api::Messages,
            _ => Api::Chat,
        }
    })
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
        let params = self.params()?;
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
                filter::explained(params, input, output, note, &mut |finding| {
                    teller.finding(&finding)
                })
            }
            None => filter::run(params, input, output, &mut |note| {
                print_error(visible(note))
            }),
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
        let (api, mut to) = (self.api, self.to);
        let RequestFile {
            api: mut request_api,
            request,
            route,
        } = self
            .request
            .as_deref()
            .map(recorded::read)
            .transpose()?
            .unwrap_or_default();
        // An engine may answer a Responses request in either API, so the API is detected from the bytes.
        if request_api
            .take_if(|request_api| *request_api == Api::Responses)
            .is_some()
        {
            if to.is_some_and(|to| to != Api::Responses) {
                return Err(CommandFailure::usage(
                    "--to: the request is one of Responses",
                ));
            }
            to = Some(Api::Responses);
        }
        // A bare request does not show whether it is one of Chat Completions or of Messages.
        let is_message = [to, api, request_api].contains(&Some(Api::Messages));
        if is_message && matches!(request_api, None | Some(Api::Chat | Api::Messages)) {
            if to.is_some_and(|to| to != Api::Messages) {
                return Err(CommandFailure::usage(
                    "--to: the request is one of Messages",
                ));
            }
            (request_api, to) = (None, Some(Api::Messages));
        }
        let route = self.route(route)?;
        Ok(FilterParams {
            api: api.or(request_api),
            to,
            request,
            route,
            status: self.status,
            ending: match self.eof {
                Eof::Clean => Ending::Clean,
                Eof::Reset => Ending::Reset,
            },
            stamp: stamp(self.ids, self.now)?,
            limits: Limits::default(),
            shown: io::stdout().is_terminal(),
        })
    }
}

impl Rewrite {
    /// Returns the route by which the answer is rewritten: the recorded one, if there is one, as the flags change it.
    fn route(&self, recorded: Option<Route>) -> Result<Route, CommandFailure> {
        let engine = |name: &str| {
            let unknown =
                || CommandFailure::usage(format!("--engine {name}: there is no such engine"));
            named(name).map(EngineIdentity::from).ok_or_else(unknown)
        };
        let route = match recorded {
            Some(route) => route,
            None => Route::new(
                engine("auto")?,
                Arc::default(),
                Limits::default().max_event_bytes,
            ),
        };
        let given = self.engine.as_deref().map(engine).transpose()?;
        // The same engine keeps its version.
        let other = given.filter(|given| given.engine != route.identity.engine);
        let mut identity = other.unwrap_or(route.identity);
        if let Some(version) = &self.engine_version {
            let version = version.parse::<EngineVersion>();
            identity.version = Some(version.map_err(|_| {
                CommandFailure::usage("--engine-version: a release such as 0.21.0")
            })?);
        }
        let mut options = Options::clone(&route.options);
        for assignment in &self.set {
            options = config::set(&options, assignment)
                .map_err(|(path, why)| CommandFailure::usage(format!("{path}: {why}")))?;
        }
        let facts = self.facts.as_deref().map(recorded::facts).transpose()?;
        // As of serve without a configuration: it listens on this machine alone, without keys.
        options.engine_errors = options.engine_errors.resolved(true);
        Ok(Route {
            identity,
            options: Arc::new(options),
            template: facts.unwrap_or(route.template),
            ..route
        })
    }
}

/// Returns the ids and the time to write. One answer needs at most one id, so the counter never gets beyond its
/// first number.
fn stamp(ids: Ids, now: Option<u64>) -> Result<Stamp, CommandFailure> {
    let clock = || {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs())
    };
    let (id, seed) = match ids {
        Ids::Counter => (AnswerId(1), 1),
        Ids::Random => {
            let chance = || Ok((getrandom::u64()?, getrandom::u64()?, getrandom::u64()?));
            let (high, low, seed) = chance().map_err(|error: getrandom::Error| {
                CommandFailure::environment(format_args!("no random numbers: {error}"))
            })?;
            (AnswerId(u128::from(high) << 64 | u128::from(low)), seed)
        }
    };
    let request_id = Some(format!("req_{id}").into());
    Ok(Stamp {
        id,
        now: now.unwrap_or_else(clock),
        seed,
        request_id,
    })
}
