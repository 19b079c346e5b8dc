//! `samewire check`: what a configuration means, or everything that is wrong with it.

use super::{CommandFailure, print};
use crate::config::{Config, Overrides};
use crate::telemetry::CAPTURE_ON;
use crate::visible::visible_toml;
use clap::Args;
use std::process::ExitCode;

/// Look through a configuration.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Check {
    #[command(flatten)]
    flags: Overrides,
}

const EXAMPLES: &str = "\
Examples:
  samewire check --config samewire.toml
  samewire check --upstream http://127.0.0.1:8000 --set role_frame=openai

Prints the configuration with all defaults filled in and secrets hidden. If something is wrong,
prints all of it, each with its line in the file, its flag or its variable, and exits with 2.";

impl Check {
    pub(super) fn run(&self) -> Result<ExitCode, CommandFailure> {
        let config = Config::load(&self.flags).map_err(CommandFailure::usage)?;
        let memory = crate::server::memory_told(&config.limits);
        let capture = if config.file.capture.enabled {
            format!("# {CAPTURE_ON}\n")
        } else {
            String::new()
        };
        print(format_args!(
            "{memory}{capture}{}",
            visible_toml(&config.shown())
        ));
        Ok(ExitCode::SUCCESS)
    }
}
