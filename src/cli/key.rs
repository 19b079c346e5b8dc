//! `samewire key`: keys for clients.

use super::{ENVIRONMENT, complain};
use crate::auth::{CHANCE, Hash, is_name, new_key};
use clap::{Args, Subcommand};
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
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
    /// Append the lines for the configuration to this file instead of printing them
    #[arg(long, value_name = "FILE")]
    append: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  samewire key new
      Prints the key, and the lines for the configuration file.
  samewire key new --name laptop --tenant alice --append samewire.toml
      Prints the key and appends the lines to the configuration.
  samewire key new > key.txt
      Writes the key to a file and prints the lines.
  printf %s \"$KEY\" | sha256sum
      The hash of a key that clients have already.

The key goes to standard output, the lines go to the file or else to standard error. samewire keeps
the hash alone: a key that is lost cannot be shown again. Once there is one key, requests without a
key are refused.

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
        match self.tell(&new_key(&chance)) {
            Ok(()) => ExitCode::SUCCESS,
            Err((place, error)) => {
                complain(format_args!("{place}: {error}"));
                ExitCode::from(ENVIRONMENT)
            }
        }
    }

    /// The file is there before the key is told, and the key is told before its hash: neither is good for anything alone.
    fn tell(&self, key: &str) -> Result<(), (String, io::Error)> {
        let mut lines: (String, Box<dyn Write>) = match &self.append {
            Some(path) => {
                let name = path.display().to_string();
                let file = File::options().append(true).create(true).open(path);
                (name.clone(), Box::new(file.map_err(|error| (name, error))?))
            }
            None => ("standard error".to_owned(), Box::new(io::stderr())),
        };
        let mut out = io::stdout().lock();
        let told = writeln!(out, "{key}").and_then(|()| out.flush());
        told.map_err(|error| ("standard output".to_owned(), error))?;
        let entry = self.entry(&Hash::of(key.as_bytes()));
        let written = writeln!(lines.1, "{entry}").and_then(|()| lines.1.flush());
        written.map_err(|error| (format!("{}: the key is of no use without its hash", lines.0), error))
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
