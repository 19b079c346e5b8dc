//! Whole answers as models write them: reasoning, text with code that shows calls, calls whose values
//! hold the tags of every format, and ends that end nothing. All of it comes out as it was written, also where the engine
//! reads a part.

use super::written::{self, Call, FORMATS, is_message, stands_alone, turn};
use super::{AnswerParts, case, cut, meant, opened, said};
use crate::cases::Case;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use samewire::wire::Ending;
use serde_json::{Map, Value, json};

/// Tags and other marks of all formats. A dot after the end of a value says that it ends nothing.
const MARKS: &str = "<think> <tool_call> <function=f>. <parameter=x>. <arg_key> <arg_value> <tool_calls> <invoke.name=\"f\"> \
    <minimax:tool_call> <seed:tool_call> [TOOL_CALLS] [ARGS] [THINK] <|tool_call_begin|> <|tool_calls_section_begin|> \
    <|tool_call_argument_begin|> <｜tool▁calls▁begin｜> <｜tool▁call▁begin｜> <｜tool▁sep｜> <｜DSML｜invoke.name=\"f\"> <|python_tag|> \
    <|tool_call_start|> functools[ <|START_ACTION|> <|channel|>analysis <|im_end|>. </think>. </tool_call>. </function>. \
    </parameter>. </invoke>. </arg_value>. </tool_calls>. [/THINK]. <|tool_call_end|>. <｜tool▁call▁end｜>.";

/// Part of an answer that the engine reads by itself.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Engine {
    Nothing,
    Reasoning,
    Calls,
}

/// Answer, and how it comes.
#[derive(Clone, Debug)]
pub struct Written {
    format: &'static str,
    parser: &'static str,
    engine: Engine,
    reasoning: String,
    content: String,
    calls: Vec<Call>,
    /// Number of ends after the calls that end nothing.
    strays: usize,
    places: Vec<Index>,
}

/// Returns the tags of reasoning of the models that a parser is for; the first is empty if templates open the block.
fn tags(parser: &str) -> (&'static str, &'static str) {
    match parser {
        "mimo" => ("<think>", "</think>"),
        "muse" => ("<|start|>assistant to=self<|message|>", "<|eom|>"),
        "beam" => ("<|channel|>analysis<|message|>", "<|end|>"),
        "inkling" => ("<|content_thinking|>", "<|end_message|>"),
        "apertus2509" => ("<|inner_prefix|>", "<|inner_suffix|>"),
        "mistral" => ("[THINK]", "[/THINK]"),
        "gemma4" => ("<|channel>thought\n", "<channel|>"),
        "seed_oss" => ("<seed:think>", "</seed:think>"),
        "minimax_m3" => ("<mm:think>", "</mm:think>"),
        "k2_horizon" => ("<ifm|think>", "</ifm|think>"),
        "longcat" => ("<longcat_think>", "</longcat_think>"),
        "cohere_command3" | "cohere_command4" => ("<|START_THINKING|>", "<|END_THINKING|>"),
        _ => match opened(parser) {
            "" => ("<think>", "</think>"),
            end => ("", end),
        },
    }
}

impl Written {
    /// Returns the text of the answer, without what the engine reads.
    fn text(&self) -> String {
        let (start, end) = tags(self.parser);
        let reasoning = match self.engine {
            Engine::Reasoning => String::new(),
            Engine::Nothing | Engine::Calls => format!("{start}{}{end}", self.reasoning),
        };
        let calls = match self.engine {
            Engine::Calls => String::new(),
            Engine::Nothing | Engine::Reasoning => written::written(self.format, &self.calls),
        };
        let mark = match self.format {
            "kimi_k3" => "<|close|>",
            "minimax_m3" => "]<]minimax[>[",
            _ => "<",
        };
        let end = calls.rfind(mark).filter(|_| calls.ends_with('>'));
        let strays = end.map_or("", |at| &calls[at..]).repeat(self.strays);
        let turn = turn(self.parser);
        format!("{reasoning}{}{calls}{strays}{turn}", self.content)
    }

    /// Returns the entries of the engine's own calls.
    fn entries(&self) -> Value {
        let entry = |(at, (name, arguments)): (usize, &Call)| {
            let arguments = Value::Object(arguments.clone()).to_string();
            let function = json!({"name": name, "arguments": arguments});
            json!({"index": at, "id": format!("call_{at}"), "type": "function", "function": function})
        };
        self.calls.iter().enumerate().map(entry).collect()
    }

    /// Returns the answer as a stream and whole.
    fn both(&self) -> [Case; 2] {
        let text = self.text();
        let body = |part: &str, said: &Value, finish: Value| {
            let choice = json!({"index": 0, part: said, "finish_reason": finish});
            json!({"id": "chatcmpl-1", "created": 5, "model": "m", "choices": [choice]}).to_string()
        };
        let pieces = cut(&text, &self.places).into_iter();
        let mut deltas: Vec<_> = pieces.map(|piece| json!({"content": piece})).collect();
        let mut message = json!({"role": "assistant", "content": text});
        let (part, field) = match self.engine {
            Engine::Nothing => (json!({}), "content"),
            Engine::Reasoning => (
                json!({"reasoning_content": self.reasoning}),
                "reasoning_content",
            ),
            Engine::Calls => (json!({"tool_calls": self.entries()}), "tool_calls"),
        };
        if self.engine != Engine::Nothing {
            message[field] = part[field].clone();
        }
        deltas.insert(
            if self.engine == Engine::Calls {
                deltas.len()
            } else {
                0
            },
            part,
        );
        let finish = if self.engine == Engine::Calls {
            "tool_calls"
        } else {
            "stop"
        };
        let mut chunks: Vec<_> = deltas
            .iter()
            .map(|delta| body("delta", delta, Value::Null))
            .collect();
        chunks.push(body("delta", &json!({}), finish.into()));
        chunks.push("[DONE]".to_owned());
        let stream = chunks
            .iter()
            .map(|chunk| format!("data: {chunk}\n\n"))
            .collect();
        let whole = body("message", &message, finish.into());
        [
            case(self.parser, true, stream, Ending::Clean),
            case(self.parser, false, whole, Ending::Whole),
        ]
    }
}

/// Returns text with marks, without line feeds at its ends.
fn marked() -> impl Strategy<Value = String> {
    let marks: Vec<_> = MARKS.split(' ').filter(|mark| !mark.is_empty()).collect();
    let signs = vec![
        "a", " ", "é", "\n", "\"", "\\", "'", "{", "}]", "0", "😀", "```", "&lt;",
    ];
    let part = prop_oneof![select(marks), select(signs)];
    let parts = prop::collection::vec(part, 0..12);
    parts.prop_map(|parts| parts.concat().trim_matches('\n').to_owned())
}

fn arguments() -> impl Strategy<Value = Map<String, Value>> {
    let list = || prop::collection::vec(marked(), 0..3).prop_map(Value::from);
    let all = (
        prop::option::of(marked().prop_map(Value::from)),
        prop::option::of(any::<i32>().prop_map(Value::from)),
        prop::option::of(list()),
        prop::option::of(list().prop_map(|list| json!({"x": list, "y": {"z": 1.5}}))),
    );
    all.prop_map(|(text, number, list, thing)| {
        let all = [
            ("text", text),
            ("number", number),
            ("list", list),
            ("thing", thing),
        ];
        let all = all.into_iter();
        all.filter_map(|(key, value)| Some((key.to_owned(), value?)))
            .collect()
    })
}

/// Generates an answer in any format.
pub fn written() -> impl Strategy<Value = Written> {
    let name = select(vec!["get_weather", "f", "g", "a.b-c"]).prop_map(ToOwned::to_owned);
    let words = select(vec![
        "Let me see. ",
        "1 < 2, ",
        "é ",
        "a\n",
        "`x` ",
        "{\"a\": 1} ",
    ]);
    let prose = prop::collection::vec(words, 1..6).prop_map(|words| words.concat());
    let way = (
        select(FORMATS.to_vec()),
        select(vec![Engine::Nothing, Engine::Reasoning, Engine::Calls]),
        select(vec![None, Some("other"), Some("f")]),
        0_usize..3,
        prop::collection::vec(any::<Index>(), 0..40),
    );
    let calls = prop::collection::vec((name, arguments()), 1..4);
    (way, prose.clone(), prose, calls).prop_map(|(way, reasoning, prose, calls)| {
        let ((format, parser), engine, quotes, strays, places) = way;
        // Tokens cannot be quoted, and suffixes are gone.
        let is_special = is_message(format) || format == "hy_suffixed";
        let quotes = quotes.filter(|_| !is_special);
        // Calls in code, of a function that the request has or not.
        let function = quotes.unwrap_or_default();
        let example = calls
            .iter()
            .map(|(_, all)| (function.to_owned(), all.clone()));
        let text = written::written(format, &example.collect::<Vec<_>>());
        let most = text.split(|sign| sign != '`').map(str::len).max();
        let fence = "`".repeat(most.unwrap_or(0).max(2) + 1);
        let quoted = format!("\n{fence}\n{text}\n{fence}\n");
        let content = match stands_alone(format) {
            // Formats without their own mark are alone.
            true => String::new(),
            false => format!("So: {prose}{}", quotes.map_or("", |_| &quoted)),
        };
        Written {
            format,
            parser,
            engine,
            reasoning,
            content,
            calls,
            strays,
            places,
        }
    })
}

/// Checks that an answer comes out as it was written, as a stream and whole; `Err`: what came out instead.
pub fn check(answer: &Written) -> Result<(), String> {
    for case in answer.both() {
        let AnswerParts {
            reasoning,
            content,
            calls,
            finish,
        } = said(&case);
        let told = (meant(&calls), &*reasoning, &*content, &*finish);
        let calls = answer.calls.clone();
        let wanted = (calls, &*answer.reasoning, &*answer.content, "tool_calls");
        if told != wanted {
            return Err(format!(
                "{told:?}\ninstead of {wanted:?}\n{}",
                answer.text()
            ));
        }
    }
    Ok(())
}
