//! Embeddings requests: looked at, and changed only where the operator wants it.

use super::check::{self, Checked};
use super::fields::{self, Edits};
use super::parts::AddressCheck;
use super::{Rules, chat};
use crate::wire::fault::Failure;
use crate::wire::options::RequestUnknown;
use bytes::Bytes;
use std::ops::Range;

const KNOWN: &[&str] = &["model", "input", "encoding_format", "dimensions", "user"];

/// What a client asks for.
#[derive(Clone, Debug)]
pub struct EmbeddingsRequest {
    /// The model's name; empty: the client names none (wire-format 2.10).
    pub model: String,
    /// Fields that neither the API nor the operator names.
    unknown: Vec<String>,
    /// Addresses that have to be written anew.
    media: Edits,
    /// The place of the model's name in the body.
    model_at: Option<Range<usize>>,
    /// The engine is told the model by this name: the body names another one, or none.
    overrides_model: bool,
    /// Whether the request has a form that only the engine knows: no `input`, or an encoding that the API does not have.
    /// Its answer is then passed on as it is.
    pub is_foreign: bool,
}

impl EmbeddingsRequest {
    /// Reads and checks a request.
    ///
    /// # Errors
    /// The first thing that is wrong, with its `param`.
    pub fn read(body: &Bytes, rules: &Rules) -> Result<Self, Failure> {
        let text = fields::text_within(body, rules.caps.depth)?;
        let from = Checked::new(text, fields::read(text, text)?, KNOWN, rules)?;
        let encoding = from.get("encoding_format").map_or("null", |field| field.value.get());
        let is_other = from.get("input").is_none() && from.unknown().next().is_some();
        let is_foreign = is_other || !matches!(encoding, "null" | "\"float\"" | "\"base64\"");
        let mut media = match from.required("input", !is_other)? {
            // SGLang takes objects with pictures in them here, vLLM takes `messages`.
            Some(input) => {
                let mut judge = AddressCheck::new(text, &rules.media);
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
        Ok(Self {
            model: from.string("model")?.unwrap_or_default(),
            unknown,
            media,
            model_at,
            overrides_model: false,
            is_foreign,
        })
    }

    /// Names the model, whatever the body says of it.
    pub fn name_model(&mut self, model: &str) {
        model.clone_into(&mut self.model);
        self.overrides_model = true;
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
        let named = self.overrides_model.then_some(self.model.as_str());
        let name = alias.or(named);
        if !dropped && edits.is_empty() && name.is_none() {
            return Ok(body.clone());
        }
        let text = fields::text(body)?;
        if let Some(name) = name {
            edits.name_model(text, self.model_at.clone(), name);
        }
        if dropped {
            let members = fields::read(text, text)?;
            edits.remove(text, &members, |member| self.unknown.iter().any(|key| *key == member.key));
        }
        edits.apply_within_limit(&body.slice_ref(text.as_bytes()))
    }
}
