//! `samewire key`: keys for clients.

use super::{ENVIRONMENT, complain};
use crate::auth::{CHANCE, Hash, is_name, new_key};
use clap::{Args, Subcommand};
use std::io::Write;
use std::process::ExitCode;

/// Make keys for clients.
#[derive(Debug, Args)]
pub(super) struct Key {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Make a key: print it once, and its hash for the configuration
    New(New),
}

/// Make a key.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
struct New {
    /// What the key is called in the log
    #[arg(long, value_name = "NAME", value_parser = name)]
    name: Option<String>,
    /// Whose key it is: keys of one tenant see the same responses and conversations [default: a tenant of its own]
    #[arg(long, value_name = "NAME", value_parser = name)]
    tenant: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  samewire key new
      Prints the key, and the lines for the configuration file.
  samewire key new --name laptop --tenant alice 2>> samewire.toml
      Prints the key and appends the lines to a file.
  samewire key new > key.txt
      Writes the key to a file and prints the lines.
  printf %s \"$KEY\" | sha256sum
      The hash of a key that clients have already.

The key goes to standard output, the lines go to standard error. samewire keeps the hash alone: a
key that is lost cannot be shown again. Once there is one key, requests without a key are refused.

Exit codes: 0 done, 2 wrong usage, 3 the key could not be made or written.";

fn name(text: &str) -> Result<String, String> {
    let wrong = || "1 to 64 letters, digits, dots, dashes and underscores".to_owned();
    if is_name(text) { Ok(text.to_owned()) } else { Err(wrong()) }
}

impl Key {
    pub(super) fn run(&self) -> ExitCode {
        let Task::New(new) = &self.task;
        new.run()
    }
}

impl New {
    fn run(&self) -> ExitCode {
        let mut chance = [0; CHANCE];
        if let Err(error) = getrandom::fill(&mut chance) {
            complain(format_args!("no random numbers: {error}"));
            return ExitCode::from(ENVIRONMENT);
        }
        let key = new_key(&chance);
        let mut out = std::io::stdout().lock();
        // The hash of a key that nobody has would be good for nothing.
        if let Err(error) = writeln!(out, "{key}").and_then(|()| out.flush()) {
            complain(format_args!("standard output: {error}"));
            return ExitCode::from(ENVIRONMENT);
        }
        complain(self.entry(&Hash::of(key.as_bytes())));
        ExitCode::SUCCESS
    }

    /// What stands for the key in the configuration file.
    fn entry(&self, hash: &Hash) -> String {
        let mut entry = format!("\n[[auth.key]]\nhash = \"{}\"", hash.digits());
        for (key, value) in [("name", &self.name), ("tenant", &self.tenant)] {
            if let Some(value) = value {
                entry.push_str(&format!("\n{key} = \"{value}\""));
            }
        }
        entry
    }
}
