//! `samewire conform`: the contract of the API as a test suite against any server.

mod report;

use super::table::Look;
use super::target::TargetFlags;
use super::{
    CommandFailure, INTERRUPTED, has_colour, interruptible, patience, print, print_error, terminal_width,
};
use crate::conform::{self, Ask, Group, Report};
use crate::exchange::{Bounds, Sender, save};
use clap::Args;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Test whether a server keeps the contract of the API.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Conform {
    /// The server, with or without /v1
    #[arg(value_name = "URL", required_unless_present = "list")]
    url: Option<String>,
    /// The model to ask [default: the first that the server lists]
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    #[command(flatten)]
    target: TargetFlags,
    /// Only the rows of this group; repeatable
    #[arg(long, value_name = "GROUP", value_parser = group)]
    only: Vec<Group>,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
    /// Write the results as JUnit XML, too
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Write each exchange to a folder below this one, as samewire replay reads it
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
    /// Longest time for one answer
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = patience)]
    timeout: Duration,
    /// Print the rows and ask nothing
    #[arg(long)]
    list: bool,
}

const EXAMPLES: &str = "\
Examples:
  samewire conform http://127.0.0.1:8000
      Sends some requests to an engine or a gateway, and prints what holds.
  samewire conform http://127.0.0.1:8080 --only chat-stream --only tools
      Two groups of rows. --list prints all rows with their groups.
  samewire conform https://api.example --key-file key.txt --model m --junit conform.xml --save ./seen
      With a key; the results for a build server, and the exchanges for samewire replay.

A server that stalls, or sends without end, is given up after --timeout or 4 MiB of one answer,
and the rows say so. One that has no room for two requests in a row (429, 503) is asked no more.
Ctrl-C ends the requests, and prints what is known by then. A route that a server need not have is
reported as not offered. NO_COLOR turns colours off. Keys and headers are not written to the
exchanges.

Exit codes: 0 no row failed, 1 a row failed, 2 wrong usage or key file, 3 the server cannot be
reached or is no OpenAI-compatible one, or a file cannot be written, 130 Ctrl-C.";

fn group(text: &str) -> Result<Group, String> {
    let names = Group::ALL.map(Group::name).join(", ");
    Group::ALL.into_iter().find(|group| group.name() == text).ok_or_else(|| format!("must be one of {names}"))
}

impl Conform {
    pub(super) fn run(&self) -> Result<ExitCode, CommandFailure> {
        let look = Look { width: terminal_width(60), has_colour: has_colour() };
        let Some(url) = self.url.as_deref().filter(|_| !self.list) else {
            print(self.listed());
            return Ok(ExitCode::SUCCESS);
        };
        let target = self.target.target(url)?;
        let sender =
            Sender::new(target, Bounds::within(self.timeout)).map_err(CommandFailure::environment)?;
        let asks = conform::asks(&self.only, self.model.as_deref());
        print_error(format_args!(
            "{} requests to {}, at most {} tokens.",
            asks.len(),
            sender.target().base(),
            conform::tokens(&asks)
        ));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(CommandFailure::environment)?;
        let mut report = Report::new(&asks, self.save.is_some());
        let interrupted = runtime.block_on(self.ask(&sender, &asks, &mut report))?;
        if report.is_nameless {
            print_error(format_args!(
                "No model of the server's list has a name; {} was asked.",
                report.model
            ));
        }
        match self.json {
            true => print(report::json(&report)),
            false => print(report::text(&report, look)),
        }
        self.write(&report)?;
        Ok(match interrupted {
            true => ExitCode::from(INTERRUPTED),
            false => ExitCode::from(u8::from(report.count("fail") > 0)),
        })
    }

    /// Sends the requests. Returns true if Ctrl-C has ended that.
    async fn ask(&self, sender: &Sender, asks: &[Ask], report: &mut Report) -> Result<bool, CommandFailure> {
        let run = conform::run(sender, asks, self.model.as_deref(), report, progress);
        let ended = interruptible(run).await;
        let Some(ended) = ended else {
            report.stopped = Some("it was interrupted".to_owned());
            return Ok(true);
        };
        ended.map_err(CommandFailure::environment)?;
        Ok(false)
    }

    fn write(&self, report: &Report) -> Result<(), CommandFailure> {
        if let Some(path) = &self.junit {
            let written = std::fs::write(path, report::junit(report));
            written.map_err(|error| CommandFailure::at(path.display(), error))?;
        }
        let Some(root) = &self.save else { return Ok(()) };
        for (ask, exchange) in &report.exchanges {
            let folder = root.join(ask.name());
            let about = format!("Request `{}` of `samewire conform`:", ask.name());
            save(exchange, &folder, &about).map_err(|error| CommandFailure::at(folder.display(), error))?;
        }
        Ok(())
    }

    fn listed(&self) -> String {
        let wanted = |group: Group| self.only.is_empty() || self.only.contains(&group);
        let rows = conform::catalogue().filter(|row| wanted(row.group()));
        let line = |row: &conform::Row| {
            format!("{:<17} {:<31} {} [{}]\n", row.group().name(), row.id, row.statement, row.citation)
        };
        rows.map(line).collect()
    }
}

/// Says on a terminal which request is under way.
fn progress(ask: Ask) {
    if io::stderr().is_terminal() {
        print_error(format_args!("  {}", ask.name()));
    }
}
