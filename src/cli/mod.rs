//! Command line: one file per command, which parses arguments, calls the library and prints the result.
//!
//! Exit codes of all commands: 0 success, 1 the examined thing is wrong, 2 wrong usage or configuration, 3 a
//! problem of the environment (port, file).

mod check;
mod conform;
mod demo;
mod diff;
mod doctor;
mod drain;
mod env;
mod key;
mod manual;
mod ready;
mod replay;
mod rewrite;
mod running;
mod serve;
mod table;
mod target;

use crate::config::Terminal;
use crate::quantity::time;
use crate::secret::{self, Secret};
use crate::telemetry::Build;
use crate::visible::visible_lines;
use clap::{Parser, Subcommand};
use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// Exit code for wrong usage or an invalid configuration.
const USAGE: u8 = 2;
/// Exit code for a problem of the environment, such as a port or file that is unavailable.
const ENVIRONMENT: u8 = 3;
/// Exit code of a command that Ctrl-C has ended, as shells give it.
const INTERRUPTED: u8 = 130;

/// One canonical OpenAI wire format in front of vLLM, SGLang and other engines.
#[derive(Debug, Parser)]
#[command(name = "samewire", version = Build::CURRENT.line, about, arg_required_else_help = true, max_term_width = 100, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  samewire demo
      Shows what it does, without an engine and without a GPU.
  samewire serve --upstream http://127.0.0.1:8000
      Serves on http://127.0.0.1:8080/v1; point an OpenAI client's base URL there.
  curl -N http://127.0.0.1:8000/v1/chat/completions -d @request.json | samewire rewrite
      Shows what a client would receive, without a proxy.
  samewire replay fixtures/vllm --listen 127.0.0.1:8000
      Serves recorded traffic as an engine.
  samewire doctor http://127.0.0.1:8000
      Says what an engine does otherwise than the API, which clients that breaks, and what helps.
  samewire diff fixtures/vllm/tool fixtures/sglang/tool
      Says how two recorded answers differ, apart from their words.
  samewire conform http://127.0.0.1:8000
      Tests whether a server keeps the contract of the API.
  samewire check --config samewire.toml
      Says what is wrong with a configuration, or what it means.
  samewire key new
      Makes a key for a client.
  source <(samewire env claude)
      Tells Claude Code of a running samewire and its model. Also codex, opencode, qwen and openai.
  samewire drain --wait 300s
      Has a running samewire take no more traffic, and waits until nothing is under way.
  samewire ready
      Says whether a running samewire takes traffic, as an exit code.

Every flag of serve is also a key of the configuration file and an environment variable:
--admin-listen is admin_listen in the file and SAMEWIRE_ADMIN_LISTEN in the environment.
Every other key is a variable, too: level of [log] is SAMEWIRE_LOG__LEVEL.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Stand between clients and an engine: the proxy.
    Serve(serve::Serve),
    /// See what it does, without a GPU: recorded vLLM and SGLang traffic behind the real proxy.
    Demo(demo::Demo),
    /// Rewrite an engine's answer: its bytes on standard input, the canonical bytes on standard output.
    Rewrite(rewrite::Rewrite),
    /// Serve recorded captures as an engine: for tests, demos and bug reports.
    Replay(replay::Replay),
    /// Say what a running engine does otherwise than the API, which clients that breaks, and what helps.
    Doctor(doctor::Doctor),
    /// Compare two recorded answers: their shape, apart from their words.
    Diff(diff::Diff),
    /// Test whether a server keeps the contract of the API.
    Conform(conform::Conform),
    /// Look through a configuration: print what it means, or everything that is wrong with it.
    Check(check::Check),
    /// Make keys for clients.
    Key(key::Key),
    /// Print what a client should know: addresses, the model and its context, as variables or a configuration.
    Env(env::Env),
    /// Take no more traffic, and wait until nothing is under way; or take that back.
    Drain(drain::Drain),
    /// Say whether a running samewire takes traffic, as an exit code: for health checks.
    Ready(ready::Ready),
    /// Print completions for bash, zsh, fish, elvish or PowerShell.
    Completions(manual::Completions),
    /// Print the manual page, or write those of all commands.
    Man(manual::Manual),
}

/// Parses the command line, runs the command, and returns its exit code.
pub fn main() -> ExitCode {
    let ended = match Arguments::parse().command {
        Command::Serve(serve) => serve.run(),
        Command::Demo(demo) => demo.run(),
        Command::Rewrite(rewrite) => rewrite.run(),
        Command::Replay(replay) => replay.run(),
        Command::Doctor(doctor) => doctor.run(),
        Command::Diff(diff) => diff.run(),
        Command::Conform(conform) => conform.run(),
        Command::Check(check) => check.run(),
        Command::Key(key) => key.run(),
        Command::Env(env) => env.run(),
        Command::Drain(drain) => drain.run(),
        Command::Ready(ready) => ready.run(),
        Command::Completions(completions) => completions.run(),
        Command::Man(manual) => manual.run(),
    };
    ended.unwrap_or_else(|CommandFailure(code, why)| {
        print_error(visible_lines(&why));
        ExitCode::from(code)
    })
}

/// Failure of a command: its exit code, and the message for people.
struct CommandFailure(u8, String);

impl CommandFailure {
    fn usage(why: impl std::fmt::Display) -> Self {
        Self(USAGE, why.to_string())
    }

    fn environment(why: impl std::fmt::Display) -> Self {
        Self(ENVIRONMENT, why.to_string())
    }

    /// Returns the failure to read or write this place, such as standard output.
    fn at(place: impl std::fmt::Display, error: impl std::fmt::Display) -> Self {
        Self(ENVIRONMENT, format!("{place}: {error}"))
    }
}

/// Longest time that a `--timeout` accepts.
const LONGEST_PATIENCE: Duration = Duration::from_secs(600);

/// Parses the time that one answer of a server may take.
fn patience(text: &str) -> Result<Duration, String> {
    let given = time(text)
        .ok()
        .filter(|time| !time.is_zero() && *time <= LONGEST_PATIENCE);
    given.ok_or_else(|| {
        "must be a time such as 500ms or 60s, longer than 0 and up to 10m".to_owned()
    })
}

/// Reads the key of `--key-file`.
fn key_file(path: &Path) -> Result<Secret, CommandFailure> {
    let wrong = |why: &str| CommandFailure::usage(format_args!("--key-file: {why}"));
    let text = secret::read(path).map_err(|why| wrong(&why))?;
    match text.trim() {
        "" => Err(wrong("the file holds no key")),
        key if key.len() > LONGEST_KEY => {
            Err(wrong("the file is too long for a key (more than 8 KiB)"))
        }
        key if key.lines().nth(1).is_some() => Err(wrong(
            "the file has several lines; it must hold the key alone",
        )),
        key => Secret::with_prefix("Bearer ", key)
            .ok_or_else(|| wrong("the key has characters that no header can have")),
    }
}

/// Longest key in bytes; servers refuse longer headers.
const LONGEST_KEY: usize = 8 << 10;

/// Returns a runtime of one thread, for the requests of a command.
fn runtime() -> Result<tokio::runtime::Runtime, CommandFailure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.map_err(CommandFailure::environment)
}

/// Waits for a task until Ctrl-C; `None`: that came first.
async fn interruptible<T>(task: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        ended = task => Some(ended),
        Ok(()) = tokio::signal::ctrl_c() => None,
    }
}

/// Returns the width of the terminal in columns, at least `narrowest`. `COLUMNS` takes precedence, so that the width
/// can be chosen.
fn terminal_width(narrowest: usize) -> usize {
    let measured = || terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    Terminal::environment()
        .columns
        .or_else(measured)
        .unwrap_or(100)
        .clamp(narrowest, 200)
}

/// Returns true if standard output may be coloured.
fn has_colour() -> bool {
    !Terminal::environment().plain && io::stdout().is_terminal()
}

/// Prints a result on standard output, and ignores write errors: the reader may have closed the pipe.
fn print(text: impl std::fmt::Display) {
    use std::io::Write;
    let _ = write!(io::stdout().lock(), "{text}");
}

/// Prints a message for people on stderr, and ignores write errors.
fn print_error(text: impl std::fmt::Display) {
    use std::io::Write;
    // Write errors cannot be reported anywhere.
    let _ = writeln!(io::stderr().lock(), "{text}");
}
