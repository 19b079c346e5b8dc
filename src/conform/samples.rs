//! Answers for the tests: good ones for each request, and a wrong text for each row.

use super::requests::SuiteRequest;

const SSE: &str = "text/event-stream; charset=utf-8";
pub(super) const JSON: &str = "application/json";
pub(super) const ERROR: &str =
    r#"{"error":{"message":"no","type":"invalid_request_error","param":null,"code":null}}"#;

const USAGE: &str = r#""usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5,"prompt_tokens_details":{"cached_tokens":1},"completion_tokens_details":{"reasoning_tokens":1}}"#;

/// Returns a chat stream of these deltas, each with its finish reason as JSON; the last chunk has usage.
pub(crate) fn chat_stream(deltas: &[(&str, &str)]) -> String {
    let chunk = |choices: &str, usage: &str| {
        format!(
            "data: {{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\
             \"choices\":[{choices}]{usage}}}\n\n"
        )
    };
    let mut text: String = deltas
        .iter()
        .map(|(delta, finish)| {
            chunk(
                &format!("{{\"index\":0,\"delta\":{{{delta}}},\"finish_reason\":{finish}}}"),
                "",
            )
        })
        .collect();
    text += &chunk("", &format!(",{USAGE}"));
    text + "data: [DONE]\n\n"
}

/// Returns a chat stream without the chunk that has usage.
pub(crate) fn without_usage(stream: &str) -> String {
    let usage = stream.lines().find(|line| line.contains("usage")).unwrap();
    stream.replace(&format!("{usage}\n\n"), "")
}

/// Returns a whole chat answer with these members of its message.
pub(crate) fn chat_whole(message: &str, finish: &str) -> String {
    format!(
        r#"{{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{{"index":0,"message":{{"role":"assistant",{message}}},"finish_reason":"{finish}"}}],{USAGE}}}"#
    )
}

pub(crate) const ROLE: (&str, &str) = (r#""role":"assistant""#, "null");

/// Returns the events, each with its type as name and a sequence number.
fn events(bodies: &[&str]) -> String {
    let event = |(at, body): (usize, &&str)| {
        let (kind, rest) = body.split_once(' ').unwrap_or((body, ""));
        let rest = if rest.is_empty() {
            String::new()
        } else {
            format!(",{rest}")
        };
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
pub(crate) fn good(request: SuiteRequest) -> (u16, &'static str, String) {
    match request {
        SuiteRequest::Models => (
            200,
            JSON,
            r#"{"object":"list","data":[{"id":"m","object":"model"}]}"#.to_owned(),
        ),
        SuiteRequest::ChatStream => {
            let reasoning = (r#""reasoning_content":"R","reasoning":"R""#, "null");
            (
                200,
                SSE,
                chat_stream(&[
                    ROLE,
                    reasoning,
                    (r#""content":"Hi""#, "null"),
                    ("", "\"stop\""),
                ]),
            )
        }
        SuiteRequest::ChatPlain => {
            let text = chat_stream(&[ROLE, (r#""content":"Hi""#, "null"), ("", "\"stop\"")]);
            (200, SSE, without_usage(&text))
        }
        SuiteRequest::ChatWhole => (200, JSON, chat_whole(r#""content":"Hi""#, "stop")),
        SuiteRequest::ToolStream => {
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
            (200, SSE, chat_stream(&all))
        }
        SuiteRequest::ToolWhole => {
            let calls = r#""content":null,"tool_calls":[{"id":"call_a","type":"function","function":{"name":"f","arguments":"{}"}}]"#;
            (200, JSON, chat_whole(calls, "tool_calls"))
        }
        SuiteRequest::CompletionsStream => {
            let text = chat_stream(&[("", "null"), ("", "\"stop\"")]);
            let text = text.replace("chat.completion.chunk", "text_completion");
            (200, SSE, text.replace("\"delta\":{}", "\"text\":\"a\""))
        }
        SuiteRequest::CompletionsWhole => {
            let body = format!(
                r#"{{"id":"cmpl-1","object":"text_completion","choices":[{{"text":"a","finish_reason":"stop"}}],{USAGE}}}"#
            );
            (200, JSON, body)
        }
        SuiteRequest::ResponsesStream
        | SuiteRequest::ResponsesTool
        | SuiteRequest::ResponsesWhole => good_responses(request),
        SuiteRequest::MessagesStream
        | SuiteRequest::MessagesTool
        | SuiteRequest::MessagesWhole
        | SuiteRequest::MessagesToolWhole => good_messages(request),
        SuiteRequest::BadJson | SuiteRequest::WrongType => (400, JSON, ERROR.to_owned()),
        SuiteRequest::UnknownModel | SuiteRequest::UnknownRoute => (404, JSON, ERROR.to_owned()),
    }
}

/// Returns an answer of Responses that passes every row.
fn good_responses(request: SuiteRequest) -> (u16, &'static str, String) {
    match request {
        SuiteRequest::ResponsesStream => {
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
        SuiteRequest::ResponsesTool => {
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
        SuiteRequest::ResponsesWhole => {
            let item =
                r#"{"id":"msg_1","type":"message","content":[{"type":"output_text","text":"Hi"}]}"#;
            let body = response(item);
            (
                200,
                JSON,
                body.strip_prefix("\"response\":").unwrap().to_owned(),
            )
        }
        _ => unreachable!("{request:?} is no request for Responses"),
    }
}

const TOOL_USE: &str = r#"{"type":"tool_use","id":"toolu_a","name":"f","input":{}}"#;

/// Returns an answer of Messages that passes every row.
fn good_messages(request: SuiteRequest) -> (u16, &'static str, String) {
    let start = r#"message_start "message":{"id":"msg_1","role":"assistant","content":[],"usage":{"input_tokens":0}}"#;
    let end = |reason: &str| {
        format!(
            "message_delta \"delta\":{{\"stop_reason\":\"{reason}\"}},\"usage\":{{\"output_tokens\":2}}"
        )
    };
    let whole = |content: &str, reason: &str| {
        format!(
            r#"{{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{content}],"stop_reason":"{reason}","stop_sequence":null,"usage":{{"input_tokens":3,"output_tokens":2}}}}"#
        )
    };
    match request {
        SuiteRequest::MessagesWhole => (
            200,
            JSON,
            whole(r#"{"type":"text","text":"Hi"}"#, "end_turn"),
        ),
        SuiteRequest::MessagesToolWhole => (200, JSON, whole(TOOL_USE, "tool_use")),
        SuiteRequest::MessagesTool => {
            let all = [
                start,
                &format!("content_block_start \"index\":0,\"content_block\":{TOOL_USE}"),
                r#"content_block_delta "index":0,"delta":{"type":"input_json_delta","partial_json":"{\"a\":"}"#,
                r#"content_block_delta "index":0,"delta":{"type":"input_json_delta","partial_json":"1}"}"#,
                r#"content_block_stop "index":0"#,
                &end("tool_use"),
                "message_stop",
            ];
            (200, SSE, events(&all))
        }
        _ => {
            let all = [
                start,
                r#"content_block_start "index":0,"content_block":{"type":"text","text":""}"#,
                r#"content_block_delta "index":0,"delta":{"type":"text_delta","text":"Hi"}"#,
                r#"content_block_stop "index":0"#,
                &end("end_turn"),
                "message_stop",
            ];
            (200, SSE, events(&all))
        }
    }
}

/// Wrong text for each row but those of status, end and content type: what is replaced, and by what.
pub(super) const WRONG: &[(&str, &str, &str)] = &[
    (
        "models-list",
        "\"object\":\"model\"",
        "\"object\":\"thing\"",
    ),
    ("chat-stream-framing", "data: [DONE]", "data: nonsense"),
    ("chat-stream-done", "data: [DONE]", ": bye"),
    ("chat-stream-object", ".chunk", ""),
    ("chat-stream-id", "\"id\":\"chatcmpl-1\"", "\"id\":\"\""),
    (
        "chat-stream-created",
        "\"created\":1,",
        "\"created\":1795233939000,",
    ),
    ("chat-stream-model", "\"model\":\"m\",", ""),
    (
        "chat-stream-role-first",
        "\"content\":\"Hi\"",
        "\"role\":\"assistant\",\"content\":\"Hi\"",
    ),
    (
        "chat-stream-choices",
        "\"finish_reason\":null",
        "\"matched_stop\":null",
    ),
    ("chat-stream-one-finish", "\"stop\"", "null"),
    // Some engines send the last token with the finish.
    (
        "chat-stream-finish-apart",
        "\"delta\":{},\"finish_reason\":\"stop\"",
        "\"delta\":{\"content\":\"!\"},\"finish_reason\":\"stop\"",
    ),
    // vLLM has the name `reasoning` alone, SGLang the other.
    ("chat-stream-reasoning", "\"reasoning_content\":\"R\",", ""),
    (
        "chat-stream-usage-last",
        "\"choices\":[],\"usage\"",
        "\"choices\":[],\"usages\"",
    ),
    (
        "chat-stream-usage-sum",
        "\"total_tokens\":5",
        "\"total_tokens\":6",
    ),
    (
        "chat-plain-no-usage",
        "\"finish_reason\":\"stop\"}]",
        "\"finish_reason\":\"stop\"}],\"usage\":{}",
    ),
    (
        "chat-plain-done",
        "data: [DONE]",
        "data: [DONE]\n\ndata: [DONE]",
    ),
    ("chat-whole-envelope", "\"created\":1,", ""),
    (
        "chat-whole-message",
        "\"content\":\"Hi\"",
        "\"text\":\"Hi\"",
    ),
    ("chat-whole-finish", "\"stop\"", "\"eos\""),
    (
        "chat-whole-usage",
        "\"total_tokens\":5",
        "\"total_tokens\":null",
    ),
    // SGLang repeats id, type and name as null.
    (
        "tools-stream-header-once",
        "{\"index\":0,\"function\":{\"arguments\":\"1}\"",
        "{\"index\":0,\"id\":null,\"function\":{\"arguments\":\"1}\"",
    ),
    ("tools-stream-index", "\"index\":1,", "\"index\":2,"),
    ("tools-stream-ids", "call_b", "call_a"),
    ("tools-stream-arguments", "1}\"", "1\""),
    (
        "tools-stream-finish",
        "\"finish_reason\":\"tool_calls\"",
        "\"finish_reason\":\"stop\"",
    ),
    (
        "tools-stream-one-finish",
        "\"finish_reason\":\"tool_calls\"",
        "\"finish_reason\":\"tools\"",
    ),
    (
        "tools-stream-role-first",
        "\"role\":\"assistant\"",
        "\"content\":\"\"",
    ),
    (
        "tools-whole-calls",
        "\"arguments\":\"{}\"",
        "\"arguments\":{}",
    ),
    (
        "tools-whole-finish",
        "\"finish_reason\":\"tool_calls\"",
        "\"finish_reason\":\"stop\"",
    ),
    ("completions-stream-framing", "data: [DONE]", "data: 1"),
    ("completions-stream-done", "data: [DONE]", ""),
    (
        "completions-stream-object",
        "text_completion",
        "chat.completion.chunk",
    ),
    ("completions-stream-id", "chatcmpl-1", ""),
    ("completions-stream-created", "\"created\":1,", ""),
    ("completions-stream-text", "\"text\":\"a\"", "\"text\":null"),
    (
        "completions-stream-one-finish",
        "\"finish_reason\":null",
        "\"finish_reason\":\"stop\"",
    ),
    ("completions-stream-usage-last", "\"choices\":[],", ""),
    ("completions-stream-usage-sum", "\"prompt_tokens\":3,", ""),
    ("completions-whole-object", "\"text\":\"a\",", ""),
    (
        "completions-whole-usage",
        "\"total_tokens\":5",
        "\"total_tokens\":4",
    ),
    (
        "responses-stream-framing",
        "event: response.completed",
        "data: [DONE]\n\nevent: response.completed",
    ),
    ("responses-stream-names", "event: response.created\n", ""),
    (
        "responses-stream-sequence",
        "\"sequence_number\":4",
        "\"sequence_number\":3",
    ),
    (
        "responses-stream-start",
        "response.in_progress",
        "response.queued",
    ),
    (
        "responses-stream-id",
        "response.completed\",\"sequence_number\":9,\"response\":{\"id\":\"resp_1\"",
        "response.completed\",\"sequence_number\":9,\"response\":{\"id\":\"resp_2\"",
    ),
    (
        "responses-stream-items",
        "response.output_item.added",
        "response.output_item.new",
    ),
    (
        "responses-stream-item-ids",
        "\"item_id\":\"msg_1\",\"output_index\":0,\"content_index\":0,\"delta\":\"i\"",
        "\"item_id\":\"msg_2\",\"output_index\":0,\"content_index\":0,\"delta\":\"i\"",
    ),
    (
        "responses-stream-parts",
        "response.content_part.added",
        "response.content_part.new",
    ),
    (
        "responses-stream-deltas",
        "\"delta\":\"i\"",
        "\"delta\":\"o\"",
    ),
    (
        "responses-stream-terminal",
        "response.completed",
        "response.done",
    ),
    (
        "responses-stream-fold",
        "\"output\":[{\"id\":\"msg_1\"",
        "\"output\":[{\"id\":\"msg_9\"",
    ),
    (
        "responses-stream-usage",
        "\"total_tokens\":5",
        "\"total_tokens\":0",
    ),
    (
        "responses-tool-sequence",
        "\"sequence_number\":1,",
        "\"sequence_number\":0,",
    ),
    (
        "responses-tool-items",
        "response.output_item.added",
        "response.output_item.new",
    ),
    (
        "responses-tool-deltas",
        "\"delta\":\"{}\"",
        "\"delta\":\"{\"",
    ),
    ("responses-tool-call", "\"call_id\":\"call_a\",", ""),
    (
        "responses-tool-terminal",
        "response.completed",
        "response.done",
    ),
    (
        "responses-tool-fold",
        "\"output\":[{\"id\":\"fc_1\"",
        "\"output\":[{\"id\":\"fc_9\"",
    ),
    ("responses-whole-object", "\"created_at\":1,", ""),
    ("responses-whole-items", "\"id\":\"msg_1\",", ""),
    ("responses-whole-usage", "\"usage\"", "\"used\""),
    (
        "messages-stream-framing",
        "event: message_stop",
        "data: [DONE]\n\nevent: message_stop",
    ),
    ("messages-stream-names", "event: message_stop\n", ""),
    ("messages-stream-start", "\"content\":[],", ""),
    (
        "messages-stream-blocks",
        "content_block_stop",
        "content_block_end",
    ),
    ("messages-stream-stop-reason", "\"end_turn\"", "null"),
    ("messages-stream-stop", "message_stop", "message_end"),
    (
        "messages-tool-blocks",
        "content_block_stop",
        "content_block_end",
    ),
    (
        "messages-tool-calls",
        "\"partial_json\":\"1}\"",
        "\"partial_json\":\"1\"",
    ),
    (
        "messages-tool-stop-reason",
        "\"stop_reason\":\"tool_use\"",
        "\"stop_reason\":\"end_turn\"",
    ),
    ("messages-whole-object", "\"stop_sequence\":null,", ""),
    ("messages-whole-content", "\"text\":\"Hi\"", "\"text\":null"),
    ("messages-whole-stop-reason", "end_turn", "stop"),
    (
        "messages-whole-usage",
        "\"output_tokens\":2",
        "\"output_tokens\":null",
    ),
    (
        "messages-tool-whole-calls",
        "\"input\":{}",
        "\"input\":\"{}\"",
    ),
    (
        "messages-tool-whole-stop-reason",
        "\"stop_reason\":\"tool_use\"",
        "\"stop_reason\":\"end_turn\"",
    ),
    ("error-bad-json-shape", "\"param\":null,", ""),
    // vLLM has the status as a number in `code`.
    ("error-unknown-model-shape", "\"code\":null", "\"code\":404"),
    ("error-wrong-type-shape", "\"message\":\"no\",", ""),
    (
        "error-unknown-route-shape",
        ERROR,
        "{\"detail\":\"Not Found\"}",
    ),
];
