//! Sealed text in the items of a conversation (wire-format 4.3, 4.5).
//!
//! Takes: the text, and the function that opens it. Gives: what was sealed. Never: opens a text of one kind as the
//! other.

use super::input;
use super::item::Item;
use super::{ChatInputs, ResponsesRequest};
use crate::json::{Raw, Text};
use crate::wire::fault::{Failure, Fault};
use serde::{Deserialize, Serialize};

/// Function that opens sealed text; `None` if it cannot be opened.
pub(super) type Unseal<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Prefixes of sealed texts, so that one kind cannot be passed off as the other.
const REASONING: &str = "swr1.";
const SUMMARY: &str = "swc1.";

/// Rule for sealed reasoning that cannot be opened: another process or service has sealed it, or its key is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum UnreadableReasoning {
    /// samewire leaves it out of the engine's request, and reports it.
    #[default]
    Drop,
    /// samewire refuses the request.
    Refuse,
}

/// Opens the text of a reasoning item.
pub(super) fn open_reasoning(sealed: Text<'_>, unseal: Unseal<'_>) -> Option<String> {
    open(REASONING, sealed, unseal)
}

/// Opens the summary of a compaction item at this path. Fails if the summary cannot be opened, because it replaces most
/// of the conversation.
pub(super) fn open_summary(
    sealed: Text<'_>,
    path: &str,
    unseal: Unseal<'_>,
) -> Result<String, Failure> {
    open(SUMMARY, sealed, unseal).ok_or_else(|| unreadable(format!("{path}.encrypted_content")))
}

fn open(kind: &str, sealed: Text<'_>, unseal: Unseal<'_>) -> Option<String> {
    let sealed = sealed.decoded();
    sealed.starts_with(kind).then(|| unseal(&sealed)).flatten()
}

fn unreadable(param: String) -> Failure {
    Failure::from(Fault::InvalidEncryptedContent).with_param(param)
}

impl ResponsesRequest {
    /// Adds sealed reasoning that cannot be opened to [`Self::dropped`], and returns the number of these items.
    ///
    /// # Errors
    /// Fails on the first one, if the rule says so.
    pub fn drop_unreadable(
        &mut self,
        inputs: &ChatInputs<'_>,
        rule: UnreadableReasoning,
    ) -> Result<usize, Failure> {
        let earlier = inputs.history.iter().map(|json| (None, *json));
        let own = self.input().enumerate().map(|(at, json)| {
            let resolved = inputs.resolved.iter().find(|(place, _)| *place == at);
            (Some(at), resolved.map_or(json, |(_, json)| *json))
        });
        let closed = |(_, json): &(Option<usize>, &str)| {
            json.contains("encrypted_content") && !self.is_readable(json, inputs.unseal)
        };
        let unread: Vec<_> = earlier
            .chain(own)
            .filter(closed)
            .map(|(at, _)| at)
            .collect();
        if rule == UnreadableReasoning::Refuse
            && let Some(at) = unread.first()
        {
            let own = |at| format!("input[{at}].encrypted_content");
            return Err(unreadable(
                at.map_or_else(|| self.history_param().to_owned(), own),
            ));
        }
        for at in &unread {
            let place = at.map_or_else(
                || self.history_param().to_owned(),
                |at| format!("input[{at}]"),
            );
            let name = format!("{place}.encrypted_content");
            if !self.dropped.contains(&name) {
                self.dropped.push(name);
            }
        }
        Ok(unread.len())
    }

    /// Returns false for reasoning whose text is sealed and cannot be opened.
    fn is_readable(&self, item: &str, unseal: Unseal<'_>) -> bool {
        let item = Raw::of(item).map(|raw| input::item(String::new(), raw, &self.rules));
        match item {
            Some(Ok(Item::Reasoning {
                content,
                sealed: Some(sealed),
                ..
            })) => {
                content.iter().any(|text| !text.is_empty())
                    || open_reasoning(sealed, unseal).is_some()
            }
            _ => true,
        }
    }
}
