//! Address that belongs to no OpenAI-compatible server: a web page, another service, or a wrong path.
//!
//! Takes: the answers to the list of models and to a chat. Gives: a failure that names the address, with the one that
//! is meant where that answers. Never: takes a server for none that has one of the two routes.

use super::answer::Answer;
use super::requests::SuiteRequest;
use crate::exchange::{Bounds, Ended, Exchange, Failure, Request, Sender};
use crate::tree::View;
use crate::visible::excerpt;
use std::time::Duration;

/// Most characters of an answer that the failure quotes.
const QUOTED: usize = 120;
/// Time for each look at another address.
const LOOK: Duration = Duration::from_secs(5);

/// Checks whether the answers to a chat and to the list of models are those of an OpenAI-compatible server. Without a
/// list, it is requested where the chat leaves it open.
///
/// # Errors
/// Fails if neither is.
pub(crate) async fn check_address(
    sender: &Sender,
    list: Option<&Answer>,
    chat: &Answer,
) -> Result<(), Failure> {
    if !is_foreign_chat(chat) {
        return Ok(());
    }
    let fetched;
    let list = match list {
        Some(list) => list,
        None => {
            // A server that does not answer is no matter of its address.
            let Ok(exchange) = sender
                .with_bounds(Bounds::within(LOOK))
                .send(models())
                .await
            else {
                return Ok(());
            };
            fetched = Answer::new(&exchange);
            &fetched
        }
    };
    if !is_foreign_list(list) {
        return Ok(());
    }
    let mut why = format!(
        "{} is not the address of an OpenAI-compatible server: GET /v1/models gave {}",
        excerpt(sender.target().root(), QUOTED),
        excerpt(&list.beginning(), QUOTED)
    );
    if let Some(hint) = hint(sender).await {
        why = format!("{why}; {}", excerpt(&hint, 2 * QUOTED));
    }
    Err(Failure {
        unreachable: false,
        why,
    })
}

fn is_foreign_chat(chat: &Answer) -> bool {
    // A model that the server does not have is a 404, too.
    let is_about_a_model = chat.whole.is_object() && chat.raw.contains("model");
    let says = ["choices", "error"]
        .iter()
        .any(|key| chat.whole.get(key).is_some());
    match chat.status {
        200 if is_page(chat) => true,
        200 => {
            chat.ended == Ended::Clean
                && !says
                && !chat.chunks().any(|frame| frame.json.is_object())
        }
        404 | 405 | 501 => !is_about_a_model,
        400 => is_page(chat),
        _ => false,
    }
}

fn is_foreign_list(list: &Answer) -> bool {
    match list.status {
        200 => !list.whole.member("data").is_array(),
        404 | 405 | 501 => true,
        400 => is_page(list),
        _ => false,
    }
}

fn is_page(answer: &Answer) -> bool {
    answer.content_type.starts_with("text/html")
}

fn models() -> Request {
    SuiteRequest::Models.for_model("")
}

/// Looks for a list of models at the addresses that may be meant.
async fn hint(sender: &Sender) -> Option<String> {
    let quick = sender.with_bounds(Bounds::within(LOOK));
    let (root, origin) = (sender.target().root(), sender.target().origin());
    let at = |path: &str| Request {
        path: path.to_owned(),
        ..models()
    };
    if origin != root && lists(quick.send_to_origin(at("/v1/models")).await) {
        return Some(format!(
            "GET {origin}/v1/models lists models: use {origin} as URL"
        ));
    }
    let is_without = lists(quick.send_to_root(at("/models")).await);
    is_without.then(|| {
        format!("GET {root}/models lists models: this API has no /v1, below which samewire asks")
    })
}

fn lists(answer: Result<Exchange, Failure>) -> bool {
    let answer = answer.map(|exchange| Answer::new(&exchange));
    answer.is_ok_and(|answer| answer.status == 200 && !is_foreign_list(&answer))
}
