//! Engine identity: which engine an upstream runs, behind which front end, in which version.

use super::Engine;
use std::fmt;
use std::str::FromStr;

/// Release of an engine, `1.2.3` or `1.2.3.post4`. Pre-releases (`rc`, `dev`) count as the final release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EngineVersion {
    /// Major, minor and patch number.
    pub number: [u16; 3],
    /// Number of the post-release; 0: none.
    pub post: u16,
}

impl EngineVersion {
    /// Creates the first release of this number, without a post-release.
    pub const fn new(major: u16, minor: u16, patch: u16) -> Self {
        Self {
            number: [major, minor, patch],
            post: 0,
        }
    }
}

/// Returns the version `0.minor.patch`.
pub(super) const fn version(minor: u16, patch: u16) -> EngineVersion {
    EngineVersion::new(0, minor, patch)
}

/// Error of parsing a version that is not a release, such as `0.1.dev1+g1a2b3c4` of a build from a working copy
/// (engines G.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRelease;

impl FromStr for EngineVersion {
    type Err = NoRelease;

    fn from_str(text: &str) -> Result<Self, NoRelease> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let release = text.split(['+', '-']).next().unwrap_or(text);
        let (mut number, mut parts) = ([0; 3], 0);
        let mut post = 0;
        for part in release.split('.') {
            let digits = part.trim_start_matches(|other: char| !other.is_ascii_digit());
            let until = digits
                .find(|other: char| !other.is_ascii_digit())
                .unwrap_or(digits.len());
            let value = || {
                digits
                    .get(..until)
                    .and_then(|digits| digits.parse().ok())
                    .ok_or(NoRelease)
            };
            match part {
                _ if part.starts_with(|first: char| first.is_ascii_digit()) => {
                    *number.get_mut(parts).ok_or(NoRelease)? = value()?;
                    parts += 1;
                }
                _ if part.starts_with("post") => post = value()?,
                // A pre-release of a number with three parts. With fewer parts, `dev` means that it is no release.
                _ if part.starts_with("rc") || part.starts_with("dev") && parts == 3 => {}
                _ => return Err(NoRelease),
            }
        }
        if parts < 2 {
            Err(NoRelease)
        } else {
            Ok(Self { number, post })
        }
    }
}

impl fmt::Display for EngineVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.number;
        write!(f, "{major}.{minor}.{patch}")?;
        match self.post {
            0 => Ok(()),
            post => write!(f, ".post{post}"),
        }
    }
}

/// Range of versions that a rule applies to: `from` is included, `before` is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// First version in the range; `None`: unbounded.
    pub from: Option<EngineVersion>,
    /// First version after the range; `None`: unbounded.
    pub before: Option<EngineVersion>,
}

impl Versions {
    /// Range of all versions.
    pub const ALL: Self = Self {
        from: None,
        before: None,
    };

    /// Creates the range of this version and all later ones.
    pub const fn from(from: EngineVersion) -> Self {
        Self {
            from: Some(from),
            before: None,
        }
    }

    /// Creates the range of all versions before this one.
    pub const fn before(before: EngineVersion) -> Self {
        Self {
            from: None,
            before: Some(before),
        }
    }

    /// Creates the range from `from`, included, to `before`, excluded.
    pub const fn within(from: EngineVersion, before: EngineVersion) -> Self {
        Self {
            from: Some(from),
            before: Some(before),
        }
    }

    /// Returns true if the version is in the range. An unknown version counts as the newest (engines G.2).
    pub fn has(&self, version: Option<EngineVersion>) -> bool {
        match version {
            None => self.before.is_none(),
            Some(version) => {
                self.from.is_none_or(|from| from <= version)
                    && self.before.is_none_or(|before| version < before)
            }
        }
    }
}

/// Front end: the HTTP server in front of the engine's core. Some rules apply to one front end only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Front {
    /// The engine's own front end; the one in Python if there are several.
    #[default]
    Own,
    /// vLLM's front end in Rust (0.22 and later).
    Rust,
}

impl Front {
    /// Returns the name in configuration, log and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Rust => "rust",
        }
    }
}

/// Engine, front end and version of an upstream, as far as they are known; they decide which request rules apply.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EngineIdentity {
    /// The engine.
    pub engine: &'static Engine,
    /// The front end.
    pub front: Front,
    /// The version; `None`: unknown, or not a release.
    pub version: Option<EngineVersion>,
}

impl EngineIdentity {
    /// Returns true if an effort of reasoning other than `none` switches thinking on.
    pub fn effort_thinks(&self) -> bool {
        let versions = self.engine.effort_thinks;
        versions.is_some_and(|versions| versions.has(self.version))
    }

    /// Returns true if the server returns the prompt with an answer on request, for certain.
    pub fn returns_prompt(&self) -> bool {
        let versions = self.engine.returns_prompt;
        self.front == Front::Own
            && self.version.is_some()
            && versions.is_some_and(|versions| versions.has(self.version))
    }
}

impl From<&'static Engine> for EngineIdentity {
    fn from(engine: &'static Engine) -> Self {
        Self {
            engine,
            front: Front::default(),
            version: None,
        }
    }
}

impl fmt::Display for EngineIdentity {
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
                text.parse::<EngineVersion>()
                    .ok()
                    .map(|version| version.to_string())
                    .as_deref(),
                told,
                "{text}"
            );
        }
    }

    #[test]
    fn ranges_end_before_their_end() {
        let range = Versions::within(EngineVersion::new(0, 6, 0), EngineVersion::new(0, 23, 0));
        let has = |text: &str| range.has(text.parse().ok());
        assert!(has("0.6.0") && has("0.22.9") && has("0.10.1.post2"));
        assert!(!has("0.5.9") && !has("0.23.0") && !has("0.1.dev1"));
        assert!(Versions::ALL.has(None) && Versions::from(EngineVersion::new(0, 9, 0)).has(None));
    }
}
