//! Requests that an engine refuses in their original form and accepts in another (wire-format 2.10): samewire sends
//! the other form in a second attempt, and later requests in that form at once.
//!
//! The engine of these tests renders messages with a chat template, as vLLM and SGLang do, and refuses what the
//! template refuses.

use crate::responses::over_chat::{ask, events, last, object};
use crate::sim::{Answer, Attempt, Engine, PATIENCE, Request, Script, Setup, World, json_string, until};
use minijinja::value::Serde;
use minijinja::{Environment, Error, ErrorKind, Value as Jinja};
use serde_json::{Value, json};

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
    let body =
        format!(r#"{{"error":{{"message":{message},"type":"BadRequestError","param":null,"code":400}}}}"#);
    Script::new().json("400 Bad Request", &body)
}

fn as_llamacpp(message: &str) -> Script {
    let message = json_string(&format!("\n------------\nError: Jinja Exception: {message}"));
    let body = format!(r#"{{"error":{{"code":500,"message":{message},"type":"server_error"}}}}"#);
    Script::new().json("500 Internal Server Error", &body)
}

fn as_first_event(message: &str) -> Script {
    let message = json_string(message);
    let event =
        format!(r#"{{"error":{{"message":{message},"type":"BadRequestError","param":null,"code":400}}}}"#);
    Script::new().head_sse().ev(&event).done().end()
}

/// Returns an answer with this text.
fn says(attempt: &Attempt, text: &str) -> Script {
    if attempt.text().contains(r#""stream":true"#) {
        return Script::new().head_sse().role().text(text).finish("stop").usage(3, 5).done().end();
    }
    let object = json!({"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}});
    Script::new().json("200 OK", &object.to_string())
}

/// Starts an engine that answers with the rendered prompt.
async fn engine(template: &'static str, refuses: Refuses) -> Engine {
    Engine::answering(move |attempt: &Attempt| {
        let body: Value = serde_json::from_slice(&attempt.body).expect("JSON");
        match rendered(template, &body) {
            Ok(prompt) if attempt.target == "/tokenize" => {
                Script::new().json("200 OK", &format!(r#"{{"count":{}}}"#, prompt.len()))
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
        true => vec![serde_json::from_str(answer.text()).expect("JSON")],
        false => {
            let data = answer.text().split("\n\n").filter_map(|event| event.strip_prefix("data: {"));
            data.map(|data| serde_json::from_str(&format!("{{{data}")).expect("JSON")).collect()
        }
    };
    let said = |chunk: &Value| {
        let choice = &chunk["choices"][0];
        let part = if choice["delta"].is_null() { &choice["message"] } else { &choice["delta"] };
        part["content"].as_str().unwrap_or_default().to_owned()
    };
    chunks.iter().map(said).collect()
}

fn attempts(answer: &Answer) -> Option<&str> {
    answer.head.header("x-samewire-attempts")
}

/// Returns how often a rule was counted.
async fn counted(world: &World, rule: &str) -> u64 {
    let metrics = world.samewire.metrics().await;
    let label = format!(r#"rule="{rule}"}}"#);
    let lines = metrics.lines().filter(|line| line.starts_with("samewire_rewrites_total{"));
    lines
        .filter(|line| line.contains(&label))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
        .sum()
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
    for (refuses, stream) in
        [(as_vllm as Refuses, true), (as_vllm, false), (as_llamacpp, true), (as_first_event, true)]
    {
        let world = World::start(engine(QWEN35, refuses).await, Setup::new()).await;
        let answer = world.ask(&chat(stream, &late())).await;
        assert_eq!((text(&answer).as_str(), attempts(&answer)), (LATE, Some("2")));
        for stream in [true, false] {
            let answer = world.ask(&chat(stream, &late())).await;
            assert_eq!((text(&answer).as_str(), attempts(&answer)), (LATE, Some("1")), "it is remembered");
        }
        // Requests that need no change are not changed.
        let plain = json!([{"role": "system", "content": "s"}, {"role": "user", "content": "hi"}]);
        let request = chat(false, &plain);
        assert_eq!(attempts(&world.ask(&request).await), Some("1"));
        let all = world.engine.attempts();
        assert_eq!((all.len(), &all[4].body), (5, &request.sent_body().to_vec()));
        world.samewire.finished(4).await;
        assert_eq!(counted(&world, "system_merged").await, 3);
        assert_eq!(
            world.samewire.count_logged("the engine refused a request and answers it in another form"),
            1
        );
        world.end().await;
    }
}

/// The templates of Gemma 3 and Mistral report a late system message as roles that do not alternate.
#[tokio::test]
async fn roles_that_must_alternate_are_a_late_system_message() {
    let world = World::start(engine(GEMMA3, as_vllm).await, Setup::new()).await;
    let messages = json!([
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "system", "content": "s"},
        {"role": "user", "content": "c"},
    ]);
    let answer = world.ask(&chat(true, &messages)).await;
    let prompt = "<start_of_turn>user\ns\n\na<end_of_turn>\n<start_of_turn>assistant\nb<end_of_turn>\n<start_of_turn>user\nc<end_of_turn>\n<start_of_turn>model";
    assert_eq!((text(&answer).as_str(), attempts(&answer)), (prompt, Some("2")));
    // No other form would help, so there is no second attempt.
    let twice = json!([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]);
    let answer = world.ask(&chat(true, &twice)).await;
    assert_eq!((answer.head.status, attempts(&answer)), (400, Some("1")));
    assert_eq!(world.engine.attempt_count(), 3);
    world.end().await;
}

/// The chat request made from a Responses request is merged, too.
#[tokio::test]
async fn responses_are_merged_too() {
    let world = World::start(engine(QWEN35, as_vllm).await, Setup::new()).await;
    let body = r#""model":"m","instructions":"Be brief.","input":[{"role":"developer","content":"Be kind."},{"role":"user","content":"hi"},{"role":"system","content":[{"type":"input_text","text":"It is noon."}]}]"#;
    let streamed = events(&world.ask(&ask(&format!(r#"{body},"stream":true"#))).await);
    assert_eq!(last(&streamed)["output"][0]["content"][0]["text"], LATE);
    let whole = object(&world.ask(&ask(body)).await);
    assert_eq!(whole["output"][0]["content"][0]["text"], LATE);
    assert_eq!(world.engine.attempt_count(), 3, "the first is refused once");
    until("a line for each request", PATIENCE, || world.samewire.request_lines().len() == 2).await;
    assert_eq!(counted(&world, "system_merged").await, 2);
    world.end().await;
}

/// Background responses and token counts are merged, too.
#[tokio::test]
async fn the_background_and_counts_of_tokens_are_merged_too() {
    let world = World::start(engine(QWEN35, as_vllm).await, Setup::new()).await;
    let body = r#""model":"m","input":[{"role":"user","content":"hi"},{"role":"system","content":"s"}]"#;
    let count = Request::post("/v1/responses/input_tokens", format!("{{{body}}}"));
    let answer = world.ask(&count).await;
    assert_eq!(answer.head.status, 200, "{}", answer.text());
    assert_eq!(world.engine.attempt_count(), 2);
    assert_eq!(world.ask(&count).await.head.status, 200);
    assert_eq!(world.engine.attempt_count(), 3, "it is remembered");
    world.end().await;
    let world = World::start(engine(QWEN35, as_vllm).await, Setup::new()).await;
    let queued = object(&world.ask(&ask(&format!(r#"{body},"background":true,"store":true"#))).await);
    let id = queued["id"].as_str().expect("an id").to_owned();
    let start = std::time::Instant::now();
    let made = loop {
        let made = object(&world.ask(&Request::get(&format!("/v1/responses/{id}"))).await);
        if made["status"] != "queued" && made["status"] != "in_progress" {
            break made;
        }
        assert!(start.elapsed() < PATIENCE, "{made}");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    };
    assert_eq!(made["status"], "completed", "{made}");
    assert_eq!(world.engine.attempt_count(), 2);
    world.end().await;
}

/// The option `system_messages` overrides the automatic choice.
#[tokio::test]
async fn system_messages_are_kept_or_merged_as_the_option_says() {
    let world = World::start(engine(QWEN35, as_vllm).await, Setup::new().set("system_messages=keep")).await;
    let answer = world.ask(&chat(true, &late())).await;
    assert_eq!(
        answer.fault().message,
        "System message must be at the beginning.",
        "the engine's own words, and no second attempt"
    );
    assert_eq!((attempts(&answer), world.engine.attempt_count()), (Some("1"), 1));
    world.end().await;
    let world = World::start(engine(QWEN35, as_vllm).await, Setup::new().set("system_messages=merge")).await;
    let answer = world.ask(&chat(true, &late())).await;
    assert_eq!((text(&answer).as_str(), attempts(&answer)), (LATE, Some("1")));
    until("a line", PATIENCE, || world.samewire.request_lines().len() == 1).await;
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
    let world = World::start(Engine::answering(strict).await, Setup::new()).await;
    for stream in [true, false, true] {
        let answer = world.ask(&chat(stream, &late())).await;
        let fault = answer.fault();
        assert_eq!((answer.head.status, attempts(&answer)), (400, Some("2")));
        assert_eq!(fault.message, "System message must be at the beginning.");
    }
    assert_eq!(world.engine.attempt_count(), 6, "what does not help is not remembered");
    world.end().await;
}

/// A refusal of the form is no fault of the engine: the second attempt goes to the same engine, and none is
/// ejected.
#[tokio::test]
async fn the_same_engine_is_asked_and_stays_well() {
    let engines = vec![engine(QWEN35, as_llamacpp).await, engine(QWEN35, as_llamacpp).await];
    let world = World::fleet(engines, Setup::new().config("[retry]\nmax_attempts = 1"), &[]).await;
    world.wait_until_up().await;
    for _ in 0..20 {
        assert_eq!(text(&world.ask(&chat(true, &late())).await), LATE);
    }
    let shares = world.attempt_counts();
    assert_eq!(shares.iter().sum::<usize>(), 22, "each of them has refused once: {shares:?}");
    world.samewire.finished(20).await;
    assert_eq!(world.samewire.count_logged("ejected"), 0);
    world.end().await;
}

/// Learned forms are forgotten after an outage, because another engine may now be at the address.
#[tokio::test]
async fn what_was_learned_is_forgotten_when_the_engine_has_been_away() {
    let setup = Setup::new().allow_errors().config("[health]\ninterval = 0.05\ndown_after = 1\nup_after = 1");
    let world = World::start(engine(QWEN35, as_vllm).await, setup).await;
    world.wait_until_up().await;
    assert_eq!(attempts(&world.ask(&chat(true, &late())).await), Some("2"));
    assert_eq!(attempts(&world.ask(&chat(true, &late())).await), Some("1"));
    world.engine.set_health(Script::new().json("503 Service Unavailable", "{}"));
    until("it is not ready", PATIENCE, || world.samewire.count_logged("upstream is not ready") > 0).await;
    world.engine.set_health(Script::new().whole("200 OK", "", ""));
    until("it is back", PATIENCE, || world.samewire.count_logged("upstream is ready") > 1).await;
    assert_eq!(attempts(&world.ask(&chat(true, &late())).await), Some("2"));
    world.end().await;
}
