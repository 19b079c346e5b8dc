//! `samewire drain`: asks a running samewire to take no more traffic, and waits until nothing is under way.

use super::{ENVIRONMENT, USAGE, complain};
use crate::config::Overrides;
use clap::Args;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Take no more traffic, and wait until nothing is under way; or take that back.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Drain {
    /// Where the running samewire serves operators [default: as configured, else 127.0.0.1:9090]
    #[arg(long, value_name = "ADDRESS")]
    admin_listen: Option<String>,
    /// The configuration file of the running samewire
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
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

The running samewire is not ready from then on. For `settle` seconds it serves whoever still comes, then it refuses,
and running answers go on to their end, for `drain` seconds at most. It does not exit: that takes a SIGTERM.
With --undo it serves again, whatever the drain has come to; not after a SIGTERM.
Exits with 0 when nothing is under way (with --undo: when it serves), with 1 when something is left or the drain cannot
be taken back, with 3 when nobody answers.";

/// A number of seconds, or of the unit behind it.
fn time(text: &str) -> Result<Duration, String> {
    let (digits, unit) =
        text.split_at(text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len()));
    let seconds = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => 0,
    };
    let number = digits.parse::<u32>().ok().filter(|_| seconds > 0);
    let number = number.ok_or_else(|| "must be a time such as 300s or 5m".to_owned())?;
    Ok(Duration::from_secs(u64::from(number) * seconds))
}

impl Drain {
    pub(super) fn run(&self) -> ExitCode {
        let flags = Overrides {
            admin_listen: self.admin_listen.clone(),
            config: self.config.clone(),
            ..Overrides::default()
        };
        let address = match flags.admin_address() {
            Ok(address) => address,
            Err(mistakes) => {
                complain(mistakes);
                return ExitCode::from(USAGE);
            }
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        match runtime.map(|runtime| runtime.block_on(self.ask(address))) {
            Ok(code) => code,
            Err(error) => {
                complain(error);
                ExitCode::from(ENVIRONMENT)
            }
        }
    }

    async fn ask(&self, address: SocketAddr) -> ExitCode {
        let client = reqwest::Client::builder().no_proxy().connect_timeout(Duration::from_secs(5)).build();
        let path = if self.undo { "/drain/undo" } else { "/drain" };
        let begun = match &client {
            Ok(client) => client.post(format!("http://{address}{path}")).send().await,
            Err(error) => {
                complain(error);
                return ExitCode::from(ENVIRONMENT);
            }
        };
        let begun = match begun {
            Ok(answer) if self.undo => return undone(answer).await,
            begun => begun,
        };
        match (begun.and_then(reqwest::Response::error_for_status), client) {
            (Ok(_), Ok(client)) => self.wait(&client, address).await,
            (Err(error), _) | (_, Err(error)) => {
                complain(format_args!("no samewire serves operators on {address}: {}", root(&error)));
                ExitCode::from(ENVIRONMENT)
            }
        }
    }

    async fn wait(&self, client: &reqwest::Client, address: SocketAddr) -> ExitCode {
        if self.wait.is_some_and(|wait| wait.is_zero()) {
            return ExitCode::SUCCESS;
        }
        let mut request = client.get(format!("http://{address}/drain/wait"));
        if let Some(wait) = self.wait {
            request = request.timeout(wait);
        }
        let left = match request.send().await {
            // A process that has ended has nothing under way.
            Err(error) if !error.is_timeout() => return ExitCode::SUCCESS,
            Err(_) => "not drained in time".to_owned(),
            Ok(answer) if answer.status().is_success() => {
                // A closed pipe is the reader's wish.
                let _ = writeln!(std::io::stdout().lock(), "drained");
                return ExitCode::SUCCESS;
            }
            Ok(answer) => answer.text().await.unwrap_or_default(),
        };
        complain(left.trim());
        ExitCode::FAILURE
    }
}

/// Tells what has become of a drain that was to be taken back.
async fn undone(answer: reqwest::Response) -> ExitCode {
    let status = answer.status();
    let text = answer.text().await.unwrap_or_default();
    if status.is_success() {
        // A closed pipe is the reader's wish.
        let _ = write!(std::io::stdout().lock(), "{text}");
        return ExitCode::SUCCESS;
    }
    complain(if status == reqwest::StatusCode::NOT_FOUND {
        "it is too old to take a drain back"
    } else {
        text.trim()
    });
    ExitCode::FAILURE
}

/// The innermost cause.
fn root(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), root)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (text, seconds) in [("300s", 300), ("5m", 300), ("90", 90), ("0", 0), ("2h", 7200)] {
            assert_eq!(time(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "s", "5 m", "-1s", "1d", "1.5s", "99999999999s"] {
            assert!(time(text).is_err(), "{text}");
        }
    }
}
