//! The fuzz targets: each takes any bytes and asserts what must hold of them.
//!
//! libFuzzer calls them (`fuzz_targets/`), and so does a test on stable Rust, with seeds made of the fixtures
//! (`tests/fuzz_seeds.rs`).

mod feed;
mod made;
mod proxy;

use std::time::{Duration, Instant};

/// A target.
pub struct Target {
    /// Its name.
    pub name: &'static str,
    /// Looks at an input; panics if something does not hold.
    pub run: fn(&[u8]),
    /// Inputs to start from.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// The only list of them: hands all names to another macro. `Cargo.toml` has to name them once more, and a test compares.
macro_rules! every_target {
    ($then:ident) => {
        $then! {
            sse_decode,
            sse_encode_decode,
            chat_chunk,
            chat_stream,
            responses_stream,
            chat_to_responses,
            request_chat,
            request_responses,
            json_scan,
            http1_head,
            h2_frames,
            upstream_http,
            error_body,
            retry_after,
            media_url,
            config_toml,
            header_filter,
            response_id,
            store_record,
            harmony,
            text_parser,
            log_escape,
        }
    };
}

macro_rules! targets {
    ($($name:ident,)*) => {
        $(pub mod $name;)*

        /// All of them.
        pub const ALL: &[Target] =
            &[$(Target { name: stringify!($name), run: $name::run, seeds: $name::seeds },)*];
    };
}

every_target!(targets);

/// What one input may take under a fuzzer, all that is asserted of it included: ten times what it may take without what
/// the fuzzer and the sanitizer add to the code.
pub const FUZZED: Duration = Duration::from_secs(1);

impl Target {
    /// The target of this name.
    pub fn named(name: &str) -> &'static Self {
        ALL.iter().find(|target| target.name == name).expect("a target of this name")
    }

    /// Looks at an input, which may not take longer than this. A machine that is busy gets two more tries.
    pub fn within(&self, limit: Duration, data: &[u8]) {
        let mut took = Duration::MAX;
        for _ in 0..3 {
            let start = Instant::now();
            (self.run)(data);
            took = took.min(start.elapsed());
            if took <= limit {
                return;
            }
        }
        panic!("{}: {took:?} for {} bytes", self.name, data.len());
    }
}
