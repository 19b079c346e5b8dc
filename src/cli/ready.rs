//! `samewire ready`: tells if a running samewire accepts traffic.

use super::running::{Admin, Running};
use super::{CommandFailure, print, print_error};
use crate::quantity::time;
use clap::Args;
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::Instant;

/// Time limit of one request to `/readyz`, after which the server counts as silent.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause between two requests while `--wait` has not expired.
const PAUSE: Duration = Duration::from_millis(250);

/// Whether a running samewire takes traffic.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Ready {
    #[command(flatten)]
    running: Running,
    /// How long to wait until it is ready, such as 60s or 5m [default: one question]
    #[arg(long, value_name = "TIME", value_parser = time)]
    wait: Option<Duration>,
}

const EXAMPLES: &str = "\
Examples:
  samewire ready
  samewire ready --wait 5m && ./first-request.sh
  HEALTHCHECK CMD [\"/samewire\", \"ready\"]

Asks /readyz of the admin address: ready means that an engine answers and that nothing drains.
Exits with 0 when it is ready, with 1 when it is not, with 3 when nobody answers.";

impl Ready {
    pub(super) fn run(&self) -> Result<ExitCode, CommandFailure> {
        self.running.ask(async |admin| {
            let end = self.wait.map(|wait| Instant::now() + wait);
            loop {
                let answer = readiness(admin).await;
                let is_ready = matches!(answer, Ok((true, _)));
                if is_ready || end.is_none_or(|end| Instant::now() >= end) {
                    let (_, text) = answer.map_err(|error| admin.unreachable(&error))?;
                    return Ok(report(is_ready, text.trim()));
                }
                tokio::time::sleep(PAUSE).await;
            }
        })
    }
}

/// Asks `/readyz` once. Returns true if the server is ready, with its text.
async fn readiness(admin: &Admin) -> reqwest::Result<(bool, String)> {
    let answer = admin.get("/readyz").timeout(PATIENCE).send().await?;
    Ok((answer.status().is_success(), answer.text().await?))
}

fn report(is_ready: bool, text: &str) -> ExitCode {
    if is_ready {
        print(format_args!("{text}\n"));
        return ExitCode::SUCCESS;
    }
    print_error(text);
    ExitCode::FAILURE
}
