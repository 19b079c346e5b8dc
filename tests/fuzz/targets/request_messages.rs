//! A Messages request is either refused with a reason that names the field, or becomes a request to the engine.

use super::feed::Feed;
use super::request_chat::refused;
use crate::cases::message_vectors;
use crate::cases::messages::{error, read};
use bytes::Bytes;
use samewire::engine::ENGINES;
use samewire::plan::{Route, message};
use samewire::request::ChatRequest;
use samewire::request::messages::{EngineRequest, MessagesMode, Purpose};
use samewire::wire::Api;
use samewire::wire::options::Options;
use serde_json::Value;
use std::sync::Arc;

pub fn run(data: &[u8]) {
    let mut feed = Feed(data);
    let way = feed.byte();
    let engine = ENGINES[usize::from(way & 3) % ENGINES.len()];
    let mode = if way >> 2 & 1 == 1 { MessagesMode::Native } else { MessagesMode::Chat };
    let purpose = [Purpose::Answer, Purpose::Count][usize::from(way >> 3 & 1)];
    let drops = way >> 4 & 1 == 1;
    let options: Options = serde_json::from_value(serde_json::json!({
        "unsupported_content": if drops { "drop" } else { "reject" },
        "unsupported_tools": if drops { "drop" } else { "reject" },
    }))
    .expect("options");
    let body = Bytes::copy_from_slice(feed.rest());
    let route = Route::new(engine, Arc::new(options.clone()), 1 << 20);
    let sent = read(&body, &options, None, mode, purpose)
        .and_then(|asked| message(&asked, &route).map(|(plan, reply)| (asked, plan, reply)));
    let (asked, plan, reply) = match sent {
        Ok(sent) => sent,
        Err(failure) => {
            let (status, body) = error(&failure);
            let body: Value = serde_json::from_str(&body).expect("an error object");
            assert!((400..500).contains(&status), "{body}");
            crate::cases::messages::fold::error(&body).unwrap_or_else(|wrong| panic!("{wrong}"));
            return refused(&failure);
        }
    };
    let body = plan.body.joined();
    let text = std::str::from_utf8(&body).expect("UTF-8");
    assert!(samewire::json::Raw::of(text).is_some(), "{text}");
    assert_eq!((&reply.model, reply.stream), (&asked.model, asked.stream));
    if let EngineRequest::Chat(_) = asked.engine_request {
        let chat = ChatRequest::recall(Api::Chat, &body)
            .unwrap_or_else(|failure| panic!("{failure:?}: {text}"));
        assert_eq!((&chat.model, chat.stream, chat.choices), (&asked.model, asked.stream, 1));
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let bodies = message_vectors().into_iter().map(|(case, _)| case.request.to_string());
    (0_u8..).zip(bodies).map(|(at, body)| [&[at % 32], body.as_bytes()].concat()).collect()
}
