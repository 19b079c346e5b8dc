//! Requests that an engine refuses in their original form and accepts in another (wire-format 2.10): samewire sends
//! the other form in a second attempt, and later requests in that form at once.
//!
//! The engine of these tests renders messages with a chat template, as vLLM and SGLang do, and refuses what the
//! template refuses.

use crate::responses::background::ended;
use crate::responses::over_chat::{ask, events, last, object};
use crate::sim::prelude::*;
use minijinja::value::Serde;
use minijinja::{Environment, Error, ErrorKind, Value as Jinja};

/// The roles that Qwen3.5's template accepts: a system message only as the first message, and at least one user
/// message.
const QWEN35: &str = r#"
{%- macro text(content) -%}
    {%- if content is string -%}{{ content }}
    {%- else -%}{%- for part in content -%}{{ part.text }}{%- endfor -%}
    {%- endif -%}
{%- endmacro -%}
{%- if not messages -%}{{ raise_exception('No messages provided.') }}{%- endif -%}
{%- set ns = namespace(asked=false) -%}
{%- for message in messages -%}
    {%- if message.role == 'user' -%}{%- set ns.asked = true -%}{%- endif -%}
{%- endfor -%}
{%- if not ns.asked -%}{{ raise_exception('No user query found in messages.') }}{%- endif -%}
{%- for message in messages -%}
    {%- if message.role == 'system' -%}
        {%- if not loop.first -%}{{ raise_exception('System message must be at the beginning.') }}{%- endif -%}
        <|im_start|>system
{{ text(message.content) }}<|im_end|>
{% elif message.role in ['user', 'assistant', 'tool'] -%}
        <|im_start|>{{ message.role }}
{{ text(message.content) }}<|im_end|>
{% else -%}{{ raise_exception('Unexpected message role.') }}{%- endif -%}
{%- endfor -%}
<|im_start|>assistant
"#;

/// The roles that Gemma 3's template accepts: one system message at most, then user and assistant in turn.
const GEMMA3: &str = r#"
{%- if messages[0].role == 'system' -%}
    {%- set first = messages[0].content + '\n\n' -%}{%- set rest = messages[1:] -%}
{%- else -%}
    {%- set first = '' -%}{%- set rest = messages -%}
{%- endif -%}
{%- for message in rest -%}
    {%- if (message.role == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
    {%- endif -%}
    <start_of_turn>{{ message.role }}
{{ first if loop.first }}{{ message.content }}<end_of_turn>
{% endfor -%}
<start_of_turn>model
"#;

/// Renders the prompt for these messages. Fails with the error that the template raises.
fn rendered(template: &str, body: &Value) -> Result<String, String> {
    let mut environment = Environment::new();
    environment.add_function("raise_exception", |message: String| {
        Err::<Jinja, _>(Error::new(ErrorKind::InvalidOperation, message))
    });
    let context = Jinja::from(Serde(json!({"messages": body["messages"]})));
    let prompt = environment.render_named_str("chat", template, context);
    prompt.map_err(|error| error.detail().unwrap_or_default().to_owned())
}

/// Builder of the engine's answer to an error that its template raised.
type Refuses = fn(&str) -> Script;

fn as_vllm(message: &str) -> Script {
    let message = json_string(message);
    let body = format!(
        r#"{{"error":{{"message":{message},"type":"BadRequestError","param":null,"code":400}}}}"#
    );
    Script::new().json("400 Bad Request", &body)
}

fn as_llamacpp(message: &str) -> Script {
    let message = json_string(&format!(
        "\n------------\nError: Jinja Exception: {message}"
    ));
    let body = format!(r#"{{"error":{{"code":500,"message":{message},"type":"server_error"}}}}"#);
    Script::new().json("500 Internal Server Error", &body)
}

fn as_first_event(message: &str) -> Script {
    let message = json_string(message);
    let event = format!(
        r#"{{"error":{{"message":{message},"type":"BadRequestError","param":null,"code":400}}}}"#
    );
    Script::new().head_sse().ev(&event).done().end()
}

/// Returns an answer with this text.
fn says(attempt: &Attempt, text: &str) -> Script {
    if attempt.text().contains(r#""stream":true"#) {
        return Script::stream()
            .text(text)
            .finish("stop")
            .usage(3, 5)
            .done()
            .end();
    }
    let object = json!({"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}});
    Script::ok(object)
}

/// Starts an engine that answers with the rendered prompt.
async fn engine(template: &'static str, refuses: Refuses) -> Engine {
    Engine::answering(move |attempt: &Attempt| {
        let body = attempt.json();
        match rendered(template, &body) {
            Ok(prompt) if attempt.target == "/tokenize" => {
                Script::ok(format!(r#"{{"count":{}}}"#, prompt.len()))
            }
            Ok(prompt) => says(attempt, &prompt),
            Err(message) => refuses(&message),
        }
    })
    .await
}

fn chat(stream: bool, messages: &Value) -> Request {
    Request::chat(json!({"model": "m", "stream": stream, "messages": messages}).to_string())
}

/// Returns the text of an answer, streamed or whole.
fn text(answer: &Answer) -> String {
    assert_eq!(answer.head.status, 200, "{}", answer.text());
    let chunks: Vec<Value> = match answer.text().starts_with('{') {
        true => vec![answer.json()],
        false => {
            let data = answer
                .text()
                .split("\n\n")
                .filter_map(|event| event.strip_prefix("data: {"));
            data.map(|data| serde_json::from_str(&format!("{{{data}")).expect("JSON"))
                .collect()
        }
    };
    let said = |chunk: &Value| {
        let choice = &chunk["choices"][0];
        let part = if choice["delta"].is_null() {
            &choice["message"]
        } else {
            &choice["delta"]
        };
        part["content"].as_str().unwrap_or_default().to_owned()
    };
    chunks.iter().map(said).collect()
}

fn attempts(answer: &Answer) -> Option<&str> {
    answer.head.header("x-samewire-attempts")
}

/// Returns how often a rule was counted.
async fn counted(world: &World, rule: &str) -> u64 {
    world
        .samewire
        .sum("samewire_rewrites_total", &[&format!("rule=\"{rule}\"")])
        .await
}

const LATE: &str = "<|im_start|>system\nBe brief.\n\nBe kind.\n\nIt is noon.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant";

fn late() -> Value {
    json!([
        {"role": "system", "content": "Be brief."},
        {"role": "system", "content": [{"type": "text", "text": "Be kind."}]},
        {"role": "user", "content": "hi"},
        {"role": "system", "content": "It is noon."},
    ])
}

/// Each model is refused once; later requests are merged at once.
#[tokio::test]
async fn late_system_messages_are_merged_where_the_template_refuses_them() {
    for (refuses, stream) in [
        (as_vllm as Refuses, true),
        (as_vllm, false),
        (as_llamacpp, true),
        (as_first_event, true),
    ] {
        let world = World::start(engine(QWEN35, refuses), Setup::new()).await;
        let answer = world.request(&chat(stream, &late())).await;
        assert_eq!(
            (text(&answer).as_str(), attempts(&answer)),
            (LATE, Some("2"))
        );
        for stream in [true, false] {
            let answer = world.request(&chat(stream, &late())).await;
            assert_eq!(
                (text(&answer).as_str(), attempts(&answer)),
                (LATE, Some("1")),
                "it is remembered"
            );
        }
        // Requests that need no change are not changed.
        let plain = json!([{"role": "system", "content": "s"}, {"role": "user", "content": "hi"}]);
        let request = chat(false, &plain);
        assert_eq!(attempts(&world.request(&request).await), Some("1"));
        let all = world.engine.attempts();
        assert_eq!(
            (all.len(), &all[4].body),
            (5, &request.sent_body().to_vec())
        );
        world.samewire.finished(4).await;
        assert_eq!(counted(&world, "system_merged").await, 3);
        assert_eq!(
            world
                .samewire
                .count_logged("the engine refused a request and answers it in another form"),
            1
        );
        world.end().await;
    }
}

/// The templates of Gemma 3 and Mistral report a late system message as roles that do not alternate.
#[tokio::test]
async fn roles_that_must_alternate_are_a_late_system_message() {
    let world = World::start(engine(GEMMA3, as_vllm), Setup::new()).await;
    let messages = json!([
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "system", "content": "s"},
        {"role": "user", "content": "c"},
    ]);
    let answer = world.request(&chat(true, &messages)).await;
    let prompt = "<start_of_turn>user\ns\n\na<end_of_turn>\n<start_of_turn>assistant\nb<end_of_turn>\n<start_of_turn>user\nc<end_of_turn>\n<start_of_turn>model";
    assert_eq!(
        (text(&answer).as_str(), attempts(&answer)),
        (prompt, Some("2"))
    );
    // No other form would help, so there is no second attempt.
    let named =
        json!([{"role": "user", "content": "a", "name": "x"}, {"role": "user", "content": "b"}]);
    let answer = world.request(&chat(true, &named)).await;
    assert_eq!((answer.head.status, attempts(&answer)), (400, Some("1")));
    world.end_after(3).await;
}

/// Codex begins with two messages of the user, which the templates of Gemma 3 and Mistral refuse.
#[tokio::test]
async fn neighbours_of_one_role_are_merged_where_the_template_refuses_them() {
    const PROMPT: &str = "<start_of_turn>user\nS\n\na\n\nb<end_of_turn>\n<start_of_turn>model";
    let messages = json!([
        {"role": "system", "content": "S"},
        {"role": "user", "content": "a"},
        {"role": "user", "content": "b"},
    ]);
    for refuses in [as_vllm as Refuses, as_llamacpp, as_first_event] {
        let world = World::start(engine(GEMMA3, refuses), Setup::new()).await;
        for (stream, expected) in [(true, "2"), (false, "1"), (true, "1")] {
            let answer = world.request(&chat(stream, &messages)).await;
            assert_eq!(
                (text(&answer).as_str(), attempts(&answer)),
                (PROMPT, Some(expected))
            );
        }
        let body = r#""model":"m","instructions":"S","input":[{"role":"user","content":"a"},{"role":"user","content":"b"}]"#;
        assert_eq!(
            object(&world.request(&ask(body)).await)["output"][0]["content"][0]["text"],
            PROMPT
        );
        let message = json!({"model": "m", "max_tokens": 9, "system": "S", "messages":
            [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]});
        let message = world.post("/v1/messages", message.to_string()).await.json();
        // Turns of one role become one message anyway (messages 3.2).
        assert_eq!(
            message["content"][0]["text"],
            PROMPT.replace("a\n\nb", "a\nb")
        );
        world.samewire.finished(5).await;
        assert_eq!(world.engine.attempt_count(), 6, "it is remembered");
        assert_eq!(counted(&world, "roles_merged").await, 4);
        world.end().await;
    }
}

const EFFORTS: &str =
    "Unexpected reasoning effort high. Supported types are xhigh (default), medium, and low.";

/// Starts an engine whose template takes none of these efforts. It answers with the effort that it was given.
async fn engine_without(
    refused: &'static [&'static str],
    refusal: &'static str,
    refuses: Refuses,
) -> Engine {
    Engine::answering(move |attempt: &Attempt| {
        let body = attempt.json();
        match body["reasoning_effort"].as_str() {
            Some(effort) if refused.contains(&effort) => refuses(refusal),
            effort => says(attempt, effort.unwrap_or("without")),
        }
    })
    .await
}

/// Codex and Claude Code send an effort with each request.
#[tokio::test]
async fn an_effort_that_the_template_refuses_becomes_the_nearest_that_it_takes() {
    for refuses in [as_vllm as Refuses, as_llamacpp, as_first_event] {
        let world = World::start(
            engine_without(&["high", "max"], EFFORTS, refuses),
            Setup::new(),
        )
        .await;
        let response = || ask(r#""model":"m","input":"hi","reasoning":{"effort":"high"}"#);
        assert_eq!(
            object(&world.request(&response()).await)["output"][0]["content"][0]["text"],
            "xhigh"
        );
        assert_eq!(
            object(&world.request(&response()).await)["output"][0]["content"][0]["text"],
            "xhigh"
        );
        let message = json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}],
            "thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}});
        let message = world.post("/v1/messages", message.to_string()).await.json();
        assert_eq!(message["content"][0]["text"], "xhigh", "{message}");
        for (effort, sent) in [
            ("high", "xhigh"),
            ("max", "xhigh"),
            ("medium", "medium"),
            ("minimal", "low"),
        ] {
            let answer = world
                .stream(&format!(r#","reasoning_effort":"{effort}""#))
                .await;
            assert_eq!(
                (text(&answer).as_str(), attempts(&answer)),
                (sent, Some("1"))
            );
        }
        assert_eq!(world.engine.attempt_count(), 8, "it is remembered");
        world.samewire.finished(7).await;
        assert_eq!(counted(&world, "effort_of_model").await, 6);
        world.end().await;
    }
}

/// The effort is left out where the refusal names no other word, or where the named one is refused as well.
#[tokio::test]
async fn an_effort_without_another_word_is_left_out() {
    let refusal = "Reasoning effort is not supported by this model.";
    let world = World::start(engine_without(&["low"], refusal, as_vllm), Setup::new()).await;
    for _ in 0..2 {
        let answer = world
            .request(&Request::plain(r#","reasoning_effort":"low""#))
            .await;
        assert_eq!(
            (text(&answer).as_str(), attempts(&answer)),
            ("without", Some("2"))
        );
    }
    let answer = world
        .request(&Request::plain(r#","reasoning_effort":"medium""#))
        .await;
    assert_eq!(
        (text(&answer).as_str(), attempts(&answer)),
        ("medium", Some("1")),
        "others stay"
    );
    world.end().await;
    let engine = engine_without(&["high", "xhigh"], EFFORTS, as_vllm);
    let answer = World::answer(
        engine,
        Setup::new(),
        &Request::plain(r#","reasoning_effort":"high""#),
    )
    .await;
    assert_eq!(
        (text(&answer).as_str(), attempts(&answer)),
        ("without", Some("3"))
    );
}

/// vLLM takes a budget where it has a reasoning parser. A budget that the client wrote in vLLM's words is its own.
#[tokio::test]
async fn a_budget_of_reasoning_is_left_out_where_the_engine_refuses_it() {
    const REFUSAL: &str = "thinking_token_budget is set but reasoning_config is not configured. Please set \
        --reasoning-parser and/or --reasoning-config to use thinking_token_budget.";
    let engine = Engine::answering(|attempt: &Attempt| {
        let body = attempt.json();
        match &body["thinking_token_budget"] {
            Value::Null => says(
                attempt,
                &body["chat_template_kwargs"].to_string().replace('"', ""),
            ),
            budget => {
                assert_eq!(budget, 2048);
                as_vllm(REFUSAL)
            }
        }
    })
    .await;
    let world = World::start(engine, Setup::new()).await;
    for sent in ["2", "1"] {
        let more = r#","thinking":{"type":"enabled","budget_tokens":2048}"#;
        let answer = world.request(&Request::plain(more)).await;
        let expected = ("{enable_thinking:true,thinking:true}", Some(sent));
        assert_eq!((text(&answer).as_str(), attempts(&answer)), expected);
    }
    let answer = world
        .request(&Request::plain(r#","thinking_token_budget":2048"#))
        .await
        .with_status(400);
    assert!(
        answer.text().contains("--reasoning-parser"),
        "{}",
        answer.text()
    );
    world.end().await;
}

/// The budget of a Messages request is vLLM's, too, beside the effort that it means.
#[tokio::test]
async fn a_budget_of_a_message_is_left_out_where_the_engine_refuses_it() {
    const REFUSAL: &str = "thinking_token_budget is set but reasoning_config is not configured.";
    for refuses in [false, true] {
        let engine = Engine::answering(move |attempt: &Attempt| {
            let body = attempt.json();
            match &body["thinking_token_budget"] {
                Value::Null => says(attempt, "without"),
                budget if refuses => {
                    assert_eq!(budget, 2048);
                    as_vllm(REFUSAL)
                }
                budget => says(
                    attempt,
                    &format!("{budget} {}", body["reasoning_effort"]).replace('"', ""),
                ),
            }
        })
        .await;
        let world = World::start(engine, Setup::new()).await;
        let message = json!({"model": "m", "max_tokens": 4096, "messages": [{"role": "user", "content": "x"}],
            "thinking": {"type": "enabled", "budget_tokens": 2048}});
        for sent in if refuses { ["2", "1"] } else { ["1", "1"] } {
            let answer = world.post("/v1/messages", message.to_string()).await;
            let expected = if refuses { "without" } else { "2048 low" };
            assert!(answer.text().contains(expected), "{}", answer.text());
            assert_eq!(attempts(&answer), Some(sent));
        }
        world.end().await;
    }
}

#[tokio::test]
async fn the_efforts_of_a_model_can_be_configured() {
    let setup =
        Setup::new().config("[[model]]\nname = \"m\"\nefforts = [\"low\", \"medium\", \"xhigh\"]");
    let engine = engine_without(&["high"], EFFORTS, as_vllm);
    let answer = World::answer(
        engine,
        setup,
        &Request::plain(r#","reasoning_effort":"high""#),
    )
    .await;
    assert_eq!(
        (text(&answer).as_str(), attempts(&answer)),
        ("xhigh", Some("1"))
    );
}

/// llama.cpp renders gpt-oss with a template that takes no text beside reasoning and calls.
#[tokio::test]
async fn text_beside_reasoning_and_calls_becomes_reasoning_where_the_template_takes_one_of_both() {
    const REFUSAL: &str = "Cannot pass both content and thinking in an assistant message with tool calls! Put the analysis message in one or the other, but not both.";
    let engine = || {
        Engine::answering(|attempt: &Attempt| {
            let body = attempt.json();
            let said = |message: &Value, key: &str| {
                message[key].as_str().is_some_and(|text| !text.is_empty())
            };
            let reasoning =
                |message: &Value| said(message, "reasoning_content") || said(message, "reasoning");
            let both = |message: &&Value| {
                message["tool_calls"][0].is_object()
                    && said(message, "content")
                    && reasoning(message)
            };
            let messages = body["messages"].as_array().expect("messages");
            match messages.iter().any(|message| both(&message)) {
                true => as_llamacpp(REFUSAL),
                false => says(
                    attempt,
                    messages[1]["reasoning_content"]
                        .as_str()
                        .unwrap_or_default(),
                ),
            }
        })
    };
    let world = World::start_as(engine(), "llamacpp", Setup::new()).await;
    let messages = json!([
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "I read.", "reasoning_content": "hm",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "r"},
    ]);
    for (stream, expected) in [(true, "2"), (false, "1")] {
        let answer = world.request(&chat(stream, &messages)).await;
        assert_eq!(
            (text(&answer).as_str(), attempts(&answer)),
            ("hm\n\nI read.", Some(expected))
        );
    }
    let body = r#""model":"m","input":[{"role":"user","content":"a"},{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"I read."}]},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"r"}]"#;
    assert_eq!(
        object(&world.request(&ask(body)).await)["output"][0]["content"][0]["text"],
        "hm\n\nI read."
    );
    world.end_after(4).await;
}

/// An image in the result of a tool is moved after it where the engine takes only text from tools (clients-019).
#[tokio::test]
async fn images_from_tools_follow_their_results_where_the_engine_refuses_them() {
    let engine = Engine::answering(|attempt: &Attempt| {
        let body = attempt.json();
        let messages = body["messages"].as_array().expect("messages");
        let (result, last) = (&messages[2]["content"], &messages[messages.len() - 1]);
        match result.is_array() && result.to_string().contains("image_url") {
            true => as_vllm("Only text content is supported in tool messages."),
            false => says(
                attempt,
                &format!("{result} {} {}", last["role"], last["content"][1]["type"]),
            ),
        }
    });
    let world = World::start(engine.await, Setup::new()).await;
    let image =
        json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}});
    let messages = json!([
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": null,
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "view_image", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c1", "content": [image]},
    ]);
    let expected = r#""[image 1]" "user" "image_url""#;
    for (stream, attempted) in [(true, "2"), (false, "1")] {
        let answer = world.request(&chat(stream, &messages)).await;
        assert_eq!(
            (text(&answer).as_str(), attempts(&answer)),
            (expected, Some(attempted))
        );
    }
    let body = r#""model":"m","input":[{"role":"user","content":"look"},{"type":"function_call","call_id":"c1","name":"view_image","arguments":"{}"},{"type":"function_call_output","call_id":"c1","output":[{"type":"input_image","image_url":"data:image/png;base64,iVBORw0KGgo="}]}]"#;
    assert_eq!(
        object(&world.request(&ask(body)).await)["output"][0]["content"][0]["text"],
        expected
    );
    assert_eq!(counted(&world, "images_after_tools").await, 3);
    world.end().await;
}

/// Qwen Code requests 32,000 tokens of a model that it does not know.
#[tokio::test]
async fn a_limit_beyond_the_context_is_left_out() {
    const REFUSAL: &str = "This model's maximum context length is 32768 tokens. However, you requested 32000 output tokens and your prompt contains at least 769 input tokens, for a total of at least 32769 tokens.";
    let strict = |attempt: &Attempt| match ["\"max_tokens\"", "\"max_completion_tokens\""]
        .iter()
        .any(|key| attempt.text().contains(key))
    {
        true => as_vllm(REFUSAL),
        false => says(attempt, "all"),
    };
    let world = World::start(Engine::answering(strict), Setup::new()).await;
    for request in [
        Request::stream(r#","max_tokens":32000"#),
        Request::plain(r#","max_completion_tokens":32000"#),
    ] {
        let answer = world.request(&request).await;
        assert_eq!(
            (text(&answer).as_str(), attempts(&answer)),
            ("all", Some("2"))
        );
    }
    let response = object(
        &world
            .request(&ask(
                r#""model":"m","input":"hi","max_output_tokens":32000"#,
            ))
            .await,
    );
    assert_eq!(response["output"][0]["content"][0]["text"], "all");
    assert_eq!(
        world.engine.attempt_count(),
        6,
        "each limit is judged by itself"
    );
    world.samewire.finished(3).await;
    assert_eq!(counted(&world, "limit_left_out").await, 3);
    world.end().await;
}

/// A failure with 500 that is about the request is a refusal: no other engine gets it, and its words reach the client.
#[tokio::test]
async fn a_refusal_with_500_is_the_requests_fault() {
    for message in [
        "Jinja Exception: No user query found in messages.",
        "Conversation roles must alternate user/assistant/user/assistant/...",
        "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
        "audio input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
        "failed to submit chat request: tool parsing is disabled by frontend configuration",
        "The model does not support image inputs",
    ] {
        let refusing = |_: &Attempt| as_llamacpp(message);
        let engines = vec![
            Engine::answering(refusing).await,
            Engine::answering(refusing).await,
        ];
        let world =
            World::fleet_up(engines, Setup::new().set("engine_errors=redact_4xx"), &[]).await;
        let mut asked = 0;
        for stream in [false, true] {
            let turn = json!([{"role": "user", "content": "a"}]);
            let message_of =
                json!({"model": "m", "max_tokens": 9, "stream": stream, "messages": turn});
            let response = json!({"model": "m", "stream": stream, "input": "a"});
            for request in [
                chat(stream, &turn),
                Request::post("/v1/messages", message_of.to_string()),
                Request::post("/v1/responses", response.to_string()),
            ] {
                for _ in 0..5 {
                    let answer = world.request(&request).await;
                    assert_eq!(
                        (answer.head.status, attempts(&answer)),
                        (400, Some("1")),
                        "{}",
                        answer.text()
                    );
                    assert!(answer.text().contains(message), "{}", answer.text());
                    asked += 1;
                }
            }
        }
        world.samewire.finished(asked).await;
        assert_eq!(world.attempt_counts().iter().sum::<usize>(), asked);
        assert_eq!(world.samewire.count_logged("ejected"), 0);
        world.end().await;
    }
}

/// An engine whose context is full while it writes says so, so that agents compact the conversation.
#[tokio::test]
async fn a_context_that_is_full_while_the_engine_writes_is_named() {
    let full = |_: &Attempt| {
        let error = r#"{"error":{"code":500,"message":"Context size has been exceeded.","type":"server_error"}}"#;
        Script::stream().text("He").ev(error).end()
    };
    let world = World::start_as(
        Engine::answering(full),
        "llamacpp",
        Setup::new().allow_errors(),
    )
    .await;
    let answer = world
        .request(&chat(true, &json!([{"role": "user", "content": "a"}])))
        .await;
    assert!(
        answer.text().contains("\"content\":\"He\""),
        "{}",
        answer.text()
    );
    assert!(
        answer
            .text()
            .contains(r#""code":"context_length_exceeded""#),
        "{}",
        answer.text()
    );
    let failed = events(
        &world
            .request(&ask(r#""model":"m","input":"hi","stream":true"#))
            .await,
    );
    assert_eq!(last(&failed)["error"]["code"], "context_length_exceeded");
    world.end().await;
}

/// The chat request made from a Responses request is merged, too.
#[tokio::test]
async fn responses_are_merged_too() {
    let world = World::start(engine(QWEN35, as_vllm), Setup::new()).await;
    let body = r#""model":"m","instructions":"Be brief.","input":[{"role":"developer","content":"Be kind."},{"role":"user","content":"hi"},{"role":"system","content":[{"type":"input_text","text":"It is noon."}]}]"#;
    let streamed = events(
        &world
            .request(&ask(&format!(r#"{body},"stream":true"#)))
            .await,
    );
    assert_eq!(last(&streamed)["output"][0]["content"][0]["text"], LATE);
    let whole = object(&world.request(&ask(body)).await);
    assert_eq!(whole["output"][0]["content"][0]["text"], LATE);
    assert_eq!(world.engine.attempt_count(), 3, "the first is refused once");
    world.samewire.finished(2).await;
    assert_eq!(counted(&world, "system_merged").await, 2);
    world.end().await;
}

/// Background responses and token counts are merged, too.
#[tokio::test]
async fn the_background_and_counts_of_tokens_are_merged_too() {
    let world = World::start(engine(QWEN35, as_vllm), Setup::new()).await;
    let body =
        r#""model":"m","input":[{"role":"user","content":"hi"},{"role":"system","content":"s"}]"#;
    let count = Request::post("/v1/responses/input_tokens", format!("{{{body}}}"));
    world.request(&count).await.with_status(200);
    assert_eq!(world.engine.attempt_count(), 2);
    assert_eq!(world.request(&count).await.head.status, 200);
    // It is remembered.
    world.end_after(3).await;
    let world = World::start(engine(QWEN35, as_vllm), Setup::new()).await;
    let queued = object(
        &world
            .request(&ask(&format!(r#"{body},"background":true,"store":true"#)))
            .await,
    );
    let id = queued["id"].as_str().expect("an id").to_owned();
    let made = ended(world.proxy(), &id).await;
    assert_eq!(made["status"], "completed", "{made}");
    world.end_after(2).await;
}

/// The option `system_messages` overrides the automatic choice.
#[tokio::test]
async fn system_messages_are_kept_or_merged_as_the_option_says() {
    let world = World::start(
        engine(QWEN35, as_vllm),
        Setup::new().set("system_messages=keep"),
    )
    .await;
    let answer = world.request(&chat(true, &late())).await;
    assert_eq!(
        answer.fault().message,
        "System message must be at the beginning.",
        "the engine's own words, and no second attempt"
    );
    assert_eq!(
        (attempts(&answer), world.engine.attempt_count()),
        (Some("1"), 1)
    );
    world.end().await;
    let world = World::start(
        engine(QWEN35, as_vllm),
        Setup::new().set("system_messages=merge"),
    )
    .await;
    let answer = world.request(&chat(true, &late())).await;
    assert_eq!(
        (text(&answer).as_str(), attempts(&answer)),
        (LATE, Some("1"))
    );
    world.samewire.finished(1).await;
    assert_eq!(counted(&world, "system_merged").await, 1);
    world.end().await;
}

/// The client gets the first refusal if the merged form is refused as well: the second one is about a request that
/// it did not send.
#[tokio::test]
async fn the_first_refusal_is_told_where_the_other_form_is_refused_too() {
    let strict = |attempt: &Attempt| match attempt.text().contains("Be kind.\\n\\n") {
        true => as_vllm("The system message is too long."),
        false => as_vllm("System message must be at the beginning."),
    };
    let world = World::start(Engine::answering(strict), Setup::new()).await;
    for stream in [true, false, true] {
        let answer = world.request(&chat(stream, &late())).await;
        let fault = answer.fault();
        assert_eq!((answer.head.status, attempts(&answer)), (400, Some("2")));
        assert_eq!(fault.message, "System message must be at the beginning.");
    }
    // A change that does not help is not remembered.
    world.end_after(6).await;
}

/// A refusal of the form is no fault of the engine: the second attempt goes to the same engine, and none is
/// ejected.
#[tokio::test]
async fn the_same_engine_is_asked_and_stays_well() {
    let engines = [engine(QWEN35, as_llamacpp), engine(QWEN35, as_llamacpp)];
    let world = World::fleet_up(
        engines,
        Setup::new().config("[retry]\nmax_attempts = 1"),
        &[],
    )
    .await;
    for _ in 0..20 {
        assert_eq!(text(&world.request(&chat(true, &late())).await), LATE);
    }
    let shares = world.attempt_counts();
    assert_eq!(
        shares.iter().sum::<usize>(),
        22,
        "each of them has refused once: {shares:?}"
    );
    world.samewire.finished(20).await;
    assert_eq!(world.samewire.count_logged("ejected"), 0);
    world.end().await;
}

/// Learned forms are forgotten after an outage, because another engine may now be at the address.
#[tokio::test]
async fn what_was_learned_is_forgotten_when_the_engine_has_been_away() {
    let setup = Setup::new()
        .allow_errors()
        .config("[health]\ninterval = 0.05\ndown_after = 1\nup_after = 1");
    let world = World::start(engine(QWEN35, as_vllm), setup).await;
    world.wait_until_up().await;
    assert_eq!(
        attempts(&world.request(&chat(true, &late())).await),
        Some("2")
    );
    assert_eq!(
        attempts(&world.request(&chat(true, &late())).await),
        Some("1")
    );
    world
        .engine
        .set_health(Script::new().json("503 Service Unavailable", "{}"));
    until("it is not ready", || {
        world.samewire.count_logged("upstream is not ready") > 0
    })
    .await;
    world
        .engine
        .set_health(Script::new().whole("200 OK", "", ""));
    until("it is back", || {
        world.samewire.count_logged("upstream is ready") > 1
    })
    .await;
    assert_eq!(
        attempts(&world.request(&chat(true, &late())).await),
        Some("2")
    );
    world.end().await;
}
