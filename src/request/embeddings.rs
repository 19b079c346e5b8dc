//! Embeddings requests: looked at, and changed only where the operator wants it.

use super::check::{self, Checked};
use super::fields::{self, Edits};
use super::parts::Judge;
use super::{Rules, chat};
use crate::wire::fault::Failure;
use crate::wire::options::RequestUnknown;
use bytes::Bytes;
use std::ops::Range;

const KNOWN: &[&str] = &["model", "input", "encoding_format", "dimensions", "user"];

/// What a client asks for.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The model's name.
    pub model: String,
    /// Fields that neither the API nor the operator names.
    unknown: Vec<String>,
    /// Addresses that have to be written anew.
    media: Edits,
    /// Where the model is named.
    model_at: Option<Range<usize>>,
}

impl Wanted {
    /// Reads and checks a request.
    ///
    /// # Errors
    /// The first thing that is wrong, with its `param`.
    pub fn read(body: &Bytes, rules: &Rules) -> Result<Self, Failure> {
        let text = fields::text_within(body, rules.caps.depth)?;
        let from = Checked::new(text, fields::read(text, text)?, KNOWN, rules)?;
        from.required("model", true)?;
        let mut media = match from.required("input", true)? {
            // SGLang takes objects with pictures in them here, vLLM takes `messages`.
            Some(input) => {
                let mut judge = Judge::new(text, &rules.media);
                judge.content(input.value, || "input".to_owned())?;
                judge.edits
            }
            None => Edits::default(),
        };
        check::no_duplicates(from.all(), &["messages"], "")?;
        if let Some(messages) = from.get("messages") {
            media.extend(chat::messages(&from, messages)?.0);
        }
        let unknown = from.unknown().map(ToOwned::to_owned).collect();
        let model_at = from.place("model");
        Ok(Self { model: from.string("model")?.unwrap_or_default(), unknown, media, model_at })
    }

    /// The engine's request; `alias`: its name for the model, if another one.
    ///
    /// # Errors
    /// A field that the API does not name, where these are refused.
    pub fn body(&self, body: &Bytes, alias: Option<&str>, policy: RequestUnknown) -> Result<Bytes, Failure> {
        let dropped = match self.unknown.first() {
            Some(key) if policy == RequestUnknown::Reject => return Err(check::unknown(key)),
            first => first.is_some() && policy == RequestUnknown::Drop,
        };
        let mut edits = self.media.clone();
        if let Some((name, place)) = alias.zip(self.model_at.clone()) {
            edits.replace(place, serde_json::to_vec(name).unwrap_or_default());
        }
        if !dropped && edits.is_empty() {
            return Ok(body.clone());
        }
        let text = fields::text(body)?;
        if dropped {
            let members = fields::read(text, text)?;
            edits.remove(text, &members, |member| self.unknown.iter().any(|key| *key == member.key));
        }
        Ok(edits.apply(&body.slice_ref(text.as_bytes())))
    }
}
