//! The proxy end to end, beside a plain relaying nginx, in one run.
//!
//! Takes: `engine`, `load` or `contest`, and the options of that part.
//! Gives: a table for people, and the same figures as JSON.
//! Remembers: nothing between runs.
//! Never: measures itself. The engine and the load client send bytes rendered beforehand and only count what arrives;
//! in the one scenario that measures delay, the engine puts the time into each chunk.
//!
//! `benches/proxy.sh` builds everything and runs `contest`, which starts the others as separate processes.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    missing_docs,
    reason = "a measuring program on loopback: what goes wrong ends the run, and the result is the output"
)]

mod contest;
mod engine;
mod frames;
mod load;
mod process;
mod scenario;
mod stamp;

use std::process::ExitCode;

fn main() -> ExitCode {
    // `cargo bench` appends this flag to every bench it runs.
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| word != "--bench")
        .collect();
    let outcome = match arguments.first().map(String::as_str) {
        Some("engine") => engine::run(),
        Some("load") => load::run(&arguments[1..]),
        Some("contest") => contest::run(&arguments[1..]),
        _ => {
            eprintln!(
                "run benches/proxy.sh; parts: engine | load SCENARIO ADDRESS | contest [OPTION…]"
            );
            return ExitCode::from(if arguments.is_empty() { 0 } else { 2 });
        }
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("proxy bench: {error}");
            ExitCode::from(3)
        }
    }
}
