//! Flags of the commands that ask a server, and the target that they make.

use super::{CommandFailure, key_file};
use crate::exchange::Target;
use crate::secret::Secret;
use clap::Args;
use std::path::PathBuf;

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
    /// Returns the server at a URL, with the key, the headers and the authorities of the flags.
    pub(super) fn target(&self, url: &str) -> Result<Target, CommandFailure> {
        self.target_with(url, None)
    }

    /// Returns the same with this key, if the flags name no file with one.
    pub(super) fn target_with(&self, url: &str, key: Option<Secret>) -> Result<Target, CommandFailure> {
        let key = self.key_file.as_deref().map(key_file).transpose()?.or(key);
        let target = Target::new(url, key.as_ref(), &self.header).map_err(CommandFailure::usage)?;
        Ok(target.signed_by(self.ca_file.as_deref()))
    }
}
