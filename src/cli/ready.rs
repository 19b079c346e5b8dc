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

/// Whether a running samewire accepts traffic.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Ready {
    #[command(flatten)]
    running: Running,
    /// Time to wait for readiness, such as 60s or 5m [default: one request]
    #[arg(long, value_name = "TIME", value_parser = time)]
    wait: Option<Duration>,
}

const EXAMPLES: &str = "\
Examples:
  samewire ready
  samewire ready --wait 5m && ./first-request.sh
  HEALTHCHECK CMD [\"/samewire\", \"ready\"]

Requests /readyz from the admin address. Ready means that an engine answers and that the server is
not draining. Exits with 0 if it is ready, with 1 if it is not, with 3 if no server answers.";

impl Ready {
    pub(super) fn run(&self) -> Result<ExitCode, CommandFailure> {
        self.running.run_with_admin(async |admin| {
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

/// Requests `/readyz` once. Returns true if the server is ready, and the text of its answer.
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
