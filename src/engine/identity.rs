//! What is known of the engine behind an upstream: which one, behind which front end, of which version.

use super::Engine;
use super::rule::RequestRule;
use std::fmt;
use std::str::FromStr;

/// An engine's release, `1.2.3` or `1.2.3.post4`. Releases before the final one (`rc`, `dev`) count as it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// What the parts of its number say.
    pub number: [u16; 3],
    /// Which mending of the release it is; 0: none.
    pub post: u16,
}

impl Version {
    /// The first release of this number.
    pub const fn new(major: u16, minor: u16, patch: u16) -> Self {
        Self { number: [major, minor, patch], post: 0 }
    }
}

/// No release's number, as `0.1.dev1+g1a2b3c4` of a build from a working copy (engine-quirks G.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRelease;

impl FromStr for Version {
    type Err = NoRelease;

    fn from_str(text: &str) -> Result<Self, NoRelease> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let release = text.split(['+', '-']).next().unwrap_or(text);
        let mut number = Vec::with_capacity(3);
        let mut post = 0;
        for part in release.split('.') {
            let digits = part.trim_start_matches(|other: char| !other.is_ascii_digit());
            let until = digits.find(|other: char| !other.is_ascii_digit()).unwrap_or(digits.len());
            let value = || digits.get(..until).and_then(|digits| digits.parse().ok()).ok_or(NoRelease);
            match part {
                _ if part.starts_with(|first: char| first.is_ascii_digit()) && number.len() < 3 => {
                    number.push(value()?);
                }
                _ if part.starts_with("post") => post = value()?,
                // Before a release of three parts; what has fewer is no release at all.
                _ if part.starts_with("rc") || part.starts_with("dev") && number.len() == 3 => {}
                _ => return Err(NoRelease),
            }
        }
        match number[..] {
            [major, minor] => Ok(Self { number: [major, minor, 0], post }),
            [major, minor, patch] => Ok(Self { number: [major, minor, patch], post }),
            _ => Err(NoRelease),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.number;
        write!(f, "{major}.{minor}.{patch}")?;
        match self.post {
            0 => Ok(()),
            post => write!(f, ".post{post}"),
        }
    }
}

/// A range of versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// The first one in it; `None`: from the beginning.
    pub from: Option<Version>,
    /// The first one that is not in it any more; `None`: none is known.
    pub before: Option<Version>,
}

impl Versions {
    /// Every one.
    pub const ALL: Self = Self { from: None, before: None };

    /// From this one on.
    pub const fn from(from: Version) -> Self {
        Self { from: Some(from), before: None }
    }

    /// All before this one.
    pub const fn before(before: Version) -> Self {
        Self { from: None, before: Some(before) }
    }

    /// From the first on, before the second.
    pub const fn within(from: Version, before: Version) -> Self {
        Self { from: Some(from), before: Some(before) }
    }

    /// Whether a version is in it. One that is not known counts as the newest (engine-quirks G.2).
    pub fn has(&self, version: Option<Version>) -> bool {
        match version {
            None => self.before.is_none(),
            Some(version) => {
                self.from.is_none_or(|from| from <= version)
                    && self.before.is_none_or(|before| version < before)
            }
        }
    }
}

/// What answers in front of the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Front {
    /// The engine's own, in Python where there are several.
    #[default]
    Own,
    /// vLLM's in Rust (0.22 and later).
    Rust,
}

impl Front {
    /// The name in configuration, log and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Rust => "rust",
        }
    }
}

/// What is known of an engine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Identity {
    /// Which one.
    pub engine: &'static Engine,
    /// Behind which front end.
    pub front: Front,
    /// Of which version; `None`: not known, or no release.
    pub version: Option<Version>,
}

impl Identity {
    /// What is changed in requests for it, in this order.
    pub fn requests(&self) -> impl Iterator<Item = &'static RequestRule> {
        let this = *self;
        this.engine.rules().filter(move |rule| rule.is_for(&this))
    }
}

impl From<&'static Engine> for Identity {
    fn from(engine: &'static Engine) -> Self {
        Self { engine, front: Front::default(), version: None }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.engine.name)?;
        if let Some(version) = self.version {
            write!(f, " {version}")?;
        }
        match self.front {
            Front::Own => Ok(()),
            Front::Rust => f.write_str(" (front end in Rust)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_told() {
        for (text, told) in [
            ("0.21.0", Some("0.21.0")),
            ("v0.6.6.post1", Some("0.6.6.post1")),
            ("0.6.6.post1+cu121", Some("0.6.6.post1")),
            ("0.10.2rc1", Some("0.10.2")),
            ("0.10.2.dev3+g1a2b3c4", Some("0.10.2")),
            ("1.2.0rc3", Some("1.2.0")),
            ("0.16", Some("0.16.0")),
            ("0.1.dev1+g1a2b3c4", None),
            ("dev", None),
            ("0", None),
            ("", None),
            ("0.x.1", None),
            ("99999.1.0", None),
        ] {
            assert_eq!(
                text.parse::<Version>().ok().map(|version| version.to_string()).as_deref(),
                told,
                "{text}"
            );
        }
    }

    #[test]
    fn ranges_end_before_their_end() {
        let range = Versions::within(Version::new(0, 6, 0), Version::new(0, 23, 0));
        let has = |text: &str| range.has(text.parse().ok());
        assert!(has("0.6.0") && has("0.22.9") && has("0.10.1.post2"));
        assert!(!has("0.5.9") && !has("0.23.0") && !has("0.1.dev1"));
        assert!(Versions::ALL.has(None) && Versions::from(Version::new(0, 9, 0)).has(None));
    }
}
