//! `samewire replay`: serves recorded traffic as an engine.

use super::CommandFailure;
use crate::config::{LogFormat, LogLevel};
use crate::quantity::time;
use crate::replay::{self, LoadError};
use crate::telemetry;
use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Serve recorded captures as an engine.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Replay {
    /// A scenario's folder, or a folder of such folders
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Address to listen on; with port 0 a free port is chosen, and the first log line names it
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Time between two events of an answer: milliseconds, or a time such as 30ms or 1s
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = pace)]
    pace: Duration,
}

/// Longest pause between two events that `--pace` accepts.
const PACE: Duration = Duration::from_secs(60);

/// Parses a time in which a number without a unit means milliseconds.
fn pace(text: &str) -> Result<Duration, String> {
    let pace = text
        .parse()
        .map(Duration::from_millis)
        .ok()
        .or_else(|| time(text).ok());
    pace.filter(|pace| *pace <= PACE)
        .ok_or_else(|| "must be milliseconds, or a time such as 30ms or 1s, up to 60s".to_owned())
}

const EXAMPLES: &str = "\
Examples:
  samewire replay fixtures/vllm fixtures/sglang --listen 127.0.0.1:8000 --pace 30
  samewire serve --upstream http://127.0.0.1:8000
      An engine without a GPU, and samewire in front of it.
  curl -N http://127.0.0.1:8000/v1/chat/completions -H 'content-type: application/json' \\
       -d '{\"model\":\"vllm/tool\",\"messages\":[{\"role\":\"user\",\"content\":\"?\"}],\"stream\":true}'
      The model names the scenario. GET /v1/models lists the names.
  samewire replay ./bug-report
      A bug report that somebody sent you.

A scenario is a folder with request.json (method, path, body) and the engine's answer: upstream.sse,
.json or .txt; its head in upstream.http; and, if the connection broke, a file eof with the word
reset. The files may also be named response.*. The name of a scenario is its path, from the last
folder of PATH on. The end of a name is enough if only one scenario has it. A request that names no
scenario gets the first one of the same path, method and stream.

Exit codes: 0 ended by a signal, 2 something in a folder is wrong, 3 a path cannot be read or the
port is in use.";

impl Replay {
    pub(super) fn run(&self) -> Result<ExitCode, CommandFailure> {
        let scenarios = replay::load(&self.paths).map_err(|mistake| match mistake {
            LoadError::Unreadable(..) => CommandFailure::environment(mistake),
            mistake => CommandFailure::usage(mistake),
        })?;
        let _logging = telemetry::start_logging(LogLevel::Info, LogFormat::Auto)
            .map_err(CommandFailure::environment)?;
        replay::run(self.listen, scenarios, self.pace).map_err(CommandFailure::environment)?;
        Ok(ExitCode::SUCCESS)
    }
}
