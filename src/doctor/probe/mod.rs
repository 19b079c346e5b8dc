//! Checks by topic. Each reads the answers to questions and finds fault only where bytes show it.

mod errors;
mod parameters;
mod reasoning;
mod requests;
mod routes;
mod server;
mod streams;
mod tools;
mod usage;

use super::check::Check;
use super::outcome::{Judged, Outcome};
use super::seen::Seen;
use crate::conform::Answer;
use crate::visible;
use crate::wire::Unparsed;

/// Returns all checks, in the order of the topics.
pub fn checks() -> impl Iterator<Item = &'static Check> {
    let all = [
        server::CHECKS,
        streams::CHECKS,
        reasoning::CHECKS,
        usage::CHECKS,
        tools::CHECKS,
        requests::CHECKS,
        parameters::CHECKS,
        errors::CHECKS,
        routes::CHECKS,
    ];
    all.into_iter().flatten()
}

/// Clients of the official libraries.
const SDKS: &str =
    "openai-python, openai-node and what is built on them (LangChain, OpenAI Agents)";
/// Obstacle where the server refuses the key, which is a separate finding.
const REFUSED: &str = "the server refuses the key";
/// Agents, whichever library they use.
const AGENTS: &str = "every agent that calls tools";

/// Returns what is known of the model's notation by its name.
fn unparsed(seen: &Seen) -> Unparsed {
    Unparsed::of_model(&seen.model, true, true)
}

/// Returns the flags with which the engine would split reasoning or calls from the model's text itself; `None` also
/// where it tells that it runs with them.
fn parser_flags(seen: &Seen, reasoning: bool, calls: bool) -> Option<String> {
    let flags = Unparsed::of_model(&seen.model, reasoning, calls).flags(seen.server.engine())?;
    let told = seen.server.parsers.iter().flat_map(|parsers| {
        let (reasoning, tools) = (parsers.reasoning.as_deref(), parsers.tools.as_deref());
        [
            ("--reasoning-parser", reasoning),
            ("--tool-call-parser", tools),
        ]
    });
    let mut told = told.filter_map(|(flag, name)| Some(format!("{flag} {}", name?)));
    (!told.any(|on| on == flags)).then_some(flags)
}

/// Returns the end of a text.
fn tail(text: &str) -> &str {
    visible::tail(text, 200)
}

/// Returns what becomes of requests whose answer is an error, or a stream that ends with one.
fn refusal(answer: &Answer) -> String {
    match answer.status {
        200 => "get a stream that ends with an error".to_owned(),
        status => format!("are refused (status {status})"),
    }
}

/// Returns an obstacle unless a condition holds.
fn require(holds: bool, why: &str) -> Judged<()> {
    if holds {
        Ok(())
    } else {
        Err(Outcome::not_seen(why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conform::{self, ROLE, chat_stream, chat_whole, without_usage};
    use crate::doctor::check::Finding;
    use crate::doctor::cut::Cut;
    use crate::doctor::outcome::Severity;
    use crate::doctor::question::Question;
    use crate::engine::{DetectedParsers, ENGINES, EngineIdentity, EngineLoad, named};
    use crate::exchange::{Ended, Exchange, Failure, Idle};
    use crate::upstream::models;
    use http::{HeaderMap, HeaderValue, StatusCode};
    use std::collections::{BTreeMap, BTreeSet};
    use std::time::Duration;

    const SSE: &str = "text/event-stream; charset=utf-8";
    const JSON: &str = "application/json";

    /// Answers by question: status, content type, body, end.
    type Answers = BTreeMap<Question, (u16, &'static str, String, Ended)>;

    /// Returns a stream of these deltas after the role, each with its finish reason as JSON.
    fn stream(deltas: &[(&str, &str)], usage: bool) -> String {
        let text = chat_stream(&[&[ROLE], deltas].concat());
        if usage { text } else { without_usage(&text) }
    }

    const REASONING: (&str, &str) = (r#""reasoning_content":"R","reasoning":"R""#, "null");
    const TEXT: (&str, &str) = (r#""content":"Hi""#, "null");
    const STOP: (&str, &str) = ("", "\"stop\"");

    fn call_stream(ids: &[&str]) -> String {
        let mut deltas = Vec::new();
        for (index, id) in ids.iter().enumerate() {
            for (id, function) in [
                (
                    format!(r#""id":"{id}","type":"function","#),
                    r#""name":"get_weather","arguments":"""#,
                ),
                (String::new(), r#""arguments":"{\"city\":""#),
                (String::new(), r#""arguments":"\"Rome\"}""#),
            ] {
                deltas.push(format!(
                    r#""tool_calls":[{{"index":{index},{id}"function":{{{function}}}}}]"#
                ));
            }
        }
        let mut all: Vec<_> = deltas
            .iter()
            .map(|delta| (delta.as_str(), "null"))
            .collect();
        all.push(("", "\"tool_calls\""));
        stream(&all, true)
    }

    /// Returns the answer that is as the API has it.
    fn good(question: Question) -> (u16, &'static str, String) {
        let text = || {
            chat_whole(
                r#""content":"Hi","reasoning_content":"R","reasoning":"R""#,
                "stop",
            )
        };
        let call = |id: &str| {
            let call = r#""tool_calls":[{"id":"ID","type":"function","function":{"name":"get_weather","arguments":"{\"city\":\"Rome\"}"}}]"#;
            chat_whole(
                &format!(r#""content":null,{}"#, call.replace("ID", id)),
                "tool_calls",
            )
        };
        let error = |status| {
            let body = r#"{"error":{"message":"no","type":"invalid_request_error","param":null,"code":null}}"#;
            (status, JSON, body.to_owned())
        };
        match question {
            Question::Models => {
                (200, JSON, r#"{"object":"list","data":[{"id":"m","object":"model","owned_by":"vllm","max_model_len":4096}]}"#.to_owned())
            }
            Question::Stream | Question::Eight | Question::Cut => {
                (200, SSE, stream(&[REASONING, TEXT, STOP], true))
            }
            Question::StreamPlain => (200, SSE, stream(&[TEXT, STOP], false)),
            Question::ToolStream => (200, SSE, call_stream(&["call_a"])),
            Question::ToolNamed => (200, SSE, call_stream(&["call_b"])),
            Question::ToolParallel => (200, SSE, call_stream(&["call_c", "call_d"])),
            Question::ToolWhole => (200, JSON, call("call_e")),
            Question::ToolRequired => (200, JSON, call("call_f")),
            Question::Stop => (200, JSON, chat_whole(r#""content":"1, 2, 3, 4, ""#, "stop")),
            Question::Limit => (200, SSE, stream(&[TEXT, ("", "\"length\"")], true)),
            Question::Schema => (200, JSON, chat_whole(r#""content":"{\"year\": 1969}""#, "stop")),
            Question::Logprobs => {
                let text = text();
                let logprobs = r#""logprobs":{"content":[{"token":"Hi","logprob":-0.5,"bytes":null,"top_logprobs":[]}]},"finish_reason""#;
                (200, JSON, text.replace("\"finish_reason\"", logprobs))
            }
            Question::Choices => {
                let second = r#""choices":[{"index":1,"message":{"role":"assistant","content":"Ho"},"finish_reason":"stop"},"#;
                (200, JSON, text().replace("\"choices\":[", second))
            }
            Question::Embeddings => {
                (200, JSON, r#"{"object":"list","data":[{"index":0,"embedding":[0.5,-1]}],"model":"m"}"#.to_owned())
            }
            Question::BadJson | Question::WrongType => error(400),
            Question::UnknownModel | Question::UnknownRoute => error(404),
            _ => match question.contract() {
                Some(request) => conform::good(request),
                None => (200, JSON, text()),
            },
        }
    }

    fn all_good() -> Answers {
        let answer = |question| {
            let (status, kind, body) = good(question);
            (question, (status, kind, body, Ended::Clean))
        };
        Question::ALL.into_iter().map(answer).collect()
    }

    fn seen(answers: &Answers) -> Seen {
        let mut seen = Seen::default();
        "Qwen3-8B".clone_into(&mut seen.model);
        for (question, (status, kind, body, ended)) in answers {
            let mut headers = HeaderMap::new();
            headers.insert("content-type", HeaderValue::from_static(kind));
            let exchange = Exchange {
                request: question.for_model("m"),
                status: StatusCode::from_u16(*status).unwrap(),
                headers,
                body: body.as_bytes().to_vec(),
                pieces: Vec::new(),
                ended: *ended,
            };
            if *question == Question::Models {
                seen.server.models = models::read(body.as_bytes()).unwrap_or_default();
            }
            for _ in 0..question.requests() {
                seen.add(*question, Ok(Answer::new(&exchange)));
            }
        }
        if let Some(model) = seen.server.models.first_mut() {
            model.id = "Qwen3-8B".to_owned();
        }
        seen.server.identity = Some(named("vllm").unwrap().into());
        seen.idle = Some(Idle::Kept(Duration::from_secs(12)));
        seen.cut = Some(cut(0, 0, 1, 10));
        seen
    }

    fn cut(before: u64, after: u64, seconds: u64, natural: u64) -> Cut {
        let load = |running| EngineLoad {
            running,
            ..EngineLoad::default()
        };
        let [time, natural] = [seconds, natural].map(Duration::from_secs);
        Cut {
            before: load(before),
            after: load(after),
            time,
            natural,
            route: "/metrics",
        }
    }

    fn finding(seen: &Seen, id: &str) -> Finding {
        let check = checks()
            .find(|check| check.id == id)
            .unwrap_or_else(|| panic!("no check {id}"));
        Finding::of(check, seen)
    }

    #[test]
    fn good_answers_are_fine() {
        let seen = seen(&all_good());
        for check in checks() {
            let finding = Finding::of(check, &seen);
            assert_eq!(
                finding.severity(),
                Severity::Fine,
                "{}: {:?}",
                check.id,
                finding.outcome
            );
        }
    }

    /// Replacements in a good answer, each with the check that finds fault.
    const WRONG: &[(&str, Question, &str, &str, Severity)] = &[
        (
            "models-list",
            Question::Models,
            "\"data\"",
            "\"none\"",
            Severity::Warning,
        ),
        (
            "context-length",
            Question::Models,
            ",\"max_model_len\":4096",
            "",
            Severity::Note,
        ),
        (
            "context-size",
            Question::Models,
            "4096",
            "256",
            Severity::Warning,
        ),
        (
            "stream",
            Question::Stream,
            "data: [DONE]",
            "data: {nonsense",
            Severity::Broken,
        ),
        (
            "stream",
            Question::Stream,
            "\"delta\":{}",
            "\"delta\":{}}],\"error\":{\"message\":\"x\"},\"a\":[{\"b\":{}",
            Severity::Broken,
        ),
        (
            "whole",
            Question::Whole,
            "\"message\"",
            "\"text\"",
            Severity::Broken,
        ),
        (
            "finish-missing",
            Question::Stream,
            "\"stop\"",
            "null",
            Severity::Broken,
        ),
        (
            "done-missing",
            Question::Stream,
            "data: [DONE]\n\n",
            "",
            Severity::Warning,
        ),
        (
            "finish-merged",
            Question::Stream,
            "\"delta\":{},\"finish_reason\":\"stop\"",
            "\"delta\":{\"content\":\".\"},\"finish_reason\":\"stop\"",
            Severity::Warning,
        ),
        (
            "finish-merged-at-once",
            Question::Eight,
            "\"delta\":{},\"finish_reason\":\"stop\"",
            "\"delta\":{\"content\":\".\"},\"finish_reason\":\"stop\"",
            Severity::Warning,
        ),
        (
            "finish-repeated",
            Question::Stream,
            "\"content\":\"Hi\"},\"finish_reason\":null",
            "\"content\":\"Hi\"},\"finish_reason\":\"stop\"",
            Severity::Warning,
        ),
        (
            "at-once",
            Question::Eight,
            "\"choices\":[]",
            "\"error\":{\"message\":\"busy\"}",
            Severity::Warning,
        ),
        (
            "role-first",
            Question::Stream,
            "\"role\":\"assistant\"",
            "",
            Severity::Note,
        ),
        (
            "extra-keys",
            Question::Stream,
            "\"index\":0",
            "\"index\":0,\"token_ids\":null",
            Severity::Note,
        ),
        (
            "reasoning-name",
            Question::Stream,
            "\"reasoning_content\":\"R\",",
            "",
            Severity::Warning,
        ),
        (
            "reasoning-parser",
            Question::Whole,
            "\"content\":\"Hi\"",
            "\"content\":\"<think>R</think>Hi\"",
            Severity::Broken,
        ),
        (
            "reasoning-only",
            Question::Whole,
            "\"content\":\"Hi\"",
            "\"content\":null",
            Severity::Broken,
        ),
        (
            "reasoning-only-stream",
            Question::Stream,
            "\"content\":\"Hi\"",
            "",
            Severity::Broken,
        ),
        (
            "usage-stream",
            Question::Stream,
            "\"usage\":{",
            "\"used\":{",
            Severity::Warning,
        ),
        (
            "usage-stream",
            Question::Stream,
            "\"choices\":[],",
            "\"choices\":[{\"index\":0,\"delta\":{}}],",
            Severity::Note,
        ),
        (
            "usage-unasked",
            Question::StreamPlain,
            "data: [DONE]",
            "data: {\"choices\":[]}\n\ndata: [DONE]",
            Severity::Warning,
        ),
        (
            "usage-sum",
            Question::Whole,
            "\"total_tokens\":5",
            "\"total_tokens\":6",
            Severity::Warning,
        ),
        (
            "usage-sum",
            Question::Whole,
            "\"usage\"",
            "\"used\"",
            Severity::Warning,
        ),
        (
            "usage-cached",
            Question::Whole,
            "\"cached_tokens\"",
            "\"cache\"",
            Severity::Note,
        ),
        (
            "usage-reasoning",
            Question::Whole,
            "\"completion_tokens_details\"",
            "\"details\"",
            Severity::Note,
        ),
        (
            "tools-parsed",
            Question::ToolWhole,
            "\"content\":null,\"tool_calls\":[{\"id\"",
            "\"content\":\"<tool_call>get_weather</tool_call>\",\"a\":[{\"id\"",
            Severity::Broken,
        ),
        (
            "tools-ids",
            Question::ToolStream,
            "\"id\":\"call_a\",",
            "",
            Severity::Broken,
        ),
        (
            "tools-ids",
            Question::ToolParallel,
            "call_d",
            "call_c",
            Severity::Broken,
        ),
        (
            "tools-index",
            Question::ToolStream,
            "\"tool_calls\":[{\"index\":0,",
            "\"tool_calls\":[{",
            Severity::Broken,
        ),
        (
            "tools-name-once",
            Question::ToolStream,
            "\"function\":{\"arguments\"",
            "\"function\":{\"name\":\"get_weather\",\"arguments\"",
            Severity::Broken,
        ),
        (
            "tools-arguments",
            Question::ToolStream,
            "Rome\\\"}",
            "Rome\\\"}{}",
            Severity::Broken,
        ),
        (
            "tools-finish",
            Question::ToolStream,
            "\"finish_reason\":\"tool_calls\"",
            "\"finish_reason\":\"stop\"",
            Severity::Warning,
        ),
        (
            "tools-whole",
            Question::ToolWhole,
            "\"content\":null,\"tool_calls\":[{\"id\"",
            "\"content\":\"<tool_call>get_weather</tool_call>\",\"a\":[{\"id\"",
            Severity::Broken,
        ),
        (
            "tools-named",
            Question::ToolNamed,
            "get_weather",
            "weather",
            Severity::Broken,
        ),
        (
            "tools-required",
            Question::ToolRequired,
            "tool_calls",
            "calls",
            Severity::Broken,
        ),
        (
            "tools-two-calls",
            Question::ToolParallel,
            "Rome\\\"}",
            "Rome\\\"}{}",
            Severity::Broken,
        ),
        (
            "stop-string",
            Question::Stop,
            "4, ",
            "4, 5",
            Severity::Broken,
        ),
        (
            "logprobs",
            Question::Logprobs,
            "\"logprobs\"",
            "\"log\"",
            Severity::Warning,
        ),
        (
            "logprobs",
            Question::Logprobs,
            "\"logprob\"",
            "\"log\"",
            Severity::Warning,
        ),
        (
            "two-choices",
            Question::Choices,
            "{\"index\":1,\"message\":{\"role\":\"assistant\",\"content\":\"Ho\"},\"finish_reason\":\"stop\"},",
            "",
            Severity::Broken,
        ),
        (
            "max-completion-tokens",
            Question::Limit,
            "\"completion_tokens\":2",
            "\"completion_tokens\":9",
            Severity::Broken,
        ),
        (
            "json-schema",
            Question::Schema,
            "1969",
            "\\\"1969\\\"",
            Severity::Broken,
        ),
        (
            "json-schema",
            Question::Schema,
            "1969",
            "-5.5",
            Severity::Broken,
        ),
        (
            "error-shape",
            Question::BadJson,
            "\"code\":null",
            "\"code\":400",
            Severity::Warning,
        ),
        (
            "error-shape",
            Question::UnknownRoute,
            "\"error\"",
            "\"detail\"",
            Severity::Warning,
        ),
        (
            "responses",
            Question::ResponsesStream,
            "response.completed",
            "response.done",
            Severity::Warning,
        ),
        (
            "messages",
            Question::MessagesStream,
            "message_stop",
            "message_end",
            Severity::Warning,
        ),
        (
            "completions",
            Question::CompletionsStream,
            "\"text_completion\"",
            "\"text\"",
            Severity::Warning,
        ),
        (
            "embeddings",
            Question::Embeddings,
            "[0.5,-1]",
            "[]",
            Severity::Warning,
        ),
    ];

    #[test]
    fn wrong_answers_are_found_with_the_bytes_that_show_it() {
        for (id, question, from, to, severity) in WRONG {
            let mut answers = all_good();
            let (_, _, body, _) = answers.get_mut(question).unwrap();
            assert!(body.contains(from), "{id}: {body}");
            *body = body.replace(from, to);
            let finding = finding(&seen(&answers), id);
            assert_eq!(finding.severity(), *severity, "{id}: {:?}", finding.outcome);
            let found = finding.found().unwrap();
            assert!(
                !found.evidence.is_empty() && !found.says.is_empty(),
                "{id}: {found:?}"
            );
        }
    }

    /// Statuses, each with the check that finds fault.
    const REFUSED: &[(&str, Question, u16)] = &[
        ("key", Question::Models, 401),
        ("models-list", Question::Models, 404),
        ("stream", Question::Stream, 500),
        ("whole", Question::Whole, 500),
        ("available", Question::Whole, 504),
        ("at-once", Question::Eight, 503),
        ("tools-accepted", Question::ToolStream, 400),
        ("tools-named", Question::ToolNamed, 400),
        ("tools-required", Question::ToolRequired, 400),
        ("system-late", Question::SystemLate, 400),
        ("system-twice", Question::SystemTwice, 500),
        ("role-developer", Question::Developer, 400),
        ("tools-empty", Question::ToolsEmpty, 400),
        ("null-members", Question::Nulls, 422),
        ("service-fields", Question::ServiceFields, 422),
        ("part-input-text", Question::InputText, 400),
        ("stop-string", Question::Stop, 400),
        ("logprobs", Question::Logprobs, 400),
        ("two-choices", Question::Choices, 400),
        ("max-completion-tokens", Question::Limit, 400),
        ("json-schema", Question::Schema, 400),
        ("error-status", Question::WrongType, 500),
        ("unknown-model", Question::UnknownModel, 400),
        ("unknown-model", Question::UnknownModel, 200),
        ("responses", Question::ResponsesStream, 404),
        ("messages", Question::MessagesStream, 404),
        ("completions", Question::CompletionsStream, 404),
    ];

    #[test]
    fn refusals_are_found() {
        for (id, question, status) in REFUSED {
            let mut answers = all_good();
            let body = r#"{"object":"error","message":"requires --tool-call-parser"}"#.to_owned();
            answers.insert(*question, (*status, JSON, body, Ended::Clean));
            let finding = finding(&seen(&answers), id);
            assert!(
                finding.severity() >= Severity::Note,
                "{id}: {:?}",
                finding.outcome
            );
            assert!(
                finding
                    .found()
                    .unwrap()
                    .evidence
                    .contains(&status.to_string()),
                "{id}: {finding:?}"
            );
        }
    }

    #[test]
    fn every_check_has_an_answer_that_is_wrong() {
        // These are judged below, by what no answer shows.
        let others = [
            "keep-alive",
            "disconnect",
            "envelope",
            "tools-pieces",
            "tools-swallowed",
        ];
        let judged: BTreeSet<_> = WRONG
            .iter()
            .map(|row| row.0)
            .chain(REFUSED.iter().map(|row| row.0))
            .chain(others)
            .collect();
        let all: BTreeSet<_> = checks().map(|check| check.id).collect();
        assert_eq!(judged, all);
        assert_eq!(all.len(), checks().count(), "an id is there twice");
    }

    /// Remedies by a rule for requests depend on the engine's version.
    #[test]
    fn samewire_is_said_to_mend_what_a_rule_mends() {
        let mut answers = all_good();
        answers.insert(
            Question::Developer,
            (400, JSON, "{}".to_owned(), Ended::Clean),
        );
        let mut seen = seen(&answers);
        for (version, mends) in [("0.22.0", true), ("0.32.0", false)] {
            let engine = named("vllm").unwrap();
            seen.server.identity = Some(EngineIdentity {
                version: version.parse().ok(),
                ..engine.into()
            });
            let finding = finding(&seen, "role-developer");
            assert_eq!(
                (finding.severity(), finding.mends.is_some()),
                (Severity::Warning, mends),
                "{version}"
            );
        }
        let rules: BTreeSet<_> = ENGINES
            .iter()
            .flat_map(|engine| engine.rules())
            .map(|rule| rule.name)
            .collect();
        for rule in checks().filter_map(|check| check.rule) {
            assert!(rules.contains(rule), "{rule}");
        }
    }

    /// A count of vLLM 0.33.0 with `--tool-call-parser qwen3_coder` before a model that writes calls as Hermes does: 33
    /// tokens, and a text of ten.
    #[test]
    fn calls_that_the_engine_swallows_are_found_by_their_tokens() {
        let whole = |text: &str, tokens: u32| {
            let counted = format!("\"completion_tokens\":{tokens},");
            chat_whole(text, "stop").replace("\"completion_tokens\":2,", &counted)
        };
        let thought =
            r#""content":null,"reasoning":"\nI should call the weather tool for Tokyo.\n""#;
        let thought = |tokens| {
            whole(thought, tokens).replace("\"reasoning_tokens\":1", "\"reasoning_tokens\":10")
        };
        let hello = r#""content":"Hello! How can I help you today?""#;
        for (plain, answer, severity) in [
            (whole(hello, 10), thought(33), Severity::Broken),
            // The tags of reasoning, and the end of the turn.
            (whole(hello, 10), thought(22), Severity::Fine),
            // Reasoning that is counted and shown nowhere.
            (
                whole(hello, 80),
                whole(r#""content":"It is sunny in Tokyo.""#, 70),
                Severity::Fine,
            ),
            (
                whole("\"content\":\"\"", 10),
                thought(33),
                Severity::NotSeen,
            ),
            (
                whole(hello, 10),
                thought(33).replace("\"stop\"", "\"length\""),
                Severity::NotSeen,
            ),
            (
                whole(hello, 10),
                thought(33).replace("\"usage\"", "\"used\""),
                Severity::NotSeen,
            ),
        ] {
            let mut answers = all_good();
            answers.insert(Question::Whole, (200, JSON, plain, Ended::Clean));
            answers.insert(
                Question::ToolWhole,
                (200, JSON, answer.clone(), Ended::Clean),
            );
            answers.insert(
                Question::ToolStream,
                (503, JSON, String::new(), Ended::Clean),
            );
            let finding = finding(&seen(&answers), "tools-swallowed");
            assert_eq!(finding.severity(), severity, "{answer}: {finding:?}");
            let remedy = finding.found().map(|found| &found.remedy);
            assert!(
                remedy.is_none_or(|remedy| remedy.settings.is_empty()),
                "samewire never sees the call"
            );
        }
    }

    /// Answers that are fine, or that tell nothing, make no finding.
    #[test]
    fn what_says_nothing_is_not_judged() {
        let mut answers = all_good();
        for year in ["-5", "-0", "1969.0"] {
            let text = chat_whole(&format!(r#""content":"{{\"year\": {year}}}""#), "stop");
            answers.insert(Question::Schema, (200, JSON, text, Ended::Clean));
            assert_eq!(
                finding(&seen(&answers), "json-schema").severity(),
                Severity::Fine,
                "{year}"
            );
        }
        for (_, _, body, _) in answers.values_mut() {
            *body = body.replace("\"cached_tokens\":1", "\"cached_tokens\":0");
        }
        let told = finding(&seen(&answers), "usage-cached");
        assert_eq!(told.severity(), Severity::NotSeen, "{told:?}");
        assert!(told.outcome.says().contains("0 stands in"), "{told:?}");
        // The engine closes the connection after a refusal.
        answers.insert(Question::Models, (401, JSON, "{}".to_owned(), Ended::Clean));
        let mut refused = seen(&answers);
        refused.idle = Some(Idle::Closed(Duration::from_millis(10)));
        assert_eq!(
            finding(&refused, "keep-alive").severity(),
            Severity::NotSeen
        );
    }

    /// Beside the finding that reasoning is left in the text, nobody says that there is none.
    #[test]
    fn reasoning_in_the_text_is_reasoning() {
        let mut answers = all_good();
        for (status, kind, body, _) in answers.values_mut() {
            if *status == 200 && [SSE, JSON].contains(kind) {
                *body = body.replace(
                    "\"reasoning_content\":\"R\",\"reasoning\":\"R\"",
                    "\"content\":\"<think>\"",
                );
                *body = body.replace("\"content\":\"Hi\",\"content\"", "\"content\"");
            }
        }
        let seen = seen(&answers);
        assert_eq!(
            finding(&seen, "reasoning-parser").severity(),
            Severity::Broken
        );
        for id in [
            "reasoning-name",
            "reasoning-only",
            "reasoning-only-stream",
            "usage-reasoning",
        ] {
            let finding = finding(&seen, id);
            assert_eq!(
                finding.outcome.says(),
                "the reasoning is left in the text",
                "{id}"
            );
        }
    }

    /// A flag that the engine says it runs with is no advice.
    #[test]
    fn flags_that_are_on_are_not_advised() {
        let mut answers = all_good();
        let (_, _, body, _) = answers.get_mut(&Question::Whole).unwrap();
        *body = body.replace("\"content\":\"Hi\"", "\"content\":null");
        for (on, flag) in [
            ("qwen3", None),
            ("deepseek-r1", Some("--reasoning-parser qwen3")),
        ] {
            let mut seen = seen(&answers);
            seen.server.identity = Some(named("sglang").unwrap().into());
            seen.server.parsers = Some(DetectedParsers {
                reasoning: Some(on.to_owned()),
                tools: None,
            });
            let finding = finding(&seen, "reasoning-only");
            assert_eq!(
                finding.found().unwrap().remedy.engine.as_deref(),
                flag,
                "{on}"
            );
        }
    }

    #[test]
    fn connections_that_are_closed_soon_are_found() {
        let mut seen = seen(&all_good());
        for (idle, severity, says) in [
            (
                Some(Idle::Closed(Duration::from_millis(10))),
                Severity::Note,
                "after each answer",
            ),
            (
                Some(Idle::Closed(Duration::from_secs(2))),
                Severity::Warning,
                "2.0 s",
            ),
            (
                Some(Idle::Closed(Duration::from_secs(5))),
                Severity::Note,
                "5.0 s",
            ),
            (
                Some(Idle::Unknown("TLS".to_owned())),
                Severity::NotSeen,
                "TLS",
            ),
            (None, Severity::NotSeen, "not watched"),
        ] {
            seen.idle = idle;
            let finding = finding(&seen, "keep-alive");
            assert_eq!(finding.severity(), severity, "{finding:?}");
            assert!(finding.outcome.says().contains(says), "{finding:?}");
        }
    }

    #[test]
    fn engines_that_work_for_nobody_are_found() {
        let mut seen = seen(&all_good());
        for (cut, severity) in [
            (Some(cut(1, 2, 6, 10)), Severity::Warning),
            (Some(cut(1, 1, 2, 10)), Severity::Fine),
            // The stream would have ended by then anyway.
            (Some(cut(1, 1, 2, 2)), Severity::NotSeen),
            (None, Severity::NotSeen),
        ] {
            seen.cut = cut;
            let finding = finding(&seen, "disconnect");
            assert_eq!(finding.severity(), severity, "{finding:?}");
        }
    }

    #[test]
    fn changes_within_a_stream_and_whole_arguments_are_found() {
        let mut answers = all_good();
        let (_, _, body, _) = answers.get_mut(&Question::Stream).unwrap();
        *body = body.replacen("\"created\":1", "\"created\":2", 1);
        for question in [
            Question::ToolStream,
            Question::ToolNamed,
            Question::ToolParallel,
        ] {
            let (_, _, body, _) = answers.get_mut(&question).unwrap();
            let split = "\\\"city\\\":\"";
            assert!(body.contains(split));
            *body = body
                .replace("{\\\"city\\\":\"", "{\\\"city\\\":\\\"Rome\\\"}\"")
                .replace("\"\\\"Rome\\\"}\"", "\"\"");
        }
        let seen = seen(&answers);
        for id in ["envelope", "tools-pieces"] {
            let finding = finding(&seen, id);
            assert_eq!(finding.severity(), Severity::Note, "{id}: {finding:?}");
        }
        assert_eq!(finding(&seen, "tools-arguments").severity(), Severity::Fine);
    }

    /// A gateway that fails says nothing about the request.
    #[test]
    fn failures_of_a_gateway_are_no_refusals() {
        let mut answers = all_good();
        for question in [
            Question::SystemLate,
            Question::Developer,
            Question::UnknownModel,
        ] {
            answers.insert(
                question,
                (504, "text/html", "<html>".to_owned(), Ended::Clean),
            );
        }
        let seen = seen(&answers);
        for id in ["system-late", "role-developer", "unknown-model"] {
            assert_eq!(finding(&seen, id).severity(), Severity::NotSeen, "{id}");
        }
        assert!(
            finding(&seen, "available")
                .outcome
                .says()
                .contains("3 had status 504")
        );
    }

    /// No request is blamed for an error with which the plain stream ends, too.
    #[test]
    fn streams_that_end_with_an_error_accuse_no_request() {
        let mut answers = all_good();
        for (question, (status, kind, body, _)) in &mut answers {
            if *status == 200 && *kind == SSE && question.contract().is_none() {
                *body = r#"data: {"error":{"message":"gone"}}"#.to_owned() + "\n\n";
            }
        }
        let all = seen(&answers);
        for id in [
            "tools-accepted",
            "tools-named",
            "max-completion-tokens",
            "at-once",
            "usage-stream",
        ] {
            assert_eq!(finding(&all, id).severity(), Severity::NotSeen, "{id}");
        }
        let (_, _, body, _) = answers.get_mut(&Question::Stream).unwrap();
        *body = good(Question::Stream).2;
        let told = finding(&seen(&answers), "tools-accepted");
        assert!(
            told.outcome.says().contains("ends with an error"),
            "{told:?}"
        );
    }

    /// A small model neither reasons nor calls a function, and its answers are cut.
    #[test]
    fn small_models_are_not_accused() {
        for finish in ["stop", "length"] {
            let (text, finish_json) = (
                chat_whole(r#""content":"Blue.""#, finish),
                format!("\"{finish}\""),
            );
            let streamed = stream(
                &[(r#""content":"Blue.""#, "null"), ("", &finish_json)],
                true,
            );
            let mut answers = all_good();
            for (question, answer) in &mut answers {
                let forced = matches!(
                    question,
                    Question::ToolNamed | Question::ToolRequired | Question::Schema
                );
                let kept = matches!(
                    question,
                    Question::Models | Question::Embeddings | Question::Choices
                );
                let kept = kept || matches!(question, Question::Logprobs | Question::StreamPlain);
                if answer.0 != 200
                    || question.contract().is_some()
                    || kept
                    || forced && finish == "stop"
                {
                    continue;
                }
                answer.2 = if answer.1 == SSE {
                    streamed.clone()
                } else {
                    text.clone()
                };
            }
            let seen = seen(&answers);
            for check in checks() {
                let finding = Finding::of(check, &seen);
                assert!(
                    finding.severity() <= Severity::NotSeen,
                    "{finish} {}: {finding:?}",
                    check.id
                );
            }
        }
    }

    #[test]
    fn nothing_is_said_about_what_was_not_asked() {
        let mut seen = Seen::default();
        for check in checks() {
            assert_eq!(
                Finding::of(check, &seen).severity(),
                Severity::NotSeen,
                "{}",
                check.id
            );
        }
        // Only the stream itself is blamed for its silence.
        for question in Question::ALL {
            seen.add(
                question,
                Err(Failure {
                    unreachable: false,
                    why: "no answer within 1 s".to_owned(),
                }),
            );
        }
        for check in checks() {
            let severity = Finding::of(check, &seen).severity();
            let expected = if check.id == "stream" {
                Severity::Broken
            } else {
                Severity::NotSeen
            };
            assert_eq!(severity, expected, "{}", check.id);
        }
    }

    /// Whatever a server sends, each check ends, and its words can be shown.
    #[test]
    fn garbage_is_judged_and_shown() {
        let bodies = [
            "",
            "\u{1b}[2J\u{202e}",
            "data: {\"choices\":[{\"delta\":7}]}\n\n",
            "{\"choices\":{}}",
            "[[[[",
            "null",
        ];
        for body in bodies {
            for (status, ended) in [
                (200, Ended::Clean),
                (200, Ended::Stalled),
                (599, Ended::Reset),
            ] {
                let answers = Question::ALL.into_iter().map(|question| {
                    let kind = if question.for_model("").body.is_empty() {
                        JSON
                    } else {
                        SSE
                    };
                    (question, (status, kind, body.to_owned(), ended))
                });
                let seen = seen(&answers.collect());
                for check in checks() {
                    let finding = Finding::of(check, &seen);
                    let evidence = finding.found().map_or("", |found| found.evidence.as_str());
                    let shown = format!("{evidence}{}", finding.outcome.says());
                    assert!(
                        !shown.chars().any(char::is_control),
                        "{}: {shown:?}",
                        check.id
                    );
                    assert!(shown.len() < 4000, "{}: {shown}", check.id);
                }
            }
        }
    }
}
