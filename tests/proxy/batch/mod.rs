//! Files and batches, with a scripted engine.

mod files;
mod kills;
mod limits;
mod room;
mod runs;
mod tenants;

use crate::sim::prelude::*;
use std::collections::BTreeMap;

/// Setup in which batches are served, with further lines of `[batch]`.
fn batches(more: &str) -> Setup {
    Setup::new().config(&format!("[batch]\nenabled = true\n{more}"))
}

/// Returns an upload of this file, as the SDKs send it.
fn upload(content: &str) -> Request {
    form(&format!(
        "--b\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--b\r\n\
         Content-Disposition: form-data; name=\"file\"; filename=\"in.jsonl\"\r\n\
         Content-Type: application/octet-stream\r\n\r\n{content}\r\n--b--\r\n"
    ))
}

fn form(body: &str) -> Request {
    Request::new("POST", "/v1/files")
        .header("content-type", "multipart/form-data; boundary=b")
        .body(body)
}

fn create(file: &str, endpoint: &str) -> Request {
    let body = format!(
        r#"{{"input_file_id":"{file}","endpoint":"{endpoint}","completion_window":"24h","metadata":{{"a":"b"}}}}"#
    );
    Request::post("/v1/batches", body)
}

/// Returns a line of a batch for Chat Completions.
fn line(id: &str, prompt: &str) -> String {
    format!(
        "{{\"custom_id\":\"{id}\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\",\"body\":{{\"model\":\"m\",\
         \"messages\":[{{\"role\":\"user\",\"content\":\"{prompt}\"}}]}}}}\n"
    )
}

/// Sends a request and returns the object that answers it.
async fn object(proxy: SocketAddr, request: Request) -> Value {
    request.answer(proxy).await.with_status(200).json()
}

async fn uploaded(proxy: SocketAddr, content: &str) -> String {
    object(proxy, upload(content)).await["id"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// Uploads lines of Chat Completions and creates a batch, whose id it returns.
async fn started(proxy: SocketAddr, content: &str) -> String {
    let file = uploaded(proxy, content).await;
    object(proxy, create(&file, "/v1/chat/completions")).await["id"]
        .as_str()
        .unwrap()
        .to_owned()
}

async fn batch(proxy: SocketAddr, id: &str) -> Value {
    object(proxy, Request::get(&format!("/v1/batches/{id}"))).await
}

/// Waits until a batch satisfies a condition, and returns it.
async fn until_batch(proxy: SocketAddr, id: &str, is: impl Fn(&Value) -> bool) -> Value {
    let show = Request::get(&format!("/v1/batches/{id}"));
    show.answer_within(PATIENCE * 6, proxy, |answer| is(&answer.json()))
        .await
        .with_status(200)
        .json()
}

fn is_over(batch: &Value) -> bool {
    ["completed", "failed", "expired", "cancelled"].contains(&batch["status"].as_str().unwrap())
}

async fn ended(proxy: SocketAddr, id: &str) -> Value {
    until_batch(proxy, id, is_over).await
}

async fn content(proxy: SocketAddr, file: &Value) -> String {
    let request = Request::get(&format!(
        "/v1/files/{}/content",
        file.as_str().expect("a file")
    ));
    // As the SDKs send it.
    let answer = request
        .header("accept", "application/binary")
        .answer(proxy)
        .await
        .with_status(200);
    answer.text().to_owned()
}

/// Reads a file of results: each `custom_id` is there once.
async fn results(proxy: SocketAddr, file: &Value) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    for line in content(proxy, file).await.lines() {
        let line = parsed(line);
        let id = line["custom_id"].as_str().unwrap().to_owned();
        assert!(all.insert(id.clone(), line).is_none(), "{id} twice");
    }
    all
}

/// Returns the prompt of a request that an engine received.
fn prompt_of(attempt: &Attempt) -> String {
    attempt.json()["messages"][0]["content"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// Returns an engine's whole answer that repeats the prompt.
fn echo(attempt: &Attempt) -> Script {
    echo_after(Script::new(), attempt)
}

/// Adds an answer that repeats the prompt to a script.
fn echo_after(script: Script, attempt: &Attempt) -> Script {
    let text = serde_json::to_string(&prompt_of(attempt)).unwrap();
    script.json(
        "200 OK",
        &format!(
            r#"{{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{{"index":0,"message":{{"role":"assistant","content":{text}}},"finish_reason":"stop"}}],"usage":{{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}}}"#
        ),
    )
}

/// Returns a refusal after which the engine may get the request again in a second.
fn refusal(status: &str) -> Script {
    let body = r#"{"error":{"message":"busy"}}"#;
    Script::new().whole_with(status, "application/json", "retry-after: 1\r\n", body)
}

fn text_of(result: &Value) -> &str {
    result["response"]["body"]["choices"][0]["message"]["content"]
        .as_str()
        .unwrap_or_default()
}

fn failure(answer: &Answer) -> (u16, Option<String>) {
    (answer.head.status, answer.fault().param)
}

async fn world(engine: Engine, more: &str) -> World {
    World::start(engine, batches(more)).await
}
