//! Embeddings requests: checked, and changed only as the operator's settings require.

use super::check::{Checked, no_duplicates};
use super::fields::{self, Edits};
use super::parts::AddressCheck;
use super::refusals;
use super::{Rules, chat};
use crate::wire::fault::Failure;
use crate::wire::options::RequestUnknown;
use bytes::Bytes;
use std::ops::Range;

const KNOWN: &[&str] = &["model", "input", "encoding_format", "dimensions", "user"];

/// Embeddings request after parsing: the model, and what may have to be edited in the body.
#[derive(Clone, Debug)]
pub struct EmbeddingsRequest {
    /// Model name; empty if the client names none (wire-format 2.10).
    pub model: String,
    /// Fields that neither the API nor the operator names.
    unknown: Vec<String>,
    /// Edits that rewrite media addresses in canonical spelling.
    media: Edits,
    /// Range of the model name in the body.
    model_at: Option<Range<usize>>,
    /// True if `model` replaces the name in the body, or supplies a missing one.
    overrides_model: bool,
    /// True if the request has a form that only the engine knows: no `input`, or an encoding that the API does not
    /// have. Its answer is then passed on unchanged.
    pub is_foreign: bool,
}

impl EmbeddingsRequest {
    /// Parses and checks an embeddings request under the operator's rules.
    ///
    /// # Errors
    /// Fails on the first invalid field, with its `param`.
    pub fn read(body: &Bytes, rules: &Rules) -> Result<Self, Failure> {
        let from = Checked::of(body, KNOWN, rules)?;
        let encoding = from
            .get("encoding_format")
            .map_or("null", |field| field.value.get());
        let is_other = from.get("input").is_none() && from.unknown().next().is_some();
        let is_foreign = is_other || !matches!(encoding, "null" | "\"float\"" | "\"base64\"");
        let mut media = match from.required("input", !is_other)? {
            // SGLang accepts objects with images here, vLLM accepts `messages`.
            Some(input) => {
                let mut judge = AddressCheck::new(from.text, &from.strings, &rules.media);
                judge.content(input.value, || "input".to_owned())?;
                judge.edits
            }
            None => Edits::default(),
        };
        no_duplicates(from.all(), &["messages"], "")?;
        if from.get("messages").is_some() {
            media.extend(chat::messages(&from)?.0);
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

    /// Overrides the model name, whatever the body contains.
    pub fn name_model(&mut self, model: &str) {
        model.clone_into(&mut self.model);
        self.overrides_model = true;
    }

    /// Returns the body for the engine; `alias` is the engine's name for the model, where it differs.
    ///
    /// # Errors
    /// Fails on a field that the API does not name, where such fields are refused.
    pub fn body(
        &self,
        body: &Bytes,
        alias: Option<&str>,
        policy: RequestUnknown,
    ) -> Result<Bytes, Failure> {
        let dropped = match self.unknown.first() {
            Some(key) if policy == RequestUnknown::Reject => return Err(refusals::unknown(key)),
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
            let members = fields::read(text)?;
            edits.remove(text, &members, |member| {
                self.unknown.iter().any(|key| *key == member.key)
            });
        }
        edits.apply_within_limit(&body.slice_ref(text.as_bytes()))
    }
}
