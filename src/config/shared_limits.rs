//! Table `[shared_limits]`: limits of a minute that all processes with the same store share.

use super::mistakes::Mistakes;
use super::rows::{self, table};
use crate::store::StoreLocation;
use serde::{Deserialize, Serialize};

table! {
    /// Table `[shared_limits]` as written.
    SharedLimitsFile {
        enabled: bool;
        when_away: WhenAway;
    }
}

/// Rule for requests whose shared limits cannot be checked, because the store does not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenAway {
    /// Each process goes by its own counts, so that a key may use its limit once in each of them.
    #[default]
    Open,
    /// Requests of keys with such limits are refused.
    Closed,
}

impl SharedLimitsFile {
    /// Returns the rule for an unavailable store; `None` if limits are not shared. Reports a store that processes do
    /// not share.
    pub(super) fn resolve(
        &self,
        store: Option<&StoreLocation>,
        mistakes: &mut Mistakes,
    ) -> Option<WhenAway> {
        if !self.enabled {
            return None;
        }
        // `None`: the mistake in the store is already reported.
        if !matches!(store, None | Some(StoreLocation::Postgres(_))) {
            mistakes.add(
                "shared_limits.enabled",
                "needs a store that several processes share: store.place = \"postgres://…\"",
            );
        }
        Some(self.when_away)
    }
}

#[cfg(test)]
mod tests {
    use super::WhenAway;
    use crate::config::{Config, Overrides};

    #[test]
    fn limits_are_shared_through_a_database_alone() {
        let read = |lines: &str, place: &str| {
            let text = format!(
                "[[upstream]]\nurl = \"http://a:1\"\n[store]\nplace = \"{place}\"\n[shared_limits]\n{lines}\n"
            );
            let config =
                Config::read(&text, &[&Overrides::default()]).map(|config| config.shared_limits);
            config.map_err(|mistakes| mistakes.to_string())
        };
        let database = "postgres://u@h/d";
        assert_eq!(read("", "memory"), Ok(None));
        assert_eq!(read("enabled = true", database), Ok(Some(WhenAway::Open)));
        assert_eq!(
            read("enabled = true\nwhen_away = \"closed\"", database),
            Ok(Some(WhenAway::Closed))
        );
        let told = read("enabled = true", "memory").unwrap_err();
        assert!(
            told.starts_with("shared_limits.enabled: needs a store that several processes share"),
            "{told}"
        );
        assert!(read("when_away = \"ajar\"", database).is_err());
    }
}
