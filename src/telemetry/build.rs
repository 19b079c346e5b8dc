//! Version information of the running program, for `--version`, metrics and pages.

/// Version, commit and date of the running program, set at build time by the build script (`src/build.rs`).
#[derive(Clone, Copy, Debug)]
pub struct Build {
    /// Version of the crate, from `Cargo.toml`.
    pub version: &'static str,
    /// First twelve hex digits of the commit, or `unknown`.
    pub commit: &'static str,
    /// Date of the commit as year, month and day, or `unknown`.
    pub date: &'static str,
    /// Version line with whatever is known: `0.1.0 (0123456789ab 2026-01-02)`.
    pub line: &'static str,
}

impl Build {
    /// Values of the running program, set by the build script.
    pub const CURRENT: Self = Self {
        version: env!("CARGO_PKG_VERSION"),
        commit: env!("SAMEWIRE_BUILD_COMMIT"),
        date: env!("SAMEWIRE_BUILD_DATE"),
        line: env!("SAMEWIRE_BUILD_VERSION"),
    };
}
