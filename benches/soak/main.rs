//! samewire under load for a long time, while clients, engines and the machine misbehave.
//!
//! Takes: the length, the load and a seed. Gives: a table of figures with their limits, and the same as JSON; exit
//! code 1 if a limit is missed. Remembers: nothing between runs. `tests/soak.sh` builds all that is needed and lists
//! the options.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    missing_docs,
    reason = "a measuring program on loopback: what goes wrong ends the run, and the result is the output"
)]

mod check;
mod client;
mod engine;
mod latency;
mod open;
mod options;
mod plan;
mod registry;
mod report;
mod samewire;
mod soak;
mod speech;
mod tally;
mod trouble;
mod watch;
mod wire;

use options::Options;
use std::process::ExitCode;

fn main() -> ExitCode {
    // `cargo bench` appends this flag to every bench it runs.
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| word != "--bench")
        .collect();
    let outcome = match arguments.first().map(String::as_str) {
        None => {
            eprintln!("run tests/soak.sh");
            return ExitCode::SUCCESS;
        }
        Some("engines") => open::engines(&arguments[1..]),
        Some(_) => Options::read(&arguments).and_then(|options| match options.open {
            0 => soak::run(&options),
            _ => open::run(&options),
        }),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("soak: {error}");
            ExitCode::from(3)
        }
    }
}
