//! `samewire doctor`: what a running engine does otherwise than the API, whom that affects, and what helps.

mod json;
mod report;
mod through;

use super::table::{Look, wrapped};
use super::target::{TargetFlags, progress, save_all};
use super::{
    CommandFailure, INTERRUPTED, has_colour, interruptible, patience, print, print_error, runtime,
    terminal_width,
};
use crate::doctor::{self, Advice, AdvisedFiles, Finding, Limits, Report, Severity, advice};
use crate::exchange::Bounds;
use crate::visible::visible;
use clap::Args;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use through::Proxy;
use tokio::runtime::Runtime;

/// Say what a running engine does otherwise than the API, which clients that breaks, and what helps.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Doctor {
    /// The engine or gateway, with or without /v1
    #[arg(value_name = "URL")]
    url: String,
    /// The model to ask [default: the first that the server lists]
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    #[command(flatten)]
    target: TargetFlags,
    /// Ask the same through samewire in front of the server, too, with the configuration that is advised
    #[arg(long)]
    through: bool,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
    /// Write each exchange to a folder below this one, as samewire replay reads it
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
    /// Longest time for one answer
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = patience)]
    timeout: Duration,
    /// Longest time for all questions
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = patience)]
    within: Duration,
    /// Longest time for which an unused connection is watched, beside the questions, and for which the list of models
    /// and the engine's own routes may stall (at least 2s)
    #[arg(long, value_name = "TIME", default_value = "12s", value_parser = patience)]
    idle: Duration,
}

const EXAMPLES: &str = "\
Examples:
  samewire doctor http://127.0.0.1:8000
      Asks an engine some small questions. The end of the report is a configuration for samewire.
  samewire doctor http://127.0.0.1:8000 --through
      Asks the same through samewire, which is started for that on a free port of this machine.
  samewire doctor https://api.example --key-file key.txt --model m --json --save ./seen
      With a key; the results for programs, and the exchanges for samewire replay and rewrite.

The answers may cost 2,000 tokens at most. How many is printed first, with those of the prompts, the
number of requests and the time. With --through all of it is spent twice, and samewire looks after
the server as well.
A server that stalls, or sends more than 256 KiB in one answer, is given up. One that has no room
for two questions in a row (429, 503) gets no more. Ctrl-C ends the questions and prints what
is known by then. NO_COLOR turns colours off. Keys and headers are not written to the exchanges.

Severities: broken (clients fail), warning (some clients lose something), note (it differs, and no
known client fails), fine, and not seen (the answers do not show it, as where a model calls no
function).

Exit codes: 0 nothing worse than notes, 1 something worse, 2 wrong usage or key file, 3 the server
cannot be reached, does not answer, or is no OpenAI-compatible one, or a file cannot be written,
130 Ctrl-C. With --through they are about the answers through samewire.";

/// Examination of a server, with its results.
struct Examined {
    report: Report,
    findings: Vec<Finding>,
    /// True if Ctrl-C ended it.
    interrupted: bool,
}

impl Examined {
    /// Returns true if something is worse than a note.
    fn is_wrong(&self) -> bool {
        self.findings
            .iter()
            .any(|finding| finding.severity() >= Severity::Warning)
    }
}

impl Doctor {
    pub(super) fn run(&self) -> Result<ExitCode, CommandFailure> {
        let look = Look {
            width: terminal_width(60),
            has_colour: has_colour(),
        };
        let files = AdvisedFiles {
            key: self.target.key_file.as_deref().map(absolute).transpose()?,
            ca: self.target.ca_file.as_deref().map(absolute).transpose()?,
        };
        if let Some(root) = &self.save {
            // Before anything is sent: the answers would be lost.
            std::fs::create_dir_all(root)
                .map_err(|error| CommandFailure::at(root.display(), error))?;
        }
        let runtime = runtime()?;
        let direct = runtime.block_on(self.examine(&self.url, self.model.as_deref()))?;
        let advice = match direct.report.is_answered() {
            true => advice(&direct.report, &direct.findings, &files),
            false => Advice::default(),
        };
        let through = self.through(&runtime, &direct, &advice);
        let both = through.as_ref().and_then(|through| through.as_ref().ok());
        match self.json {
            true => print(json::text(&direct, both, &advice)),
            false => print(report::text(&direct, both, &advice, look)),
        }
        if let Some(root) = &self.save {
            write(&direct.report, root)?;
            if let Some(through) = both {
                write(&through.report, &root.join("through"))?;
            }
        }
        let last = through.transpose()?;
        let last = last.as_ref().unwrap_or(&direct);
        Ok(if last.interrupted {
            ExitCode::from(INTERRUPTED)
        } else {
            ExitCode::from(u8::from(last.is_wrong()))
        })
    }

    /// Asks the same through samewire, if that is wanted. A failure must not cost what is known of the server.
    fn through(
        &self,
        runtime: &Runtime,
        direct: &Examined,
        advice: &Advice,
    ) -> Option<Result<Examined, CommandFailure>> {
        let nothing = (!direct.report.is_answered()).then_some("nothing was answered");
        match direct.report.stopped.as_deref().or(nothing) {
            _ if !self.through => None,
            Some(why) => {
                print_error(format_args!(
                    "samewire in front of the server is not asked: {}.",
                    visible(why)
                ));
                None
            }
            None => Some(Proxy::start(&advice.config).and_then(|proxy| {
                runtime.block_on(self.examine_through(&proxy, direct.report.model()))
            })),
        }
    }

    async fn examine_through(
        &self,
        proxy: &Proxy,
        model: &str,
    ) -> Result<Examined, CommandFailure> {
        proxy
            .wait_until_ready(self.timeout)
            .await
            .map_err(CommandFailure::environment)?;
        self.examine(&proxy.url, Some(model)).await
    }

    async fn examine(&self, url: &str, model: Option<&str>) -> Result<Examined, CommandFailure> {
        let limits = Limits {
            answer: self.timeout,
            total: self.within,
            idle: self.idle,
        };
        let bounds = Bounds {
            connect: Bounds::within(self.timeout).connect,
            ..limits.bounds()
        };
        let sender = self.target.sender(url, bounds)?;
        let told = format!(
            "{} requests to {}, at most {} tokens, and about {} tokens of prompts; at most {} short requests beside \
             them, for what the server is and what it has to do. It takes as long as the answers do, or up to {} s to \
             watch an unused connection (--idle), and at most {} s (--within).",
            doctor::requests(),
            sender.target().base(),
            doctor::tokens(),
            doctor::prompt_tokens(),
            doctor::own_requests(),
            self.idle.as_secs_f32(),
            self.within.as_secs_f32()
        );
        print_error(match io::stderr().is_terminal() {
            true => wrapped(&told, terminal_width(60)).join("\n"),
            false => told,
        });
        let mut report = Report::new(self.save.is_some());
        let run = Box::pin(doctor::run(&sender, model, limits, &mut report, progress));
        let ended = interruptible(run).await;
        let interrupted = ended.is_none();
        match ended {
            Some(ended) => ended.map_err(CommandFailure::environment)?,
            None => report.stopped = Some("it was interrupted".to_owned()),
        }
        let findings = report.findings();
        Ok(Examined {
            report,
            findings,
            interrupted,
        })
    }
}

/// Returns the absolute path of a file, for the configuration.
fn absolute(path: &Path) -> Result<String, CommandFailure> {
    let full =
        std::path::absolute(path).map_err(|error| CommandFailure::at(path.display(), error))?;
    Ok(full.display().to_string())
}

/// Writes all exchanges to folders.
fn write(report: &Report, root: &Path) -> Result<(), CommandFailure> {
    let exchanges = report
        .exchanges
        .iter()
        .map(|(name, exchange)| (name.as_str(), exchange));
    save_all(exchanges, root, ["Question", "doctor"])
}
