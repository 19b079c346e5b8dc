//! Value types of the configuration: times, and texts that are never printed.

use crate::quantity::read_time;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::time::Duration;

/// Replacement for secrets in printed configurations.
pub(super) const HIDDEN: &str = "(hidden)";

/// Text that is read from the configuration and never printed, such as a key's hash.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Hidden(pub String);

impl std::fmt::Debug for Hidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl Serialize for Hidden {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(if self.0.is_empty() { "" } else { HIDDEN })
    }
}

/// Location of the store, which `Debug` output omits: it may contain a password.
#[derive(Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(transparent)]
pub struct Place(pub String);

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(HIDDEN)
    }
}

/// Time span, written in seconds or as text such as `5m`. At most a year.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seconds(pub Duration);

impl Seconds {
    pub(super) const fn of(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }
}

impl std::ops::Deref for Seconds {
    type Target = Duration;

    fn deref(&self) -> &Duration {
        &self.0
    }
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_time(deserializer).map(Self)
    }
}

impl Serialize for Seconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.subsec_nanos() == 0 {
            return serializer.serialize_u64(self.as_secs());
        }
        serializer.serialize_f64(self.as_secs_f64())
    }
}
