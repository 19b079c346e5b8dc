//! Run of the suite: the requests one after another, and the verdict of each row.

use super::answer::Answer;
use super::ask::{Ask, Model};
use super::group::Group;
use super::row::Row;
use super::verdict::Verdict;
use super::{chat, completions, errors, messages, responses};
use crate::exchange::{Exchange, Failure, Sender};

/// Row with its verdict.
#[derive(Clone, Debug)]
pub struct Verified {
    /// Row that was judged.
    pub row: Row,
    /// Verdict of the row.
    pub verdict: Verdict,
}

/// Results of a run.
#[derive(Debug)]
pub struct Report {
    /// Root of the API that was asked.
    pub url: String,
    /// Model that was asked.
    pub model: String,
    /// Rows with their verdicts, in the order of the groups.
    pub rows: Vec<Verified>,
    /// Exchanges, each with the request that it belongs to.
    pub exchanges: Vec<(Ask, Exchange)>,
}

impl Report {
    /// Returns the number of rows with a verdict's word.
    pub fn count(&self, word: &str) -> usize {
        self.rows.iter().filter(|row| row.verdict.word() == word).count()
    }
}

/// Returns all rows in the order of the groups.
pub fn catalogue() -> impl Iterator<Item = &'static Row> {
    let all = [chat::ROWS, completions::ROWS, responses::ROWS, messages::ROWS, errors::ROWS];
    all.into_iter().flatten()
}

/// Returns the requests of some groups; of all groups if none is given. The list of models is among them if no model
/// is named.
pub fn asks(only: &[Group], model: Option<&str>) -> Vec<Ask> {
    let wanted =
        |ask: &Ask| only.is_empty() || only.contains(&ask.group()) || *ask == Ask::Models && model.is_none();
    Ask::ALL.into_iter().filter(wanted).collect()
}

/// Returns the most tokens that a server may generate for some requests.
pub fn tokens(asks: &[Ask]) -> u32 {
    asks.iter().map(|ask| ask.tokens()).sum()
}

/// Sends the requests and judges the answers. Without a model, the first that the server lists is asked.
///
/// # Errors
/// Fails if no connection to the server can be made, or if no model is named and none is listed.
pub async fn run(
    sender: &Sender,
    asks: &[Ask],
    model: Option<&str>,
    mut progress: impl FnMut(Ask),
) -> Result<Report, Failure> {
    let mut model = model.map(str::to_owned);
    let mut report = Report {
        url: sender.target().base().to_owned(),
        model: String::new(),
        rows: Vec::new(),
        exchanges: Vec::new(),
    };
    let mut refused: Option<Failure> = None;
    for ask in asks.iter().copied() {
        progress(ask);
        // Without a list of models, a server of one model often takes any name.
        let name = model.as_deref().unwrap_or("default").to_owned();
        let outcome = match &refused {
            Some(failure) => Err(failure.clone()),
            None => sender.send(ask.request(Model(&name))).await,
        };
        match outcome {
            Ok(exchange) => {
                let answer = Answer::new(&exchange);
                if ask == Ask::Models && model.is_none() {
                    model = Some(answer.whole.text("/data/0/id").to_owned()).filter(|name| !name.is_empty());
                }
                report.rows.extend(judge(ask, &answer));
                report.exchanges.push((ask, exchange));
            }
            Err(failure) if failure.unreachable && report.rows.is_empty() => return Err(failure),
            Err(failure) => {
                report.rows.extend(unanswered(ask, &failure));
                if failure.unreachable {
                    refused = Some(failure);
                }
            }
        }
    }
    report.model = model.unwrap_or_else(|| "default".to_owned());
    Ok(report)
}

/// Returns the rows of a request.
fn of(ask: Ask) -> impl Iterator<Item = &'static Row> {
    catalogue().filter(move |row| row.ask == ask)
}

/// Returns the rows of a request that got no answer: the first fails, and the others cannot be judged.
fn unanswered(ask: Ask, failure: &Failure) -> impl Iterator<Item = Verified> {
    let failed = Verdict::fail(&failure.why);
    of(ask).enumerate().map(move |(at, row)| {
        let verdict =
            if at == 0 { failed.clone() } else { Verdict::Skipped("there was no answer".to_owned()) };
        Verified { row: *row, verdict }
    })
}

/// Judges an answer by the rows of its request.
pub(crate) fn judge(ask: Ask, answer: &Answer) -> Vec<Verified> {
    let absent = ask.optional()
        && matches!(answer.status, 404 | 405 | 501)
        && answer.whole.text("/error/code") != "model_not_found"
        && answer.whole.text("/error/param") != "model";
    let obstacle = match answer.status {
        200 if ask.streams() && answer.frames.is_empty() => Some("the answer has no events".to_owned()),
        200 if !ask.streams() && !answer.whole.is_object() => Some("the answer is no JSON object".to_owned()),
        200 => None,
        status => Some(format!("the answer has status {status}")),
    };
    let verified = |row: &Row| {
        let verdict = match &obstacle {
            _ if absent => Verdict::NotOffered,
            // Otherwise a body of another form would leave nothing but skipped rows.
            Some(why) if answer.status == 200 && row.id.ends_with("-end") => {
                Verdict::fail(&format!("{why}: {}", answer.beginning()))
            }
            Some(why) if !row.always && !is_judged(row, answer) => Verdict::Skipped(why.clone()),
            _ => (row.judge)(answer),
        };
        Verified { row: *row, verdict }
    };
    of(ask).map(verified).collect()
}

/// Returns true if a row about the form of a body judges a successful answer that has another form.
fn is_judged(row: &Row, answer: &Answer) -> bool {
    let forms = match row.ask.streams() {
        true => ["-content-type", "-framing"],
        false => ["-object", "-list"],
    };
    answer.status == 200 && forms.iter().any(|form| row.id.ends_with(form))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::exchange::{Ended, Request};
    use bytes::Bytes;
    use http::{HeaderMap, HeaderValue, Method, StatusCode};
    use std::collections::BTreeSet;
    use std::time::Duration;

    fn answer(ask: Ask, status: u16, kind: &'static str, body: &str, ended: Ended) -> Answer {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_static(kind));
        let request = ask.request(Model("m"));
        let request = Request { method: Method::POST, ..request };
        let pieces = vec![(Duration::ZERO, Bytes::copy_from_slice(body.as_bytes()))];
        let status = StatusCode::from_u16(status).unwrap();
        Answer::new(&Exchange { request, status, headers, head: Duration::ZERO, pieces, ended })
    }

    const SSE: &str = "text/event-stream; charset=utf-8";
    const JSON: &str = "application/json";
    const ERROR: &str =
        r#"{"error":{"message":"no","type":"invalid_request_error","param":null,"code":null}}"#;

    /// Returns a chat stream of these deltas, each with its finish reason as JSON.
    fn chat(deltas: &[(&str, &str)]) -> String {
        let chunk = |choices: &str, usage: &str| {
            format!(
                "data: {{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\
                 \"choices\":[{choices}]{usage}}}\n\n"
            )
        };
        let mut text: String = deltas
            .iter()
            .map(|(delta, finish)| {
                chunk(&format!("{{\"index\":0,\"delta\":{{{delta}}},\"finish_reason\":{finish}}}"), "")
            })
            .collect();
        text += &chunk("", r#","usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}"#);
        text + "data: [DONE]\n\n"
    }

    const ROLE: (&str, &str) = (r#""role":"assistant""#, "null");

    /// Returns the events, each with its type as name and a sequence number.
    fn events(bodies: &[&str]) -> String {
        let event = |(at, body): (usize, &&str)| {
            let (kind, rest) = body.split_once(' ').unwrap_or((body, ""));
            let rest = if rest.is_empty() { String::new() } else { format!(",{rest}") };
            format!("event: {kind}\ndata: {{\"type\":\"{kind}\",\"sequence_number\":{at}{rest}}}\n\n")
        };
        bodies.iter().enumerate().map(event).collect()
    }

    fn response(output: &str) -> String {
        format!(
            r#""response":{{"id":"resp_1","object":"response","created_at":1,"model":"m","status":"completed","output":[{output}],"usage":{{"input_tokens":3,"output_tokens":2,"total_tokens":5}}}}"#
        )
    }

    /// Returns an answer that passes every row of the request: status, content type, body.
    pub(crate) fn good(ask: Ask) -> (u16, &'static str, String) {
        let usage = r#""usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}"#;
        let whole = |message: &str, finish: &str| {
            format!(
                r#"{{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{{"index":0,"message":{{"role":"assistant",{message}}},"finish_reason":"{finish}"}}],{usage}}}"#
            )
        };
        match ask {
            Ask::Models => {
                (200, JSON, r#"{"object":"list","data":[{"id":"m","object":"model"}]}"#.to_owned())
            }
            Ask::ChatStream => {
                let reasoning = (r#""reasoning_content":"R","reasoning":"R""#, "null");
                (200, SSE, chat(&[ROLE, reasoning, (r#""content":"Hi""#, "null"), ("", "\"stop\"")]))
            }
            Ask::ChatPlain => {
                let text = chat(&[ROLE, (r#""content":"Hi""#, "null"), ("", "\"stop\"")]);
                let usage = text.lines().find(|line| line.contains("usage")).unwrap();
                (200, SSE, text.replace(&format!("{usage}\n\n"), ""))
            }
            Ask::ChatWhole => (200, JSON, whole(r#""content":"Hi""#, "stop")),
            Ask::ToolStream => {
                let header = |index, id: &str| {
                    format!(
                        r#""tool_calls":[{{"index":{index},"id":"{id}","type":"function","function":{{"name":"f","arguments":""}}}}]"#
                    )
                };
                let piece = |index, text: &str| {
                    format!(r#""tool_calls":[{{"index":{index},"function":{{"arguments":"{text}"}}}}]"#)
                };
                let deltas = [
                    header(0, "call_a"),
                    piece(0, "{\\\"a\\\":"),
                    piece(0, "1}"),
                    header(1, "call_b"),
                    piece(1, "{}"),
                ];
                let mut all = vec![ROLE];
                all.extend(deltas.iter().map(|delta| (delta.as_str(), "null")));
                all.push(("", "\"tool_calls\""));
                (200, SSE, chat(&all))
            }
            Ask::ToolWhole => {
                let calls = r#""content":null,"tool_calls":[{"id":"call_a","type":"function","function":{"name":"f","arguments":"{}"}}]"#;
                (200, JSON, whole(calls, "tool_calls"))
            }
            Ask::CompletionsStream => {
                let text = chat(&[("", "null"), ("", "\"stop\"")]);
                let text = text.replace("chat.completion.chunk", "text_completion");
                (200, SSE, text.replace("\"delta\":{}", "\"text\":\"a\""))
            }
            Ask::CompletionsWhole => {
                let body = format!(
                    r#"{{"id":"cmpl-1","object":"text_completion","choices":[{{"text":"a","finish_reason":"stop"}}],{usage}}}"#
                );
                (200, JSON, body)
            }
            Ask::ResponsesStream | Ask::ResponsesTool | Ask::ResponsesWhole | Ask::MessagesStream => {
                good_events(ask)
            }
            Ask::BadJson | Ask::WrongType => (400, JSON, ERROR.to_owned()),
            Ask::UnknownModel | Ask::UnknownRoute => (404, JSON, ERROR.to_owned()),
        }
    }

    /// Returns an answer of Responses or Messages that passes every row.
    fn good_events(ask: Ask) -> (u16, &'static str, String) {
        match ask {
            Ask::ResponsesStream => {
                let part = r#""item_id":"msg_1","output_index":0,"content_index":0"#;
                let item =
                    r#"{"id":"msg_1","type":"message","content":[{"type":"output_text","text":"Hi"}]}"#;
                let all = [
                    format!("response.created {}", response("")),
                    format!("response.in_progress {}", response("")),
                    r#"response.output_item.added "output_index":0,"item":{"id":"msg_1","type":"message"}"#
                        .to_owned(),
                    format!("response.content_part.added {part}"),
                    format!("response.output_text.delta {part},\"delta\":\"H\""),
                    format!("response.output_text.delta {part},\"delta\":\"i\""),
                    format!("response.output_text.done {part},\"text\":\"Hi\""),
                    format!("response.content_part.done {part}"),
                    format!("response.output_item.done \"output_index\":0,\"item\":{item}"),
                    format!("response.completed {}", response(item)),
                ];
                (200, SSE, events(&all.each_ref().map(String::as_str)))
            }
            Ask::ResponsesTool => {
                let item = r#"{"id":"fc_1","type":"function_call","status":"completed","call_id":"call_a","name":"f","arguments":"{}"}"#;
                let part = r#""item_id":"fc_1","output_index":0"#;
                let all = [
                    format!("response.created {}", response("")),
                    format!("response.in_progress {}", response("")),
                    r#"response.output_item.added "output_index":0,"item":{"id":"fc_1","type":"function_call"}"#
                        .to_owned(),
                    format!("response.function_call_arguments.delta {part},\"delta\":\"{{}}\""),
                    format!("response.function_call_arguments.done {part},\"arguments\":\"{{}}\""),
                    format!("response.output_item.done \"output_index\":0,\"item\":{item}"),
                    format!("response.completed {}", response(item)),
                ];
                (200, SSE, events(&all.each_ref().map(String::as_str)))
            }
            Ask::ResponsesWhole => {
                let item =
                    r#"{"id":"msg_1","type":"message","content":[{"type":"output_text","text":"Hi"}]}"#;
                let body = response(item);
                (200, JSON, body.strip_prefix("\"response\":").unwrap().to_owned())
            }
            _ => {
                let start = r#"message_start "message":{"id":"msg_1","role":"assistant","content":[],"usage":{"input_tokens":0}}"#;
                let stop = r#"message_delta "delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}"#;
                let all = [
                    start,
                    r#"content_block_start "index":0,"content_block":{"type":"text","text":""}"#,
                    r#"content_block_delta "index":0,"delta":{"type":"text_delta","text":"Hi"}"#,
                    r#"content_block_stop "index":0"#,
                    stop,
                    "message_stop",
                ];
                (200, SSE, events(&all))
            }
        }
    }

    #[test]
    fn good_answers_pass_every_row() {
        for ask in Ask::ALL {
            let (status, kind, body) = good(ask);
            let rows = judge(ask, &answer(ask, status, kind, &body, Ended::Clean));
            assert!(!rows.is_empty(), "{ask:?}");
            for row in rows {
                assert_eq!(row.verdict, Verdict::Pass, "{}: {body}", row.row.id);
            }
        }
    }

    /// Wrong text for each row but those of status, end and content type: what is replaced, and by what.
    const WRONG: &[(&str, &str, &str)] = &[
        ("models-list", "\"object\":\"model\"", "\"object\":\"thing\""),
        ("chat-stream-framing", "data: [DONE]", "data: nonsense"),
        ("chat-stream-done", "data: [DONE]", ": bye"),
        ("chat-stream-object", ".chunk", ""),
        ("chat-stream-id", "\"id\":\"chatcmpl-1\"", "\"id\":\"\""),
        ("chat-stream-created", "\"created\":1,", "\"created\":1795233939000,"),
        ("chat-stream-model", "\"model\":\"m\",", ""),
        ("chat-stream-role-first", "\"content\":\"Hi\"", "\"role\":\"assistant\",\"content\":\"Hi\""),
        ("chat-stream-choices", "\"finish_reason\":null", "\"matched_stop\":null"),
        ("chat-stream-one-finish", "\"stop\"", "null"),
        // Some engines send the last token with the finish.
        (
            "chat-stream-finish-apart",
            "\"delta\":{},\"finish_reason\":\"stop\"",
            "\"delta\":{\"content\":\"!\"},\"finish_reason\":\"stop\"",
        ),
        // vLLM has the name `reasoning` alone, SGLang the other.
        ("chat-stream-reasoning", "\"reasoning_content\":\"R\",", ""),
        ("chat-stream-usage-last", "\"choices\":[],\"usage\"", "\"choices\":[],\"usages\""),
        ("chat-stream-usage-sum", "\"total_tokens\":5", "\"total_tokens\":6"),
        ("chat-plain-no-usage", "\"finish_reason\":\"stop\"}]", "\"finish_reason\":\"stop\"}],\"usage\":{}"),
        ("chat-plain-done", "data: [DONE]", "data: [DONE]\n\ndata: [DONE]"),
        ("chat-whole-envelope", "\"created\":1,", ""),
        ("chat-whole-message", "\"content\":\"Hi\"", "\"text\":\"Hi\""),
        ("chat-whole-finish", "\"stop\"", "\"eos\""),
        ("chat-whole-usage", "\"total_tokens\":5", "\"total_tokens\":null"),
        // SGLang repeats id, type and name as null.
        (
            "tools-stream-header-once",
            "{\"index\":0,\"function\":{\"arguments\":\"1}\"",
            "{\"index\":0,\"id\":null,\"function\":{\"arguments\":\"1}\"",
        ),
        ("tools-stream-index", "\"index\":1,", "\"index\":2,"),
        ("tools-stream-ids", "call_b", "call_a"),
        ("tools-stream-arguments", "1}\"", "1\""),
        ("tools-stream-finish", "\"finish_reason\":\"tool_calls\"", "\"finish_reason\":\"stop\""),
        ("tools-stream-one-finish", "\"finish_reason\":\"tool_calls\"", "\"finish_reason\":\"tools\""),
        ("tools-stream-role-first", "\"role\":\"assistant\"", "\"content\":\"\""),
        ("tools-whole-calls", "\"arguments\":\"{}\"", "\"arguments\":{}"),
        ("tools-whole-finish", "\"finish_reason\":\"tool_calls\"", "\"finish_reason\":\"stop\""),
        ("completions-stream-framing", "data: [DONE]", "data: 1"),
        ("completions-stream-done", "data: [DONE]", ""),
        ("completions-stream-object", "text_completion", "chat.completion.chunk"),
        ("completions-stream-id", "chatcmpl-1", ""),
        ("completions-stream-created", "\"created\":1,", ""),
        ("completions-stream-text", "\"text\":\"a\"", "\"text\":null"),
        ("completions-stream-one-finish", "\"finish_reason\":null", "\"finish_reason\":\"stop\""),
        ("completions-stream-usage-last", "\"choices\":[],", ""),
        ("completions-stream-usage-sum", "\"prompt_tokens\":3,", ""),
        ("completions-whole-object", "\"text\":\"a\",", ""),
        ("completions-whole-usage", "\"total_tokens\":5", "\"total_tokens\":4"),
        (
            "responses-stream-framing",
            "event: response.completed",
            "data: [DONE]\n\nevent: response.completed",
        ),
        ("responses-stream-names", "event: response.created\n", ""),
        ("responses-stream-sequence", "\"sequence_number\":4", "\"sequence_number\":3"),
        ("responses-stream-start", "response.in_progress", "response.queued"),
        (
            "responses-stream-id",
            "response.completed\",\"sequence_number\":9,\"response\":{\"id\":\"resp_1\"",
            "response.completed\",\"sequence_number\":9,\"response\":{\"id\":\"resp_2\"",
        ),
        ("responses-stream-items", "response.output_item.added", "response.output_item.new"),
        (
            "responses-stream-item-ids",
            "\"item_id\":\"msg_1\",\"output_index\":0,\"content_index\":0,\"delta\":\"i\"",
            "\"item_id\":\"msg_2\",\"output_index\":0,\"content_index\":0,\"delta\":\"i\"",
        ),
        ("responses-stream-parts", "response.content_part.added", "response.content_part.new"),
        ("responses-stream-deltas", "\"delta\":\"i\"", "\"delta\":\"o\""),
        ("responses-stream-terminal", "response.completed", "response.done"),
        ("responses-stream-fold", "\"output\":[{\"id\":\"msg_1\"", "\"output\":[{\"id\":\"msg_9\""),
        ("responses-stream-usage", "\"total_tokens\":5", "\"total_tokens\":0"),
        ("responses-tool-sequence", "\"sequence_number\":1,", "\"sequence_number\":0,"),
        ("responses-tool-items", "response.output_item.added", "response.output_item.new"),
        ("responses-tool-deltas", "\"delta\":\"{}\"", "\"delta\":\"{\""),
        ("responses-tool-call", "\"call_id\":\"call_a\",", ""),
        ("responses-tool-terminal", "response.completed", "response.done"),
        ("responses-tool-fold", "\"output\":[{\"id\":\"fc_1\"", "\"output\":[{\"id\":\"fc_9\""),
        ("responses-whole-object", "\"created_at\":1,", ""),
        ("responses-whole-items", "\"id\":\"msg_1\",", ""),
        ("responses-whole-usage", "\"usage\"", "\"used\""),
        ("messages-stream-framing", "event: message_stop", "data: [DONE]\n\nevent: message_stop"),
        ("messages-stream-names", "event: message_stop\n", ""),
        ("messages-stream-start", "\"content\":[],", ""),
        ("messages-stream-blocks", "content_block_stop", "content_block_end"),
        ("messages-stream-stop-reason", "\"end_turn\"", "null"),
        ("messages-stream-stop", "message_stop", "message_end"),
        ("error-bad-json-shape", "\"param\":null,", ""),
        // vLLM has the status as a number in `code`.
        ("error-unknown-model-shape", "\"code\":null", "\"code\":404"),
        ("error-wrong-type-shape", "\"message\":\"no\",", ""),
        ("error-unknown-route-shape", ERROR, "{\"detail\":\"Not Found\"}"),
    ];

    #[test]
    fn wrong_answers_fail_their_row() {
        for (id, from, to) in WRONG {
            let row = catalogue().find(|row| row.id == *id).unwrap_or_else(|| panic!("no row {id}"));
            let (status, kind, body) = good(row.ask);
            assert!(body.contains(from), "{id}: {body}");
            let body = body.replace(from, to);
            let judged = judge(row.ask, &answer(row.ask, status, kind, &body, Ended::Clean));
            let verdict = judged.into_iter().find(|judged| judged.row.id == *id).unwrap().verdict;
            assert!(matches!(verdict, Verdict::Fail(_)), "{id}: {verdict:?}: {body}");
        }
    }

    #[test]
    fn wrong_statuses_ends_and_types_fail_their_row() {
        let mut judged = BTreeSet::new();
        for row in catalogue() {
            let (status, kind, body) = good(row.ask);
            let (status, kind, ended) = match row.id {
                id if id.ends_with("-status") => (500, kind, Ended::Clean),
                id if id.ends_with("-end") => (status, kind, Ended::Stalled),
                id if id.ends_with("-content-type") => (status, "text/plain", Ended::Clean),
                _ => continue,
            };
            let rows = judge(row.ask, &answer(row.ask, status, kind, &body, ended));
            let verdict = rows.into_iter().find(|judged| judged.row.id == row.id).unwrap().verdict;
            assert!(matches!(verdict, Verdict::Fail(_)), "{}: {verdict:?}", row.id);
            judged.insert(row.id);
        }
        let all: BTreeSet<_> = catalogue().map(|row| row.id).collect();
        assert_eq!(all.len(), catalogue().count(), "an id is there twice");
        judged.extend(WRONG.iter().map(|(id, ..)| *id));
        assert_eq!(judged, all, "each row has a wrong answer");
    }

    #[test]
    fn bodies_of_another_form_fail() {
        for ask in Ask::ALL {
            let (status, kind, _) = good(ask);
            for body in ["", "nonsense"] {
                let judged = judge(ask, &answer(ask, status, kind, body, Ended::Clean));
                assert!(
                    judged.into_iter().any(|row| matches!(row.verdict, Verdict::Fail(_))),
                    "{ask:?} {body:?}"
                );
            }
        }
    }

    #[test]
    fn missing_routes_are_not_offered_and_broken_ones_fail() {
        for (status, word) in [(404, "not offered"), (500, "fail")] {
            let answer = answer(Ask::ResponsesWhole, status, JSON, ERROR, Ended::Clean);
            assert_eq!(judge(Ask::ResponsesWhole, &answer).first().unwrap().verdict.word(), word);
        }
        let answer = answer(Ask::ChatWhole, 404, JSON, ERROR, Ended::Clean);
        assert_eq!(judge(Ask::ChatWhole, &answer).first().unwrap().verdict.word(), "fail");
    }
}
