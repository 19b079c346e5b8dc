//! Command-line options of the soak, with their defaults and their limits.

use crate::plan::RunSettings;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Usual rate of each stream, in tokens per second.
const USUAL_RATE: f64 = 50.0;

#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) samewire: PathBuf,
    pub(crate) seed: u64,
    /// Length of the whole load, calm and faulty.
    pub(crate) length: Duration,
    /// Length of the first phase, without faults.
    pub(crate) calm: Duration,
    pub(crate) streams: usize,
    pub(crate) rate: f64,
    pub(crate) tokens: (u64, u64),
    pub(crate) whole: f64,
    pub(crate) background: f64,
    /// Time between two faults of the machine.
    pub(crate) trouble: Duration,
    pub(crate) threads: usize,
    /// Clients per second that leave early.
    pub(crate) churn: f64,
    /// Number of readers that stop reading once the calm phase is over.
    pub(crate) stopped: usize,
    /// Number of idle clients: they send short requests, seldom.
    pub(crate) idle: usize,
    /// True if engines, clients and the machine misbehave.
    pub(crate) faults: bool,
    /// Number of open streams to measure, instead of a soak; 0 runs the soak.
    pub(crate) open: usize,
    /// True if the machine is shared with other work: late tokens are reported, but fail nothing.
    pub(crate) lenient: bool,
    pub(crate) json: PathBuf,
}

impl Options {
    pub(crate) fn read(arguments: &[String]) -> io::Result<Self> {
        let mut options = Self {
            samewire: PathBuf::from("target/release/samewire"),
            seed: 1,
            length: Duration::from_secs(600),
            calm: Duration::ZERO,
            streams: 1_000,
            rate: USUAL_RATE,
            tokens: (200, 4_000),
            whole: 20.0,
            background: 5.0,
            trouble: Duration::from_secs(60),
            threads: 0,
            churn: 0.0,
            stopped: 0,
            idle: 0,
            faults: true,
            open: 0,
            lenient: false,
            json: PathBuf::from("target/soak/soak.json"),
        };
        let mut calm = None;
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let mut value = || {
                words
                    .next()
                    .ok_or_else(|| io::Error::other(format!("{word} wants a value")))
            };
            match word.as_str() {
                "--samewire" => options.samewire = PathBuf::from(value()?),
                "--json" => options.json = PathBuf::from(value()?),
                "--seed" => options.seed = number(value()?)?,
                "--seconds" => options.length = Duration::from_secs_f64(number(value()?)?),
                "--calm" => calm = Some(Duration::from_secs_f64(number(value()?)?)),
                "--streams" => options.streams = number(value()?)?,
                "--rate" => options.rate = number(value()?)?,
                "--tokens" => {
                    let (low, high) = value()?
                        .split_once('-')
                        .ok_or_else(|| io::Error::other("--tokens LOW-HIGH"))?;
                    options.tokens = (number(low)?, number(high)?);
                }
                "--whole" => options.whole = number(value()?)?,
                "--background" => options.background = number(value()?)?,
                "--trouble" => options.trouble = Duration::from_secs_f64(number(value()?)?),
                "--threads" => options.threads = number(value()?)?,
                "--churn" => options.churn = number(value()?)?,
                "--stopped" => options.stopped = number(value()?)?,
                "--idle" => options.idle = number(value()?)?,
                "--no-faults" => options.faults = false,
                "--open" => options.open = number(value()?)?,
                "--lenient" => options.lenient = true,
                minutes if minutes.starts_with(|c: char| c.is_ascii_digit()) => {
                    options.length = Duration::from_secs_f64(number::<f64>(minutes)? * 60.0);
                }
                other => return Err(io::Error::other(format!("no such option: {other}"))),
            }
        }
        // A sixth of the length, at most as long as the warm-up.
        options.calm = calm.unwrap_or_else(|| (options.length / 6).min(Duration::from_secs(300)));
        Ok(options)
    }

    /// Returns the time until memory is as large as the number of streams makes it: five minutes at 50 tokens per
    /// second, longer where streams take longer.
    pub(crate) fn warm_up(&self) -> Duration {
        Duration::from_secs_f64(300.0 * (USUAL_RATE / self.rate).max(1.0))
    }

    pub(crate) fn measure(&self) -> RunSettings {
        RunSettings {
            seed: self.seed,
            rate: self.rate,
            shortest: self.tokens.0,
            longest: self.tokens.1,
        }
    }
}

fn number<T: FromStr>(text: &str) -> io::Result<T> {
    text.parse()
        .map_err(|_| io::Error::other(format!("no number: {text}")))
}
