//! `samewire drain`: makes a running samewire refuse new traffic, and waits until no request is in progress.

use super::running::{Admin, Running};
use super::{CommandFailure, print, print_error};
use crate::quantity::time;
use clap::Args;
use std::process::ExitCode;
use std::time::Duration;

/// Take no more traffic, and wait until nothing is under way; or take that back.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Drain {
    #[command(flatten)]
    running: Running,
    /// How long to wait at most, such as 300s or 5m; 0 does not wait [default: as long as it takes]
    #[arg(long, value_name = "TIME", value_parser = time)]
    wait: Option<Duration>,
    /// Take a drain back: the running samewire is ready and serves again
    #[arg(long, conflicts_with = "wait")]
    undo: bool,
}

const EXAMPLES: &str = "\
Examples:
  samewire drain
  samewire drain --wait 300s --admin-listen 127.0.0.1:9090
  samewire drain --undo

The running samewire is not ready from then on. For `settle` seconds it serves new requests, then it refuses them,
and running answers go on to their end, for `drain` seconds at most. It does not exit: that takes a SIGTERM.
With --undo it serves again, whatever the drain has come to; not after a SIGTERM.
Exits with 0 when nothing is under way (with --undo: when it serves), with 1 when something is left or the drain cannot
be taken back, with 3 when nobody answers.";

impl Drain {
    pub(super) fn run(&self) -> Result<ExitCode, CommandFailure> {
        self.running
            .run_with_admin(async |admin| self.drain(admin).await)
    }

    async fn drain(&self, admin: &Admin) -> Result<ExitCode, CommandFailure> {
        let path = if self.undo { "/drain/undo" } else { "/drain" };
        let begun = match admin.post(path).send().await {
            Ok(answer) if self.undo => return Ok(report_undo(answer).await),
            begun => begun,
        };
        match begun.and_then(reqwest::Response::error_for_status) {
            Ok(_) => Ok(self.wait(admin).await),
            Err(error) => Err(admin.unreachable(&error)),
        }
    }

    async fn wait(&self, admin: &Admin) -> ExitCode {
        if self.wait.is_some_and(|wait| wait.is_zero()) {
            return ExitCode::SUCCESS;
        }
        let mut request = admin.get("/drain/wait");
        if let Some(wait) = self.wait {
            request = request.timeout(wait);
        }
        let left = match request.send().await {
            // A process that has ended has no requests in progress.
            Err(error) if !error.is_timeout() => {
                print("samewire has ended\n");
                return ExitCode::SUCCESS;
            }
            Err(_) => "not drained in time".to_owned(),
            Ok(answer) if answer.status().is_success() => {
                print("drained\n");
                return ExitCode::SUCCESS;
            }
            Ok(answer) => answer.text().await.unwrap_or_default(),
        };
        print_error(left.trim());
        ExitCode::FAILURE
    }
}

/// Reports the outcome of taking back a drain: prints the server's answer, or why it refused.
async fn report_undo(answer: reqwest::Response) -> ExitCode {
    let status = answer.status();
    let text = answer.text().await.unwrap_or_default();
    if status.is_success() {
        print(text);
        return ExitCode::SUCCESS;
    }
    print_error(if status == reqwest::StatusCode::NOT_FOUND {
        "it is too old to take a drain back"
    } else {
        text.trim()
    });
    ExitCode::FAILURE
}
