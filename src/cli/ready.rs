//! `samewire ready`: tells if a running samewire accepts traffic.

use super::running::{Admin, Running};
use super::{Failed, print, print_error};
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
    pub(super) fn run(&self) -> Result<ExitCode, Failed> {
        self.running.ask(async |admin| {
            let end = self.wait.map(|wait| Instant::now() + wait);
            loop {
                let state = Readiness::of(admin).await;
                if matches!(state, Readiness::Ready(_)) || end.is_none_or(|end| Instant::now() >= end) {
                    return state.report(admin);
                }
                tokio::time::sleep(PAUSE).await;
            }
        })
    }
}

/// Result of one request to `/readyz`, with the server's text or the error.
enum Readiness {
    Ready(String),
    Unready(String),
    Silent(reqwest::Error),
}

impl Readiness {
    async fn of(admin: &Admin) -> Self {
        let answer = match admin.get("/readyz").timeout(PATIENCE).send().await {
            Ok(answer) => answer,
            Err(error) => return Self::Silent(error),
        };
        let is_ready = answer.status().is_success();
        match answer.text().await {
            Ok(text) if is_ready => Self::Ready(text),
            Ok(text) => Self::Unready(text),
            Err(error) => Self::Silent(error),
        }
    }

    fn report(&self, admin: &Admin) -> ExitCode {
        match self {
            Self::Ready(text) => {
                print(format_args!("{}\n", text.trim()));
                ExitCode::SUCCESS
            }
            Self::Unready(text) => {
                print_error(text.trim());
                ExitCode::FAILURE
            }
            Self::Silent(error) => admin.unreachable(error),
        }
    }
}
