//! Flags of the commands that ask a server, and the target that they make.

use super::{CommandFailure, key_file, print_error};
use crate::exchange::{Bounds, Exchange, Sender, Target, save};
use crate::secret::Secret;
use clap::Args;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

/// Flags for the requests to a server.
#[derive(Debug, Args)]
pub(super) struct TargetFlags {
    /// A file with the key that the server requires
    #[arg(long, value_name = "FILE")]
    pub(super) key_file: Option<PathBuf>,
    /// Another header for each request; repeatable
    #[arg(long, value_name = "NAME: VALUE")]
    header: Vec<String>,
    /// The certificate authorities to trust in place of the system's, as PEM
    #[arg(long, value_name = "FILE")]
    pub(super) ca_file: Option<PathBuf>,
}

impl TargetFlags {
    /// Returns a sender to the server at a URL, with the key, the headers and the authorities of the flags.
    pub(super) fn sender(&self, url: &str, bounds: Bounds) -> Result<Sender, CommandFailure> {
        self.sender_with(url, bounds, None)
    }

    /// Returns the same with this key, if the flags name no file with one.
    pub(super) fn sender_with(
        &self,
        url: &str,
        bounds: Bounds,
        key: Option<Secret>,
    ) -> Result<Sender, CommandFailure> {
        let key = self.key_file.as_deref().map(key_file).transpose()?.or(key);
        let target = Target::new(url, key.as_ref(), &self.header).map_err(CommandFailure::usage)?;
        Sender::new(target.signed_by(self.ca_file.as_deref()), bounds)
            .map_err(CommandFailure::environment)
    }
}

/// Writes exchanges to folders below `root`. `about`: the words before and after the name of each.
pub(super) fn save_all<'e>(
    exchanges: impl Iterator<Item = (&'e str, &'e Exchange)>,
    root: &Path,
    about: [&str; 2],
) -> Result<(), CommandFailure> {
    let [what, command] = about;
    for (name, exchange) in exchanges {
        let folder = root.join(name);
        let about = format!("{what} `{name}` of `samewire {command}`:");
        save(exchange, &folder, &about)
            .map_err(|error| CommandFailure::at(folder.display(), error))?;
    }
    Ok(())
}

/// Says on a terminal which request is under way.
pub(super) fn progress(name: &str) {
    if io::stderr().is_terminal() {
        print_error(format_args!("  {name}"));
    }
}
