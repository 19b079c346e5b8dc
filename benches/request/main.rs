//! What one request costs inside samewire: instructions and allocations, counted by callgrind in the whole program.
//!
//! Takes: `--stages` (a table of where they go), `--callers FUNCTION`, `--only SCENARIO`, `--check` (fails if they exceed the committed baseline),
//! `--update` (writes the baseline).
//! Gives: a table for people.
//! Remembers: `benches/request/baseline.txt`.
//! Never: measures time. Counts hardly differ between runs, whatever else the machine does.
//!
//! Client and engine are threads of this program; they take turns, so that every run reads and writes the same pieces.
//! A slower run would count more of the work that samewire does by the clock. The engine is therefore probed before the
//! count only, and the main thread is left out.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    missing_docs,
    reason = "a measuring program on loopback: what goes wrong ends the run, and the result is the output"
)]

mod baseline;
mod callgrind;
#[path = "../proxy/frames.rs"]
mod frames;
mod profile;
mod stages;
mod traffic;

use baseline::Baseline;
use callgrind::Callgrind;
use std::process::ExitCode;
use traffic::{SCENARIOS, Traffic};

/// Cost of one unit of a scenario.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cost {
    /// Instructions of the program, without those of the kernel.
    pub(crate) instructions: f64,
    /// Calls of the allocator that return memory.
    pub(crate) allocations: f64,
}

fn main() -> ExitCode {
    // `cargo bench` appends this flag to every bench it runs.
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| word != "--bench")
        .collect();
    match run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("request bench: {error}");
            ExitCode::from(3)
        }
    }
}

fn run(arguments: &[String]) -> Result<bool, String> {
    let has = |flag: &str| arguments.iter().any(|word| word == flag);
    let value = |flag: &str| {
        arguments
            .iter()
            .position(|word| word == flag)
            .and_then(|at| arguments.get(at + 1))
    };
    let only = value("--only");
    if let Some(name) = only
        && !SCENARIOS.iter().any(|scenario| scenario.name == name)
    {
        let names: Vec<_> = SCENARIOS.iter().map(|scenario| scenario.name).collect();
        return Err(format!(
            "--only: there is no scenario {name}; there are {}",
            names.join(", ")
        ));
    }
    let mut baseline = Baseline::read()?;
    if !baseline.is_of_this_compiler() {
        println!("The baseline is of another compiler: only allocations are compared with it.");
    }
    let mut is_within = true;
    println!(
        "{:<10} {:>14} {:>8} {:>12} {:>8}  story",
        "scenario", "instructions", "base", "allocations", "base"
    );
    for scenario in SCENARIOS
        .iter()
        .filter(|scenario| only.is_none_or(|name| name == scenario.name))
    {
        let traffic = Traffic::open().map_err(|error| error.to_string())?;
        let program = Callgrind::start(traffic.engine())?;
        let mut client = traffic
            .client(program.address())
            .map_err(|error| error.to_string())?;
        let mut repeat = |count| {
            client
                .run(scenario, count)
                .map_err(|error| format!("{}: {error}", scenario.name))
        };
        // The first requests fill caches and pools.
        repeat(scenario.warm_up)?;
        program.forget()?;
        repeat(scenario.requests)?;
        let profile = program.profile()?;
        let units = scenario.units();
        let cost = Cost {
            instructions: profile.instructions() as f64 / units,
            allocations: profile.calls(callgrind::ALLOCATES) as f64 / units,
        };
        let base = baseline.get(scenario.name);
        let is_more = baseline.is_exceeded_by(scenario.name, &cost);
        is_within &= !is_more;
        let ratio = |now: f64, base: Option<f64>| {
            base.map_or_else(|| "-".to_owned(), |base| format!("{:.3}", now / base))
        };
        println!(
            "{:<10} {:>14.0} {:>8} {:>12.2} {:>8}  {}{}",
            scenario.name,
            cost.instructions,
            ratio(cost.instructions, base.map(|base| base.instructions)),
            cost.allocations,
            ratio(cost.allocations, base.map(|base| base.allocations)),
            scenario.story,
            if is_more {
                "  MORE THAN THE BASELINE"
            } else {
                ""
            },
        );
        baseline.set(scenario.name, cost);
        if has("--stages") {
            stages::print(&profile, units);
        }
        if let Some(name) = value("--callers") {
            stages::print_callers(&profile, units, name);
        }
    }
    if has("--update") {
        baseline.write()?;
    }
    Ok(is_within || !has("--check"))
}
