//! The program itself.

/// The version, the commit and the day that the program was built from.
#[derive(Clone, Copy, Debug)]
pub struct Build {
    /// As in `Cargo.toml`.
    pub version: &'static str,
    /// Twelve digits, or `unknown`.
    pub commit: &'static str,
    /// Year, month and day of the commit, or `unknown`.
    pub date: &'static str,
    /// All of it, as far as it is known: `0.1.0 (0123456789ab 2026-01-02)`.
    pub line: &'static str,
}

impl Build {
    /// The running program's.
    pub const CURRENT: Self = Self {
        version: env!("CARGO_PKG_VERSION"),
        commit: env!("SAMEWIRE_BUILD_COMMIT"),
        date: env!("SAMEWIRE_BUILD_DATE"),
        line: env!("SAMEWIRE_BUILD_VERSION"),
    };
}
