//! The fuzz targets: each takes any bytes and asserts what must hold of them.
//!
//! They are called by libFuzzer (`fuzz_targets/`), and by a test on stable Rust, with seeds made of the fixtures
//! (`tests/wire/fuzz_seeds.rs`).

mod feed;
mod made;
mod proxy;

use std::time::{Duration, Instant};

/// Fuzz target: an assertion about arbitrary bytes, and inputs to start from.
pub struct Target {
    /// Name of the target.
    pub name: &'static str,
    /// Checks an input; panics if something does not hold.
    pub run: fn(&[u8]),
    /// Returns inputs to start from.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// List of all targets, passed to another macro. `Cargo.toml` has to list them again, and a test compares.
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
            messages_stream,
            chat_to_messages,
            request_messages,
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
            text_answer,
            log_escape,
        }
    };
}

macro_rules! targets {
    ($($name:ident,)*) => {
        $(pub mod $name;)*

        /// Every target, in the order of the list above.
        pub const ALL: &[Target] =
            &[$(Target { name: stringify!($name), run: $name::run, seeds: $name::seeds },)*];
    };
}

every_target!(targets);

/// Time limit for one input under a fuzzer, all its assertions included: ten times the limit without the fuzzer and
/// the sanitizers.
#[allow(dead_code, reason = "libFuzzer alone has this limit")]
pub const FUZZED: Duration = Duration::from_secs(1);

impl Target {
    /// Returns the target with this name.
    pub fn named(name: &str) -> &'static Self {
        ALL.iter()
            .find(|target| target.name == name)
            .expect("a target of this name")
    }

    /// Checks an input within this time. A busy machine gets two more tries.
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
