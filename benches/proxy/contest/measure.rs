//! Measuring: one contestant, one scenario, one round.
//!
//! Takes: a running contestant and a scenario.
//! Gives: what the load client saw and what the kernel counted.
//! Remembers: nothing.
//! Never: lets a gateway that hangs hold up the others.

use super::proxies::{Contestant, Engine, Kind, Recipe};
use super::report::{Figures, Memory, Row, Start, median};
use crate::load::{LOOSE, Seen};
use crate::process;
use crate::scenario::{ClientApi, STORING, Scenario, Unit};
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// Seconds that a gateway may take for one round of a scenario at its full length; beyond that the round is
/// shortened, as figures are per chunk and per request.
const ROUND: f64 = 20.0;
/// Seconds after which a gateway's load client is ended.
const HANG: &str = "120";

fn load(
    contestant: &Contestant,
    scenario: &Scenario,
    way: ClientApi,
    scale: f64,
    engine: &Engine,
) -> io::Result<Command> {
    let program = std::env::current_exe()?;
    let mut command = match contestant.kind {
        Kind::Gateway => {
            let mut command = engine.pin.others(Path::new("timeout"));
            // In this process group, which is ended as a whole.
            command.args(["--foreground", HANG]).arg(program);
            command
        }
        _ => engine.pin.others(&program),
    };
    command.args([
        "load",
        scenario.name,
        &contestant.address.to_string(),
        &scale.to_string(),
        way.name(),
    ]);
    if contestant.kind == Kind::Gateway {
        command.arg(LOOSE);
    }
    Ok(command)
}

pub(super) fn measure(
    contestant: &Contestant,
    scenario: &Scenario,
    way: ClientApi,
    scale: f64,
    engine: &Engine,
) -> io::Result<Figures> {
    let before = (contestant.cpu(), process::cpu(engine.child.id()));
    let output = load(contestant, scenario, way, scale, engine)?
        .stderr(Stdio::inherit())
        .output()?;
    // Waits until the last connections are closed.
    sleep(Duration::from_millis(30));
    let after = (contestant.cpu(), process::cpu(engine.child.id()));
    if output.stdout.is_empty() && contestant.kind == Kind::Gateway {
        return Err(io::Error::other(format!("no end within {HANG} seconds")));
    }
    let seen: Seen = serde_json::from_slice(&output.stdout)?;
    if let Some(complaint) = &seen.complaint {
        eprintln!(
            "\n{} in {}: {} failures, {complaint}",
            contestant.name, scenario.name, seen.failures
        );
    }
    let units = match scenario.unit {
        // Counts the engine's chunks, so that merging chunks is no advantage.
        Unit::Chunk => {
            seen.requests as f64 * (scenario.chunks as f64 * scale).floor()
                + seen.requests as f64 * 4.0
        }
        Unit::Request => seen.requests as f64,
    }
    .max(1.0);
    Ok(Figures {
        cpu_us: after.0.saturating_sub(before.0).as_secs_f64() * 1e6 / units,
        engine_cpu_us: (after.1 - before.1).as_secs_f64() * 1e6 / units,
        load_cpu_us: seen.cpu_seconds * 1e6 / units,
        per_second: units / seen.seconds,
        first_us: seen.first_us,
        first_p99_us: seen.first_p99_us,
        late_p99_us: seen.late_p99_us,
        delay_us: seen.delay_us,
        delay_p99_us: seen.delay_p99_us,
        stored_per_second: None,
        failures: seen.failures,
        events: seen.events,
        seconds: seen.seconds,
        complaint: seen.complaint,
    })
}

/// Tries a scenario on a gateway. Returns the scale at which it gets through a round in reasonable time, or why it
/// does not take part.
pub(super) fn trial(
    contestant: &Contestant,
    scenario: &Scenario,
    scale: f64,
    engine: &Engine,
) -> Result<f64, String> {
    let period = scenario.pace.period().as_secs_f64();
    // A paced stream needs some time in order to settle.
    let small = if period > 0.0 { 0.5 } else { scale.min(0.02) };
    let figures = measure(contestant, scenario, ClientApi::Chat, small, engine)
        .map_err(|error| error.to_string())?;
    if let Some(complaint) = figures.complaint {
        return Err(format!(
            "{} of {} streams failed: {complaint}",
            figures.failures, scenario.streams
        ));
    }
    if period > 0.0 {
        let planned = period * scenario.chunks as f64 * small;
        if figures.seconds > planned * 1.5 + 1.0 {
            return Err(format!(
                "cannot keep up: {:.0} chunks a second",
                figures.per_second
            ));
        }
        return Ok(scale);
    }
    Ok(scale
        .min(small * scale * ROUND / figures.seconds)
        .max(small))
}

/// Measures chat streams alone, and beside clients whose responses are stored in a file.
pub(super) fn beside_storing(
    recipe: &Recipe,
    scenario: &Scenario,
    (rounds, scale): (usize, f64),
    folder: &Path,
    engine: &Engine,
) -> io::Result<[Row; 2]> {
    let place = format!(
        "sqlite:{}",
        folder.join(format!("{}.db", recipe.name())).display()
    );
    let contestant = Contestant::start_with(recipe, &["--store", &place], folder, engine)?;
    eprint!("{:<12}", scenario.name);
    let mut rows = ["alone", "storing"].map(|how| {
        Row::new(
            scenario,
            &format!("{} {how}", recipe.name()),
            Kind::Samewire,
        )
    });
    for _ in 0..rounds {
        rows[0].figures.push(measure(
            &contestant,
            scenario,
            ClientApi::Chat,
            scale,
            engine,
        )?);
        let mut storing = load(&contestant, &STORING, ClientApi::Stored, scale, engine)?;
        let storing = storing.stdout(Stdio::piped()).spawn()?;
        sleep(Duration::from_millis(100));
        let mut figures = measure(&contestant, scenario, ClientApi::Chat, scale, engine)?;
        let seen: Seen = serde_json::from_slice(&storing.wait_with_output()?.stdout)?;
        if let Some(complaint) = &seen.complaint {
            eprintln!(
                "\n{}: {} are not stored, {complaint}",
                recipe.name(),
                seen.failures
            );
        }
        figures.failures += seen.failures;
        figures.stored_per_second = Some(seen.requests as f64 / seen.seconds);
        rows[1].figures.push(figures);
        eprint!("..");
    }
    eprintln!();
    Ok(rows)
}

/// Measures the memory of a fresh process: at rest, with every stream open, and after all have closed.
pub(super) fn hold(
    recipe: &Recipe,
    scenario: &Scenario,
    folder: &Path,
    engine: &Engine,
) -> io::Result<Memory> {
    let contestant = Contestant::start(recipe, folder, engine)?;
    let pid = contestant.child.as_ref().map_or(0, Child::id);
    sleep(Duration::from_millis(200));
    let rest = process::memory(pid)?;
    let mut child = load(&contestant, scenario, ClientApi::Chat, 1.0, engine)?
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(
        child
            .stdout
            .take()
            .ok_or_else(|| io::Error::other("no output"))?,
    );
    let mut line = String::new();
    lines.read_line(&mut line)?;
    // By then every stream has received a chunk or two more.
    sleep(Duration::from_secs(2));
    let open = process::memory(pid)?;
    drop(child.stdin.take());
    line.clear();
    lines.read_line(&mut line)?;
    child.wait()?;
    if line.is_empty() && contestant.kind == Kind::Gateway {
        return Err(io::Error::other(format!("no end within {HANG} seconds")));
    }
    let seen: Seen = serde_json::from_str(&line)?;
    if let Some(complaint) = &seen.complaint {
        eprintln!(
            "{}: {} of {} streams failed: {complaint}",
            recipe.name(),
            seen.failures,
            scenario.streams
        );
    }
    sleep(Duration::from_millis(500));
    let after = process::memory(pid)?;
    Ok(Memory {
        contestant: recipe.name().to_owned(),
        kind: recipe.kind(),
        streams: scenario.streams,
        failures: seen.failures,
        rest_bytes: rest.0,
        rest_pss_bytes: rest.1,
        open_bytes: open.0,
        open_pss_bytes: open.1,
        after_bytes: after.0,
    })
}

pub(super) fn ready_time(recipe: &Recipe, folder: &Path, engine: &Engine) -> io::Result<Start> {
    let mut times = Vec::new();
    for _ in 0..5 {
        times.push(
            Contestant::start(recipe, folder, engine)?
                .ready
                .as_secs_f64()
                * 1e3,
        );
    }
    let binary_bytes = match recipe {
        Recipe::Samewire(_, program) => Some(fs::metadata(program)?.len()),
        _ => None,
    };
    let (contestant, kind) = (recipe.name().to_owned(), recipe.kind());
    Ok(Start {
        contestant,
        kind,
        version: None,
        ready_ms: median(&times),
        binary_bytes,
    })
}
