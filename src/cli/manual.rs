//! `samewire completions` and `samewire man`: shell completions and manual pages, generated from the command
//! line's definition.

use super::{Arguments, CommandFailure};
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Print completions for a shell.
#[derive(Debug, Args)]
#[command(after_help = COMPLETIONS)]
pub(super) struct Completions {
    /// The shell
    shell: Shell,
}

const COMPLETIONS: &str = "\
Examples:
  samewire completions bash > /etc/bash_completion.d/samewire
  samewire completions zsh > ~/.zfunc/_samewire
  samewire completions fish > ~/.config/fish/completions/samewire.fish";

impl Completions {
    pub(super) fn run(&self) -> Result<ExitCode, CommandFailure> {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut Arguments::command(), "samewire", &mut text);
        print(&text)
    }
}

/// Print the manual page, or write those of all commands.
#[derive(Debug, Args)]
#[command(after_help = MAN)]
pub(super) struct Manual {
    /// Write samewire.1 and a page for each command into this folder
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

const MAN: &str = "\
Examples:
  samewire man | man -l -
  samewire man --out /usr/local/share/man/man1";

impl Manual {
    pub(super) fn run(&self) -> Result<ExitCode, CommandFailure> {
        let mut command = Arguments::command();
        command.build();
        let Some(folder) = &self.out else {
            let mut text = Vec::new();
            Man::new(command)
                .render(&mut text)
                .map_err(|error| CommandFailure::at("standard output", error))?;
            return print(&text);
        };
        let written = std::fs::create_dir_all(folder)
            .and_then(|()| clap_mangen::generate_to(command, folder));
        written.map_err(|error| CommandFailure::at(folder.display(), error))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Writes to standard output, and returns the exit code. A closed pipe counts as success.
fn print(text: &[u8]) -> Result<ExitCode, CommandFailure> {
    match io::stdout().lock().write_all(text) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        // The reader has closed the pipe.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(error) => Err(CommandFailure::at("standard output", error)),
    }
}
