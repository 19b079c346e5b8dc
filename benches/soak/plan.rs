//! Plan of each request: its content, and the fault of engine or client.
//!
//! The plan follows from the run's seed and the request's number. Engines read the number in the prompt, so they
//! know the plan without other communication, even in another process.

/// Text in every prompt. Must not occur in logs or metrics.
pub(crate) const CANARY: &str = "CANARY-PROMPT-70ac";

/// Largest number of tokens in a background response.
const BACKGROUND: u64 = 60;

/// Deterministic random numbers: the same in every run with the same seed.
pub(crate) struct SeededRandom(u64);

impl SeededRandom {
    pub(crate) fn new(seed: u64, number: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number.wrapping_mul(0xd1b5_4a32_d192_ed03))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// Settings that all plans of a run share, so that engines in another process make the same plans.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunSettings {
    pub(crate) seed: u64,
    /// Tokens per second in each stream.
    pub(crate) rate: f64,
    pub(crate) shortest: u64,
    pub(crate) longest: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Chat Completions, streamed.
    Chat,
    /// Responses, streamed.
    Responses,
    /// Chat Completions, whole.
    Whole,
    /// Responses, in the background.
    Background,
}

/// Reason for which a client sends a request; it decides how the client behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Receive the answer.
    Answer,
    /// Leave at any point, even before the first token.
    Churn,
    /// Stop reading in the middle of the answer.
    Stop,
    /// Receive a short answer after an idle time.
    Brief,
}

/// Fault of the engine in its first attempt (U01 and others in `tests/faults.toml`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EngineFault {
    /// U11: a reset before any byte.
    ResetAtOnce,
    /// U13: an end before any byte.
    FinAtOnce,
    /// U12: a reset after some tokens.
    ResetAfter(u64),
    /// U13: an end of the connection after some tokens.
    FinAfter(u64),
    /// U14: an orderly end after some tokens, without a finish.
    EndAfter(u64),
    /// U16: the finish `abort`.
    AbortAfter(u64),
    /// U17: an error in an event.
    ErrorAfter(u64),
    /// U29: an event that is not JSON.
    GarbageAfter(u64),
    /// U09: silence after some tokens.
    HangAfter(u64),
    /// U06: no response head.
    SilentHead,
    /// U08: silence after the role chunk.
    RoleThenHang,
    /// U18, U22, U23: an error status.
    Status(u16),
    /// U07: no fault, but a slow first token.
    SlowFirst,
}

/// Fault of the client (C01 and others in `tests/faults.toml`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientFault {
    /// C24: closes the connection `after` milliseconds after the request; the engine is slow.
    Early { after: u64, reset: bool },
    /// C25: closes the connection after `tokens` tokens.
    After { tokens: u64, reset: bool },
    /// C26: closes the connection after `tokens` tokens, having sent one byte too many.
    Surplus { tokens: u64 },
    /// C09: reads a little now and then.
    Slow,
    /// C09: stops reading after some tokens, while the engine sends more than buffers hold.
    Stopped { tokens: u64 },
    /// C14: sends bytes that are not HTTP.
    Garbage,
    /// C07, C08: sends a part of the request, waits, and closes the connection.
    Half,
}

/// Member of the answer that a token belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    Reasoning,
    Content,
    Tool,
}

impl TokenKind {
    pub(crate) fn letter(self) -> char {
        match self {
            Self::Reasoning => 'r',
            Self::Content => 'c',
            Self::Tool => 't',
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) id: u64,
    pub(crate) kind: Kind,
    /// Number of choices in the answer; their tokens alternate.
    pub(crate) choices: u64,
    /// Reasoning tokens in each choice.
    pub(crate) reasoning: u64,
    pub(crate) content: u64,
    pub(crate) tool: u64,
    pub(crate) wrong: Option<EngineFault>,
    pub(crate) leaving: Option<ClientFault>,
    /// Bytes of filling in the prompt.
    pub(crate) filling: u64,
}

/// Kinds in the order of the low bits of a request number.
const KINDS: [Kind; 4] = [Kind::Chat, Kind::Responses, Kind::Whole, Kind::Background];
const FAULTS: u64 = 4;
/// Purposes in the order of the bits above the kind.
const PURPOSES: [Purpose; 4] = [
    Purpose::Answer,
    Purpose::Churn,
    Purpose::Stop,
    Purpose::Brief,
];

/// Encodes the number of the nth request: kind, faults and purpose are in its low bits.
pub(crate) fn number(n: u64, kind: Kind, faults: bool, purpose: Purpose) -> u64 {
    let kind = KINDS.iter().position(|known| *known == kind).unwrap_or(0) as u64;
    let purpose = PURPOSES
        .iter()
        .position(|known| *known == purpose)
        .unwrap_or(0) as u64;
    n << 5 | purpose << 3 | if faults { FAULTS } else { 0 } | kind
}

impl Plan {
    /// Returns true if the planned fault takes longer than one attempt: a timer runs out before another engine is
    /// tried.
    pub(crate) fn waits(&self) -> bool {
        matches!(
            self.wrong,
            Some(EngineFault::SilentHead | EngineFault::RoleThenHang)
        )
    }

    pub(crate) fn of(measure: &RunSettings, id: u64) -> Self {
        let mut dice = SeededRandom::new(measure.seed, id);
        let kind = KINDS[usize::try_from(id & 3).unwrap_or(0)];
        let streams = matches!(kind, Kind::Chat | Kind::Responses);
        let most = if streams {
            measure.longest
        } else {
            measure.longest.min(BACKGROUND)
        };
        let total = dice.between(measure.shortest.min(most), most).max(8);
        let choices = if kind == Kind::Chat && dice.percent(5) {
            2
        } else {
            1
        };
        let tool = if choices == 1 && dice.percent(20) {
            total / 4
        } else {
            0
        };
        let reasoning = if dice.percent(20) {
            total / 4 / choices
        } else {
            0
        };
        let content = (total - tool) / choices - reasoning;
        let filling = match dice.below(100) {
            0 => dice.between(100_000, 1_000_000),
            1..10 => dice.between(4_000, 64_000),
            _ => dice.between(100, 4_000),
        };
        let mut plan = Self {
            id,
            kind,
            choices,
            reasoning,
            content,
            tool,
            wrong: None,
            leaving: None,
            filling,
        };
        match PURPOSES[usize::try_from(id >> 3 & 3).unwrap_or(0)] {
            Purpose::Answer => {}
            Purpose::Churn => plan.churn(&mut dice),
            Purpose::Stop => plan.stop(5),
            Purpose::Brief => {
                (plan.choices, plan.reasoning, plan.content, plan.tool) =
                    (1, 0, dice.between(1, 20), 0);
            }
        }
        if id & FAULTS != 0 {
            if dice.percent(5) {
                plan.wrong = Some(plan.some_wrong(&mut dice));
            } else if dice.percent(5) {
                plan.leave(&mut dice);
            }
        }
        plan
    }

    fn some_wrong(&self, dice: &mut SeededRandom) -> EngineFault {
        let at = dice.below(self.tokens());
        let streams = self.kind != Kind::Whole;
        match dice.below(if streams { 16 } else { 8 }) {
            0 => EngineFault::ResetAtOnce,
            1 => EngineFault::FinAtOnce,
            2 => EngineFault::Status(429),
            3 => EngineFault::Status(503),
            4 => EngineFault::Status(500),
            5 => EngineFault::Status(400),
            6 => EngineFault::SilentHead,
            7 => EngineFault::ResetAfter(at),
            8 => EngineFault::FinAfter(at),
            9 => EngineFault::EndAfter(at),
            10 => EngineFault::AbortAfter(at),
            11 => EngineFault::ErrorAfter(at),
            12 => EngineFault::GarbageAfter(at),
            13 => EngineFault::HangAfter(at),
            14 => EngineFault::RoleThenHang,
            _ => EngineFault::SlowFirst,
        }
    }

    fn leave(&mut self, dice: &mut SeededRandom) {
        let (tokens, reset) = (dice.below(self.tokens()), dice.percent(50));
        let streams = matches!(self.kind, Kind::Chat | Kind::Responses);
        let leaving = match dice.below(7) {
            _ if self.kind == Kind::Background => return,
            0 => ClientFault::Garbage,
            1 => ClientFault::Half,
            2 if streams => ClientFault::After { tokens, reset },
            3 if streams => ClientFault::Surplus { tokens },
            4 if streams => ClientFault::Slow,
            5 if streams => ClientFault::Stopped {
                tokens: tokens % 50,
            },
            _ => ClientFault::Early {
                after: dice.below(600),
                reset,
            },
        };
        match leaving {
            ClientFault::Early { .. } => self.wrong = Some(EngineFault::SlowFirst),
            ClientFault::Stopped { tokens } => return self.stop(tokens),
            _ => {}
        }
        self.leaving = Some(leaving);
    }

    /// Plans an early leave: one in three before the first token, the others soon after it.
    fn churn(&mut self, dice: &mut SeededRandom) {
        let reset = dice.percent(50);
        if dice.percent(33) {
            self.wrong = Some(EngineFault::SlowFirst);
            self.leaving = Some(ClientFault::Early {
                after: dice.below(600),
                reset,
            });
        } else {
            self.leaving = Some(ClientFault::After {
                tokens: dice.below(self.tokens().min(40)),
                reset,
            });
        }
    }

    /// Plans a client that stops reading while the engine sends more than any buffer holds.
    fn stop(&mut self, tokens: u64) {
        self.content = 60_000;
        self.leaving = Some(ClientFault::Stopped { tokens });
    }

    /// Number of tokens in all choices together.
    pub(crate) fn tokens(&self) -> u64 {
        self.choices * self.each()
    }

    fn each(&self) -> u64 {
        self.reasoning + self.content + self.tool
    }

    /// Returns the lane, the choice, and the number within both of the ith token.
    pub(crate) fn token(&self, i: u64) -> (TokenKind, u64, u64) {
        let (choice, n) = (i % self.choices, i / self.choices);
        match n {
            n if n < self.reasoning => (TokenKind::Reasoning, choice, n),
            n if n < self.reasoning + self.content => {
                (TokenKind::Content, choice, n - self.reasoning)
            }
            n => (TokenKind::Tool, choice, n - self.reasoning - self.content),
        }
    }

    pub(crate) fn of_lane(&self, lane: TokenKind) -> u64 {
        match lane {
            TokenKind::Reasoning => self.reasoning,
            TokenKind::Content => self.content,
            TokenKind::Tool => self.tool,
        }
    }

    /// Returns true if the engine sends as fast as it can.
    pub(crate) fn unpaced(&self) -> bool {
        matches!(self.leaving, Some(ClientFault::Stopped { .. }))
    }

    /// Returns the body of the request.
    pub(crate) fn body(&self) -> String {
        let (id, filling) = (
            self.id,
            "filling ".repeat(usize::try_from(self.filling / 8).unwrap_or(0)),
        );
        let prompt = format!("{CANARY} number-{id:x}; {filling}");
        let tools = r#"{"type":"function","name":"f","description":"d","parameters":{"type":"object","properties":{"a":{"type":"string"}}}}"#;
        let chat_tools = r#"{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","properties":{"a":{"type":"string"}}}}}"#;
        let with = |tools: &str| {
            if self.tool > 0 {
                format!(r#","tools":[{tools}]"#)
            } else {
                String::new()
            }
        };
        let stream = if self.kind == Kind::Whole {
            ""
        } else {
            r#","stream":true,"stream_options":{"include_usage":true}"#
        };
        match self.kind {
            Kind::Chat | Kind::Whole => format!(
                r#"{{"model":"m","messages":[{{"role":"user","content":"{prompt}"}}],"n":{}{stream}{}}}"#,
                self.choices,
                with(chat_tools)
            ),
            Kind::Responses => {
                let store = id.is_multiple_of(3);
                format!(
                    r#"{{"model":"m","input":"{prompt}","store":{store},"stream":true{}}}"#,
                    with(tools)
                )
            }
            Kind::Background => {
                format!(
                    r#"{{"model":"m","input":"{prompt}","background":true{}}}"#,
                    with(tools)
                )
            }
        }
    }

    pub(crate) fn path(&self) -> &'static str {
        match self.kind {
            Kind::Chat | Kind::Whole => "/v1/chat/completions",
            Kind::Responses | Kind::Background => "/v1/responses",
        }
    }
}

/// Finds the request number in a prompt.
pub(crate) fn number_in(body: &[u8]) -> Option<u64> {
    let at = memchr::memmem::find(body, b" number-")? + b" number-".len();
    let digits = body.get(at..)?.split(|byte| *byte == b';').next()?;
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}
