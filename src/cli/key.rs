//! `samewire key`: keys for clients.

use super::CommandFailure;
use crate::auth::{Hash, KEY_BYTES, is_name, new_key};
use crate::config::names_of_keys;
use clap::{Args, Subcommand};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
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
    /// Whose key it is: keys of one tenant see the same responses and conversations [default: its own tenant]
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
only the hash: a key that is lost cannot be shown again. Once there is one key, requests without a
key are refused.

A name that the file has already is refused, and so is a file that would not load with the lines: then
nothing is written and no key is printed.

Exit codes: 0 done, 2 wrong usage or file, 3 the key could not be made or written.";

fn name(text: &str) -> Result<String, String> {
    let wrong = || "1 to 64 letters, digits, dots, dashes and underscores".to_owned();
    if is_name(text) {
        Ok(text.to_owned())
    } else {
        Err(wrong())
    }
}

impl Key {
    pub(super) fn run(&self) -> Result<ExitCode, CommandFailure> {
        let Task::New(new) = &self.task;
        new.make()?;
        Ok(ExitCode::SUCCESS)
    }
}

impl New {
    fn make(&self) -> Result<(), CommandFailure> {
        let mut chance = [0; KEY_BYTES];
        getrandom::fill(&mut chance).map_err(|error| {
            CommandFailure::environment(format_args!("no random numbers: {error}"))
        })?;
        let key = new_key(&chance);
        let entry = self.entry(&Hash::of(key.as_bytes()));
        match &self.append {
            Some(path) => self.append_to(path, &key, &entry),
            None => {
                print_key(&key)?;
                let written = writeln!(io::stderr(), "{entry}");
                written.map_err(|error| {
                    let place = "standard error: the key is of no use without its hash";
                    CommandFailure::at(place, error)
                })
            }
        }
    }

    /// Appends the lines to a file, after checking that the file then loads. Prints the key once the new file is
    /// on disk, but before it replaces the old one: key and lines are useless without each other.
    fn append_to(&self, path: &Path, key: &str, entry: &str) -> Result<(), CommandFailure> {
        let name = path.display().to_string();
        let wrong = |error: io::Error| CommandFailure::at(&name, error);
        let refused = |why: String| {
            CommandFailure::usage(format_args!(
                "{why}\nNothing was written, and no key was made."
            ))
        };
        let file = Locked::open(path).map_err(wrong)?;
        let names =
            names_of_keys(&name, &file.text).map_err(|mistakes| refused(mistakes.to_string()))?;
        let taken = self
            .name
            .as_ref()
            .and_then(|new| names.iter().position(|known| known == new));
        if let Some(place) = taken {
            return Err(refused(format!(
                "--name: auth.key[{place}] of {name} has this name already"
            )));
        }
        let text = format!("{}{entry}\n", file.text);
        names_of_keys(&name, &text).map_err(|mistakes| {
            refused(format!(
                "{mistakes}\n{name}: with the lines of another key at its end, this file does not load"
            ))
        })?;
        let new = file.prepare(&text).map_err(wrong)?;
        print_key(key)?;
        new.replace(&file.path).map_err(|error| {
            CommandFailure::at(
                format_args!("{name}: the key is of no use without its hash"),
                error,
            )
        })
    }

    /// Returns the `[[auth.key]]` lines of the configuration file for the key.
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

/// Prints the key to standard output. It is stored nowhere, so it cannot be shown again.
fn print_key(key: &str) -> Result<(), CommandFailure> {
    let mut out = io::stdout().lock();
    let told = writeln!(out, "{key}").and_then(|()| out.flush());
    told.map_err(|error| CommandFailure::at("standard output", error))
}

/// Locked configuration file, protected from other `samewire key` commands for the lifetime of this value.
struct Locked {
    /// Path of the file itself, with all symbolic links resolved, since the replacement happens there.
    path: PathBuf,
    file: File,
    text: String,
}

impl Locked {
    /// Opens or creates the file, and waits for a concurrent command that has it locked.
    fn open(path: &Path) -> io::Result<Self> {
        loop {
            let mut file = File::options()
                .read(true)
                .append(true)
                .create(true)
                .open(path)?;
            file.lock()?;
            let path = path.canonicalize()?;
            let (locked, there) = (file.metadata()?, std::fs::metadata(&path)?);
            if !locked.is_file() {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "not a regular file",
                ));
            }
            // The previous holder of the lock has replaced the file; open the new one.
            if (locked.dev(), locked.ino()) == (there.dev(), there.ino()) {
                let mut text = String::new();
                file.read_to_string(&mut text)?;
                return Ok(Self { path, file, text });
            }
        }
    }

    /// Writes the text to a new file beside the locked one, with the same owner and permissions.
    fn prepare(&self, text: &str) -> io::Result<Prepared> {
        let metadata = self.file.metadata()?;
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let path = self
            .path
            .with_file_name(format!(".{name}.{}", std::process::id()));
        // Left by a killed command with the same process id, as in a container. This command holds the lock.
        let _ = std::fs::remove_file(&path);
        let mut new = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        let prepared = Prepared(Some(path));
        new.write_all(text.as_bytes())?;
        let own = new.metadata()?;
        if (own.uid(), own.gid()) != (metadata.uid(), metadata.gid()) {
            fchown(&new, Some(metadata.uid()), Some(metadata.gid()))?;
        }
        new.set_permissions(metadata.permissions())?;
        new.sync_all()?;
        Ok(prepared)
    }
}

/// New file that has not yet replaced the old one; removed on drop.
struct Prepared(Option<PathBuf>);

impl Prepared {
    fn replace(mut self, old: &Path) -> io::Result<()> {
        let Some(new) = &self.0 else { return Ok(()) };
        std::fs::rename(new, old)?;
        self.0 = None;
        Ok(())
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // The next command with this process id removes what is left.
            let _ = std::fs::remove_file(path);
        }
    }
}
