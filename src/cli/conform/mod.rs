//! `samewire conform`: the contract of the API as a test suite against any server.

mod report;

use super::table::Look;
use super::target::{TargetFlags, progress, save_all};
use super::{
    CommandFailure, INTERRUPTED, has_colour, interruptible, patience, print, print_error, runtime,
    terminal_width,
};
use crate::conform::{self, Group, Report, SuiteRequest};
use crate::exchange::{Bounds, Sender};
use clap::Args;
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
and the rows say so. One that has no room for two requests in a row (429, 503) gets no more.
Ctrl-C ends the requests, and prints what is known by then. A route that a server need not have is
reported as not offered. NO_COLOR turns colours off. Keys and headers are not written to the
exchanges.

Exit codes: 0 no row failed, 1 a row failed, 2 wrong usage or key file, 3 the server cannot be
reached or is no OpenAI-compatible one, or a file cannot be written, 130 Ctrl-C.";

fn group(text: &str) -> Result<Group, String> {
    let names = Group::ALL.map(Group::name).join(", ");
    Group::ALL
        .into_iter()
        .find(|group| group.name() == text)
        .ok_or_else(|| format!("must be one of {names}"))
}

impl Conform {
    pub(super) fn run(&self) -> Result<ExitCode, CommandFailure> {
        let look = Look {
            width: terminal_width(60),
            has_colour: has_colour(),
        };
        let Some(url) = self.url.as_deref().filter(|_| !self.list) else {
            print(self.listed());
            return Ok(ExitCode::SUCCESS);
        };
        let sender = self.target.sender(url, Bounds::within(self.timeout))?;
        let requests = conform::requests(&self.only, self.model.as_deref());
        print_error(format_args!(
            "{} requests to {}, at most {} tokens.",
            requests.len(),
            sender.target().base(),
            conform::tokens(&requests)
        ));
        let runtime = runtime()?;
        let mut report = Report::new(&requests, self.save.is_some());
        let interrupted = runtime.block_on(self.send_all(&sender, &requests, &mut report))?;
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
    async fn send_all(
        &self,
        sender: &Sender,
        requests: &[SuiteRequest],
        report: &mut Report,
    ) -> Result<bool, CommandFailure> {
        let run = conform::run(sender, requests, self.model.as_deref(), report, |request| {
            progress(request.name())
        });
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
        let Some(root) = &self.save else {
            return Ok(());
        };
        let exchanges = report
            .exchanges
            .iter()
            .map(|(request, exchange)| (request.name(), exchange));
        save_all(exchanges, root, ["Request", "conform"])
    }

    fn listed(&self) -> String {
        let is_selected = |group: Group| self.only.is_empty() || self.only.contains(&group);
        let rows = conform::catalogue().filter(|row| is_selected(row.group()));
        let line = |row: &conform::Row| {
            format!(
                "{:<17} {:<31} {} [{}]\n",
                row.group().name(),
                row.id,
                row.statement,
                row.citation
            )
        };
        rows.map(line).collect()
    }
}
