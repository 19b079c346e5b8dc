//! Scenarios of the benchmark.
//!
//! The load client tells the engine through the system message how to send, and through `max_tokens` how much, since
//! every proxy forwards these two.

use std::time::Duration;

/// Timing with which the engine sends. The system message is its word.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pace {
    /// Writes as fast as the other side reads, with this many chunks each. `bench-flat-N`.
    Flat(usize),
    /// Chunks per second, the streams spread over the period. `bench-paced-N`.
    Paced(f64),
    /// Chunks per second, all streams at the same moment, as in an engine step. `bench-step-N`.
    Step(f64),
    /// As paced, and all deltas but the first bear the time of sending. `bench-stamped-N`.
    Stamped(f64),
    /// Small JSON body instead of a stream. `bench-whole-0`.
    Whole,
}

impl Pace {
    pub(crate) fn word(self) -> String {
        match self {
            Self::Flat(batch) => format!("bench-flat-{batch}"),
            Self::Paced(rate) => format!("bench-paced-{rate}"),
            Self::Step(rate) => format!("bench-step-{rate}"),
            Self::Stamped(rate) => format!("bench-stamped-{rate}"),
            Self::Whole => "bench-whole-0".to_owned(),
        }
    }

    pub(crate) fn from_word(word: &str) -> Option<Self> {
        let (kind, number) = word.strip_prefix("bench-")?.split_once('-')?;
        let number: f64 = number.parse().ok()?;
        Some(match kind {
            "flat" => Self::Flat((number as usize).clamp(1, crate::frames::BATCH)),
            "paced" => Self::Paced(number),
            "step" => Self::Step(number),
            "stamped" => Self::Stamped(number),
            _ => Self::Whole,
        })
    }

    /// Time between two chunks of one stream.
    pub(crate) fn period(self) -> Duration {
        match self {
            Self::Paced(rate) | Self::Step(rate) | Self::Stamped(rate) => {
                Duration::from_secs_f64(1.0 / rate)
            }
            Self::Flat(_) | Self::Whole => Duration::ZERO,
        }
    }
}

/// API of the requests: the one the engine implements, or one that samewire converts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientApi {
    /// Chat Completions, the engine's own API.
    Chat,
    /// Responses without storing. A plain relay does not implement it: samewire is measured alone, and against its
    /// own chat.
    Responses,
    /// Responses with storing.
    Stored,
}

impl ClientApi {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Responses => "responses",
            Self::Stored => "stored",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        [Self::Chat, Self::Responses, Self::Stored]
            .into_iter()
            .find(|way| way.name() == name)
    }
}

/// Divisor of a scenario's processor time, in the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Chunk,
    Request,
}

pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) story: &'static str,
    pub(crate) pace: Pace,
    pub(crate) streams: usize,
    /// Deltas in each stream.
    pub(crate) chunks: usize,
    /// Bytes of the prompt, as JSON spells it; 0 is a short one.
    pub(crate) prompt: usize,
    /// Requests that each connection sends one after the other.
    pub(crate) requests: usize,
    pub(crate) unit: Unit,
    /// Largest ratio of samewire's processor time to nginx's.
    pub(crate) target: Option<f64>,
    /// API of the requests: chat by every contestant, or also Responses.
    pub(crate) way: ClientApi,
    /// Requests per second over all connections; 0 is unlimited.
    pub(crate) rate: f64,
    /// True to keep the streams open until released, instead of reading them to the end.
    pub(crate) hold: bool,
    /// True if it runs only where it is named.
    pub(crate) only_named: bool,
}

const DEFAULT: Scenario = Scenario {
    name: "",
    story: "",
    pace: Pace::Whole,
    streams: 1,
    chunks: 0,
    prompt: 0,
    requests: 1,
    unit: Unit::Chunk,
    target: None,
    way: ClientApi::Chat,
    rate: 0.0,
    hold: false,
    only_named: false,
};

pub(crate) const SCENARIOS: [Scenario; 19] = [
    Scenario {
        name: "flat64",
        story: "64 streams flat out, one chunk a write",
        pace: Pace::Flat(1),
        streams: 64,
        chunks: 4_000,
        target: Some(2.0),
        ..DEFAULT
    },
    Scenario {
        name: "batch64",
        story: "64 streams flat out, 50 chunks a write",
        pace: Pace::Flat(50),
        streams: 64,
        chunks: 16_000,
        target: Some(2.0),
        ..DEFAULT
    },
    Scenario {
        name: "flat4",
        story: "4 long streams flat out, one chunk a write",
        pace: Pace::Flat(1),
        streams: 4,
        chunks: 60_000,
        target: Some(2.0),
        ..DEFAULT
    },
    Scenario {
        name: "paced200",
        story: "200 streams, 50 chunks a second each, spread evenly",
        pace: Pace::Paced(50.0),
        streams: 200,
        chunks: 200,
        target: Some(1.15),
        ..DEFAULT
    },
    Scenario {
        name: "step200",
        story: "200 streams, 50 chunks a second each, all at once",
        pace: Pace::Step(50.0),
        streams: 200,
        chunks: 200,
        target: Some(1.15),
        ..DEFAULT
    },
    Scenario {
        name: "delay200",
        story: "200 streams, 50 chunks a second each, spread evenly: how long each chunk is on its way",
        pace: Pace::Stamped(50.0),
        streams: 200,
        chunks: 200,
        ..DEFAULT
    },
    Scenario {
        name: "whole",
        story: "32 clients, small complete answers",
        pace: Pace::Whole,
        streams: 32,
        chunks: 16,
        requests: 800,
        unit: Unit::Request,
        ..DEFAULT
    },
    Scenario {
        name: "prompt1m",
        story: "8 clients, prompts of 1 MB, small complete answers",
        pace: Pace::Whole,
        streams: 8,
        chunks: 16,
        prompt: 1_000_000,
        requests: 50,
        unit: Unit::Request,
        target: Some(1.2),
        ..DEFAULT
    },
    Scenario {
        name: "short",
        story: "one client, short streams one after the other",
        pace: Pace::Flat(1),
        chunks: 8,
        requests: 3_000,
        unit: Unit::Request,
        ..DEFAULT
    },
    Scenario {
        name: "responses64",
        story: "64 streams flat out, one chunk a write, as chat and as Responses",
        pace: Pace::Flat(1),
        streams: 64,
        chunks: 4_000,
        target: Some(1.5),
        way: ClientApi::Responses,
        ..DEFAULT
    },
    Scenario {
        name: "responses1",
        story: "one client, short streams one after the other, as chat and as Responses",
        pace: Pace::Flat(1),
        chunks: 8,
        requests: 3_000,
        unit: Unit::Request,
        way: ClientApi::Responses,
        ..DEFAULT
    },
    Scenario {
        name: "stored200",
        story: "200 streams, 50 chunks a second each, alone and beside 1,000 stored responses a second",
        pace: Pace::Paced(50.0),
        streams: 200,
        chunks: 300,
        way: ClientApi::Stored,
        ..DEFAULT
    },
    Scenario {
        name: "open2000",
        story: "2,000 open streams, one chunk a second each",
        pace: Pace::Paced(1.0),
        streams: 2_000,
        chunks: 600,
        hold: true,
        ..DEFAULT
    },
    Scenario {
        name: "streams20",
        story: "20 streams, 500 chunks a second each, all at once",
        pace: Pace::Step(500.0),
        streams: 20,
        chunks: 10_000,
        only_named: true,
        ..DEFAULT
    },
    Scenario {
        name: "streams200",
        story: "200 streams, 50 chunks a second each, all at once",
        pace: Pace::Step(50.0),
        streams: 200,
        chunks: 1_000,
        only_named: true,
        ..DEFAULT
    },
    Scenario {
        name: "streams2000",
        story: "2,000 streams, 5 chunks a second each, all at once",
        pace: Pace::Step(5.0),
        streams: 2_000,
        chunks: 100,
        only_named: true,
        ..DEFAULT
    },
    Scenario {
        name: "streams4000",
        story: "4,000 streams, 2.5 chunks a second each, all at once",
        pace: Pace::Step(2.5),
        streams: 4_000,
        chunks: 100,
        only_named: true,
        ..DEFAULT
    },
    Scenario {
        name: "long1k",
        story: "4 streams of 1,000 chunks flat out",
        pace: Pace::Flat(1),
        streams: 4,
        chunks: 1_000,
        only_named: true,
        ..DEFAULT
    },
    Scenario {
        name: "long100k",
        story: "4 streams of 100,000 chunks flat out",
        pace: Pace::Flat(1),
        streams: 4,
        chunks: 100_000,
        only_named: true,
        ..DEFAULT
    },
];

/// Scenario of the stored responses that run beside `stored200`.
pub(crate) const STORING: Scenario = Scenario {
    name: "storing",
    story: "1,000 stored responses a second",
    pace: Pace::Whole,
    streams: 32,
    chunks: 16,
    // Two seconds longer than the scenario it runs beside.
    requests: 250,
    unit: Unit::Request,
    way: ClientApi::Stored,
    rate: 1_000.0,
    ..DEFAULT
};

pub(crate) fn named(name: &str) -> Option<&'static Scenario> {
    SCENARIOS
        .iter()
        .chain([&STORING])
        .find(|scenario| scenario.name == name)
}
