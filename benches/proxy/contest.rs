//! The contest: every proxy gets the same load, in turn.
//!
//! Takes: the proxies, the scenarios and the number of rounds.
//! Gives: a table, `proxy.json`, and whether every stream arrived whole.
//! Remembers: the contestants, which end with it.
//! Never: runs two scenarios at the same time, or one proxy's rounds in a row: what disturbs the machine disturbs
//! all.

mod gateways;
mod measure;
mod proxies;
mod report;

use crate::scenario::{ClientApi, SCENARIOS, Scenario, named};
use gateways::Gateway;
use measure::{beside_storing, hold, measure, ready_time, trial};
use proxies::{Contestant, Engine, Kind, Pin, Recipe};
use report::{LeftOut, Report, Row, Start};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

struct Options {
    rounds: usize,
    /// Factor applied to the length of every scenario.
    scale: f64,
    only: Vec<String>,
    /// True to run nginx.
    nginx: bool,
    /// True to run HAProxy.
    haproxy: bool,
    /// Names and programs of the proxies that are run like `samewire serve`.
    proxies: Vec<(String, PathBuf)>,
    gateways: Vec<Gateway>,
    /// Gateways that could not be installed, with the reason.
    missing: Vec<(String, String)>,
    json: PathBuf,
    strict: bool,
    pin: Pin,
    workers: usize,
}

impl Options {
    fn read(arguments: &[String]) -> io::Result<Self> {
        let mut options = Self {
            rounds: 5,
            scale: 1.0,
            only: Vec::new(),
            nginx: true,
            haproxy: false,
            proxies: Vec::new(),
            gateways: Vec::new(),
            missing: Vec::new(),
            json: PathBuf::from("target/bench/proxy.json"),
            strict: false,
            pin: Pin(None),
            workers: 1,
        };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let mut value = || {
                words
                    .next()
                    .ok_or_else(|| io::Error::other(format!("{word} wants a value")))
            };
            match word.as_str() {
                "--quick" => (options.rounds, options.scale) = (1, 0.15),
                "--rounds" => options.rounds = value()?.parse().map_err(io::Error::other)?,
                "--only" => options.only.extend(value()?.split(',').map(str::to_owned)),
                "--json" => options.json = PathBuf::from(value()?),
                "--pin" => {
                    let last = std::thread::available_parallelism()?.get() - 1;
                    options.pin = Pin(Some(last).filter(|last| *last > 0));
                }
                "--workers" => options.workers = value()?.parse().map_err(io::Error::other)?,
                "--strict" => options.strict = true,
                "--samewire" => options
                    .proxies
                    .push(("samewire".to_owned(), PathBuf::from(value()?))),
                "--also" => {
                    let (name, program) = pair(value()?, "--also NAME=PROGRAM")?;
                    options.proxies.push((name, PathBuf::from(program)));
                }
                "--no-nginx" => options.nginx = false,
                "--haproxy" => options.haproxy = true,
                "--gateway" => options.gateways.push(Gateway::read(value()?)?),
                "--missing" => options
                    .missing
                    .push(pair(value()?, "--missing NAME=REASON")?),
                other => return Err(io::Error::other(format!("no such option: {other}"))),
            }
        }
        if let Some(unknown) = options.only.iter().find(|name| named(name).is_none()) {
            return Err(io::Error::other(format!("no such scenario: {unknown}")));
        }
        Ok(options)
    }

    fn recipes(&self) -> Vec<Recipe> {
        let mut recipes: Vec<Recipe> = self.nginx.then_some(Recipe::Nginx).into_iter().collect();
        recipes.extend(self.haproxy.then_some(Recipe::Haproxy));
        let builds = self.proxies.iter().cloned();
        recipes.extend(builds.map(|(name, program)| Recipe::Samewire(name, program)));
        recipes.extend(self.gateways.iter().cloned().map(Recipe::Gateway));
        recipes
    }

    fn wants(&self, scenario: &Scenario) -> bool {
        let is_named = self.only.iter().any(|name| name == scenario.name);
        is_named || self.only.is_empty() && !scenario.only_named
    }
}

fn pair(word: &str, usage: &str) -> io::Result<(String, String)> {
    let (name, value) = word
        .split_once('=')
        .ok_or_else(|| io::Error::other(usage.to_owned()))?;
    Ok((name.to_owned(), value.to_owned()))
}

pub(crate) fn run(arguments: &[String]) -> io::Result<bool> {
    let options = Options::read(arguments)?;
    // `benches/proxy.sh` removes it after an interruption.
    let folder = PathBuf::from(format!("target/bench/proxy.run-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let engine = Engine::start(options.pin, options.workers)?;
    let outcome = contest(&options, &folder, &engine);
    if outcome.is_ok() {
        fs::remove_dir_all(&folder)?;
    }
    let report = outcome?;
    report.print();
    fs::write(&options.json, serde_json::to_vec_pretty(&report)?)?;
    println!("\nThe figures: {}", options.json.display());
    Ok(report.whole() && (!options.strict || report.targets_met()))
}

fn contest(options: &Options, folder: &Path, engine: &Engine) -> io::Result<Report> {
    let recipes = options.recipes();
    let mut report = Report::new(options.rounds);
    for (name, reason) in &options.missing {
        report.left_out.push(LeftOut::new(name, None, reason));
    }
    for recipe in recipes
        .iter()
        .filter(|recipe| recipe.kind() != Kind::Gateway)
    {
        report.start.push(ready_time(recipe, folder, engine)?);
    }
    let mut contestants = vec![Contestant::direct(engine)];
    for recipe in &recipes {
        match (Contestant::start(recipe, folder, engine), recipe) {
            (Ok(contestant), Recipe::Gateway(gateway)) => {
                report.start.push(Start {
                    contestant: contestant.name.clone(),
                    kind: contestant.kind,
                    version: Some(gateway.version.clone()),
                    ready_ms: contestant.ready.as_secs_f64() * 1e3,
                    binary_bytes: None,
                });
                contestants.push(contestant);
            }
            (Ok(contestant), _) => contestants.push(contestant),
            (Err(error), Recipe::Gateway(_)) => {
                report
                    .left_out
                    .push(LeftOut::new(recipe.name(), None, &error.to_string()));
            }
            (Err(error), _) => return Err(error),
        }
    }
    let relayed = |scenario: &&Scenario| options.wants(scenario) && !scenario.hold;
    for scenario in SCENARIOS
        .iter()
        .filter(relayed)
        .filter(|scenario| scenario.way != ClientApi::Stored)
    {
        in_turn(scenario, &contestants, options, engine, &mut report)?;
    }
    drop(contestants);
    for scenario in SCENARIOS
        .iter()
        .filter(relayed)
        .filter(|scenario| scenario.way == ClientApi::Stored)
    {
        for recipe in recipes
            .iter()
            .filter(|recipe| recipe.kind() == Kind::Samewire)
        {
            let length = (options.rounds, options.scale);
            report
                .rows
                .extend(beside_storing(recipe, scenario, length, folder, engine)?);
        }
    }
    // A gateway that did not answer at first is not started again.
    let started: Vec<&Recipe> = recipes
        .iter()
        .filter(|recipe| report.has_started(recipe.name()))
        .collect();
    for scenario in SCENARIOS
        .iter()
        .filter(|scenario| options.wants(scenario) && scenario.hold)
    {
        for &recipe in &started {
            eprintln!("{:<10}{}", scenario.name, recipe.name());
            let reason = match hold(recipe, scenario, folder, engine) {
                Ok(memory) if memory.failures > 0 && recipe.kind() == Kind::Gateway => {
                    format!("{} of {} streams failed", memory.failures, memory.streams)
                }
                Ok(memory) => {
                    report.memory.push(memory);
                    continue;
                }
                Err(error) if recipe.kind() == Kind::Gateway => error.to_string(),
                Err(error) => return Err(error),
            };
            report
                .left_out
                .push(LeftOut::new(recipe.name(), Some(scenario.name), &reason));
        }
    }
    Ok(report)
}

/// One contestant's part in a scenario.
struct Part<'a> {
    contestant: &'a Contestant,
    way: ClientApi,
    scale: f64,
    row: Row,
    /// Why a gateway takes no further part.
    fault: Option<String>,
}

/// Runs a scenario: each round goes through all contestants, and each begins with another one.
fn in_turn(
    scenario: &Scenario,
    contestants: &[Contestant],
    options: &Options,
    engine: &Engine,
    report: &mut Report,
) -> io::Result<()> {
    eprint!("{:<12}", scenario.name);
    let mut parts = Vec::new();
    for contestant in contestants {
        let (ways, named): (&[ClientApi], _) = match (scenario.way, contestant.kind) {
            (ClientApi::Responses, Kind::Samewire) => {
                (&[ClientApi::Chat, ClientApi::Responses], true)
            }
            (ClientApi::Responses, _) => continue,
            _ => (&[ClientApi::Chat], false),
        };
        let scale = match contestant.kind {
            Kind::Gateway => trial(contestant, scenario, options.scale, engine),
            _ => Ok(options.scale),
        };
        for &way in ways {
            let name = if named {
                format!("{} {}", contestant.name, way.name())
            } else {
                contestant.name.clone()
            };
            let row = Row::new(scenario, &name, contestant.kind);
            let fault = scale.as_ref().err().cloned();
            parts.push(Part {
                contestant,
                way,
                scale: scale.clone().unwrap_or_default(),
                row,
                fault,
            });
        }
    }
    for round in 0..options.rounds {
        for turn in 0..parts.len() {
            let place = (round + turn) % parts.len();
            parts[place].measure(scenario, engine)?;
            eprint!(".");
        }
    }
    eprintln!();
    for Part { row, fault, .. } in parts {
        match fault {
            None => report.rows.push(row),
            Some(reason) => {
                report
                    .left_out
                    .push(LeftOut::new(&row.contestant, Some(scenario.name), &reason))
            }
        }
    }
    Ok(())
}

impl Part<'_> {
    fn measure(&mut self, scenario: &Scenario, engine: &Engine) -> io::Result<()> {
        if self.fault.is_some() {
            return Ok(());
        }
        let figures = measure(self.contestant, scenario, self.way, self.scale, engine);
        if self.contestant.kind == Kind::Gateway {
            self.fault = match &figures {
                Ok(figures) => figures.complaint.clone(),
                Err(error) => Some(error.to_string()),
            };
            self.row.figures.extend(figures);
        } else {
            self.row.figures.push(figures?);
        }
        Ok(())
    }
}
