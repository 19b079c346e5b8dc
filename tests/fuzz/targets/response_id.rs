//! Ids: whatever id an engine uses, the client gets a plain and constant one; and an id that was never given is not
//! found.

use super::feed::Feed;
use crate::cases::{Case, Cut};
use futures::executor::block_on;
use samewire::store::{StoreCaps, StoreError, Key, StoreLocation, Store};
use samewire::wire::Api;
use serde_json::{Value, json};

pub fn run(data: &[u8]) {
    let mut feed = Feed(data);
    let way = feed.byte();
    let id = String::from_utf8_lossy(feed.rest()).into_owned();
    let api = [Api::Chat, Api::Completions, Api::Responses, Api::Messages][usize::from(way % 4)];
    let case = case(api, way & 64 == 0, &id);
    let answer = case.run(&Cut::Whole);
    assert_eq!(answer.status, 200, "{}", answer.body);
    let prefix = match api {
        Api::Chat => "chatcmpl-",
        Api::Completions => "cmpl-",
        Api::Responses => "resp_",
        Api::Messages => "msg_",
    };
    for told in ids(&answer.body) {
        let rest = told.strip_prefix(prefix).unwrap_or_else(|| panic!("{told} of {id:?}"));
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        assert!(!rest.is_empty() && rest.bytes().all(plain), "{told} of {id:?}");
    }
    assert_eq!(case.fed_back(&answer.body).run(&Cut::Whole), answer);
    block_on(absent(&id));
}

/// Returns the ids of the answer's frames.
fn ids(body: &str) -> Vec<String> {
    let data = body.split('\n').map(|line| line.strip_prefix("data: ").unwrap_or(line));
    let mut all = Vec::new();
    for data in data.filter(|data| data.starts_with('{')) {
        let frame: Value = serde_json::from_str(data).expect("JSON");
        all.extend([&frame["response"]["id"], &frame["id"]].into_iter().filter_map(Value::as_str).map(str::to_owned));
    }
    assert!(!all.is_empty(), "{body}");
    all
}

/// Returns an answer with this id.
fn case(api: Api, stream: bool, id: &str) -> Case {
    let text = if api == Api::Completions {
        json!({"index": 0, "text": "a", "finish_reason": "stop"})
    } else {
        let call = json!([{"index": 0, "id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}}]);
        json!({"index": 0, "delta": {"content": "a", "tool_calls": call}, "finish_reason": "tool_calls"})
    };
    let chunk = json!({"id": id, "created": 1, "model": "m", "choices": [text]});
    Case {
        name: "id".to_owned(),
        api,
        upstream: if api == Api::Responses { Api::Chat } else { api },
        engine: "vllm".to_owned(),
        request: json!({"model": "m", "stream": stream}),
        input: format!("data: {chunk}\n\ndata: [DONE]\n\n").into_bytes(),
        ..Case::default()
    }
}

async fn absent(id: &str) {
    let store = Store::open(&StoreLocation::Memory, StoreCaps::MEMORY).await.expect("it opens").expect("a place");
    for (tenant, id) in [("tenant", id), (id, "resp_1")] {
        let key = Key::new(tenant, id);
        assert_eq!(store.get(key.clone(), 1).await.err(), Some(StoreError::NotFound));
        assert_eq!(store.request_cancel(key.clone(), 1).await.err(), Some(StoreError::NotFound));
        assert_eq!(store.conversation(key.clone(), 1).await.err(), Some(StoreError::NotFound));
        assert_eq!(store.delete(key, 1).await.err(), Some(StoreError::NotFound));
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for id in [
        "",
        "chatcmpl-d3b4",
        "cmpl-x.y_z",
        "resp_6ca2ec78",
        "a b",
        "chatcmpl-",
        "call_1",
        "chatcmpl-tool-1",
        "functions.f:0",
        "\u{0}\r\nx: y",
        "../../etc/passwd",
        "\u{1f600}\u{2028}\"\\",
    ] {
        all.extend([0, 1, 2, 66].map(|way| [&[way], id.as_bytes()].concat()));
    }
    all
}
