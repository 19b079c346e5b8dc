//! Table `[contract]`: whether answers are checked against the contract of the API before they are sent.

use crate::contract::Mode;
use serde::{Deserialize, Serialize};

/// Table `[contract]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "config/samewire.toml explains each key, and a test holds it to that")]
pub struct ContractFile {
    pub mode: Mode,
}
