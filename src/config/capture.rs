//! Table `[capture]`: which requests are captured from the start, and how much of them is kept.

use super::limits::{BYTES, NUMBER};
use super::mistakes::Mistakes;
use super::rows::{self, table};
use crate::capture::{CaptureLimits, Criteria};
use crate::nearest::suggest;
use crate::quantity::read_size;

table! {
    /// Table `[capture]`: exchanges kept for operators, with their content. Off by default.
    CaptureFile {
        enabled: bool;
        only_failures: bool;
        key: String;
        model: String;
        exchanges: usize = 200;
        bytes: usize as "read_size" = 64 << 20;
        exchange_bytes: usize as "read_size" = 8 << 20;
    }
}

impl CaptureFile {
    /// Returns the limits of the ring.
    pub fn limits(&self) -> CaptureLimits {
        CaptureLimits {
            exchanges: self.exchanges,
            bytes: self.bytes,
            exchange_bytes: self.exchange_bytes,
        }
    }

    /// Returns the condition for requests to be captured from the start; `None`: none are.
    pub fn criteria(&self) -> Option<Criteria> {
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let (key, model) = (given(&self.key), given(&self.model));
        self.enabled.then_some(Criteria {
            key,
            model,
            only_failures: self.only_failures,
        })
    }

    /// Reports limits that cannot be meant, and a key that is not there. `keys`: the names of those in `[auth]`.
    pub(super) fn check(&self, keys: &[String], mistakes: &mut Mistakes) {
        for (key, value, most) in [
            ("exchanges", self.exchanges, NUMBER),
            ("bytes", self.bytes, BYTES),
            ("exchange_bytes", self.exchange_bytes, BYTES),
        ] {
            if value == 0 {
                mistakes.add(
                    format!("capture.{key}"),
                    "must be at least 1; enabled = false captures nothing",
                );
            } else if value > most {
                mistakes.add(format!("capture.{key}"), format!("must be at most {most}"));
            }
        }
        if self.bytes > 0 && self.exchange_bytes > self.bytes {
            let why = format!(
                "must be at most capture.bytes ({}): one exchange cannot hold more than all",
                self.bytes
            );
            mistakes.add("capture.exchange_bytes", why);
        }
        if !self.key.is_empty() && !keys.contains(&self.key) {
            let why = "no key in [auth] has this name".to_owned();
            mistakes.add(
                "capture.key",
                suggest(why, &self.key, keys.iter().map(String::as_str)),
            );
        }
    }
}
