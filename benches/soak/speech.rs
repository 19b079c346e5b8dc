//! Two dialects for the same answer: the shapes of vLLM and SGLang, with one HTTP chunk for each event.

use crate::plan::{Kind, Plan, TokenKind};
use std::fmt::Write as _;
use std::sync::LazyLock;
use std::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Vllm,
    Sglang,
}

impl Dialect {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Vllm => "vllm",
            Self::Sglang => "sglang",
        }
    }
}

/// Returns the microseconds since the process began, with which tokens are stamped.
pub(crate) fn now() -> u64 {
    static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(BEGIN.elapsed().as_micros()).unwrap_or(u64::MAX)
}

pub(crate) const HEAD: &str = "HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\n\
                               transfer-encoding: chunked\r\n\r\n";

/// Writer of the events of one answer, in an engine's dialect, with each token's time stamp.
pub(crate) struct AnswerWriter<'a> {
    pub(crate) dialect: Dialect,
    pub(crate) plan: &'a Plan,
    event: String,
    pub(crate) out: Vec<u8>,
}

impl<'a> AnswerWriter<'a> {
    pub(crate) fn new(dialect: Dialect, plan: &'a Plan) -> Self {
        Self {
            dialect,
            plan,
            event: String::new(),
            out: Vec::new(),
        }
    }

    /// Writes one event with this data, in a separate HTTP chunk.
    pub(crate) fn event(&mut self, data: &str) {
        // Writing to a vector does not fail.
        let _ = std::io::Write::write_fmt(
            &mut self.out,
            format_args!(
                "{:x}\r\ndata: {data}\n\n\r\n",
                data.len() + "data: \n\n".len()
            ),
        );
    }

    fn chunk(&mut self, choice: u64, delta: std::fmt::Arguments<'_>, finish: &str) {
        let (event, id) = (&mut self.event, self.plan.id);
        event.clear();
        let _ = match self.dialect {
            Dialect::Vllm => write!(
                event,
                r#"{{"id":"chatcmpl-{id:x}","object":"chat.completion.chunk","created":1795233932,"model":"m","choices":[{{"index":{choice},"delta":{{{delta}}},"logprobs":null,"finish_reason":{finish},"token_ids":null}}]}}"#
            ),
            Dialect::Sglang => write!(
                event,
                r#"{{"id":"{id:032x}","object":"chat.completion.chunk","created":1795233932,"model":"m","choices":[{{"index":{choice},"delta":{{{delta}}},"logprobs":null,"finish_reason":{finish},"matched_stop":null}}]}}"#
            ),
        };
        let event = std::mem::take(&mut self.event);
        self.event(&event);
        self.event = event;
    }

    pub(crate) fn role(&mut self) {
        for choice in 0..self.plan.choices {
            match self.dialect {
                Dialect::Vllm => self.chunk(
                    choice,
                    format_args!(r#""role":"assistant","content":"""#),
                    "null",
                ),
                Dialect::Sglang => self.chunk(
                    choice,
                    format_args!(r#""reasoning_content":null,"role":"assistant","content":"""#),
                    "null",
                ),
            }
        }
    }

    /// Writes the ith token, stamped with the current time.
    pub(crate) fn token(&mut self, i: u64) {
        let (lane, choice, n) = self.plan.token(i);
        let (id, letter, time) = (self.plan.id, lane.letter(), now());
        let text = format_args!("{id:x}.{letter}{choice}.{n}.{time} ");
        match (lane, self.dialect) {
            (TokenKind::Content, _) => {
                self.chunk(choice, format_args!(r#""content":"{text}""#), "null")
            }
            (TokenKind::Reasoning, Dialect::Vllm) => {
                self.chunk(choice, format_args!(r#""reasoning":"{text}""#), "null");
            }
            (TokenKind::Reasoning, Dialect::Sglang) => {
                self.chunk(
                    choice,
                    format_args!(r#""reasoning_content":"{text}""#),
                    "null",
                );
            }
            (TokenKind::Tool, dialect) => {
                if n == 0 {
                    self.call();
                }
                let close = if n + 1 == self.plan.tool {
                    r#"\"}"#
                } else {
                    ""
                };
                let nothing = if dialect == Dialect::Vllm {
                    ""
                } else {
                    r#""id":null,"type":"function","#
                };
                let name = if dialect == Dialect::Vllm {
                    ""
                } else {
                    r#""name":null,"#
                };
                self.chunk(
                    choice,
                    format_args!(
                        r#""tool_calls":[{{{nothing}"index":0,"function":{{{name}"arguments":"{text}{close}"}}}}]"#
                    ),
                    "null",
                );
            }
        }
    }

    fn call(&mut self) {
        let id = self.plan.id;
        match self.dialect {
            Dialect::Vllm => self.chunk(
                0,
                format_args!(
                    r#""tool_calls":[{{"id":"chatcmpl-tool-{id:032x}","type":"function","index":0,"function":{{"name":"f","arguments":"{{\"a\":\" "}}}}]"#
                ),
                "null",
            ),
            Dialect::Sglang => self.chunk(
                0,
                format_args!(
                    r#""tool_calls":[{{"id":"call_{id:024x}","index":0,"type":"function","function":{{"name":"f","arguments":"{{\"a\":\" "}}}}]"#
                ),
                "null",
            ),
        }
    }

    /// Writes the finish of every choice.
    pub(crate) fn finish(&mut self, reason: Option<&str>) {
        let reason = reason.unwrap_or(if self.plan.tool > 0 {
            "tool_calls"
        } else {
            "stop"
        });
        for choice in 0..self.plan.choices {
            self.chunk(choice, format_args!(""), &format!("\"{reason}\""));
        }
    }

    /// Writes everything after the finish, up to the last HTTP chunk.
    pub(crate) fn end(&mut self, usage: bool) {
        if usage {
            let (id, count) = (self.plan.id, self.plan.tokens());
            self.event(&format!(
                r#"{{"id":"chatcmpl-{id:x}","object":"chat.completion.chunk","created":1795233932,"model":"m","choices":[],"usage":{{"prompt_tokens":3,"total_tokens":{},"completion_tokens":{count}}}}}"#,
                count + 3
            ));
        }
        self.event("[DONE]");
        self.out.extend_from_slice(b"0\r\n\r\n");
    }

    /// Returns the whole answer as one JSON object.
    pub(crate) fn whole(&self) -> String {
        debug_assert_eq!(self.plan.kind, Kind::Whole);
        let said = |lane: TokenKind| {
            let mut text = String::new();
            for i in 0..self.plan.tokens() {
                let (of, choice, n) = self.plan.token(i);
                if of == lane {
                    let _ = write!(
                        text,
                        "{:x}.{}{choice}.{n}.{} ",
                        self.plan.id,
                        lane.letter(),
                        now()
                    );
                }
            }
            text
        };
        let (id, count) = (self.plan.id, self.plan.tokens());
        let key = if self.dialect == Dialect::Vllm {
            "reasoning"
        } else {
            "reasoning_content"
        };
        let calls = if self.plan.tool > 0 {
            format!(
                r#"[{{"id":"call_{id:024x}","type":"function","function":{{"name":"f","arguments":"{{\"a\":\" {}\"}}"}}}}]"#,
                said(TokenKind::Tool)
            )
        } else {
            "null".to_owned()
        };
        let finish = if self.plan.tool > 0 {
            "tool_calls"
        } else {
            "stop"
        };
        format!(
            r#"{{"id":"chatcmpl-{id:x}","object":"chat.completion","created":1795233932,"model":"m","choices":[{{"index":0,"message":{{"role":"assistant","content":"{}","{key}":"{}","tool_calls":{calls}}},"logprobs":null,"finish_reason":"{finish}"}}],"usage":{{"prompt_tokens":3,"total_tokens":{},"completion_tokens":{count}}}}}"#,
            said(TokenKind::Content),
            said(TokenKind::Reasoning),
            count + 3
        )
    }
}
