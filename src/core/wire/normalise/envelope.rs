//! Envelope of an answer: id, time, model, tier and fingerprint (wire-format 2.1, 2.7).
//!
//! Takes: the heads of the engine's chunks. Gives: the head that the client gets. Remembers: what was said first. Never:
//! changes id, time or model.

use crate::json::Text;
use crate::wire::event::Head;
use crate::wire::options::SystemFingerprint;
use crate::wire::rule::{Rule, Tally};
use crate::wire::{Shape, Stamp, ident};

/// Envelope of the answer. Id, time and model are fixed by the first usable event; tier and fingerprint are added
/// once known.
#[derive(Debug)]
pub(super) struct AnswerEnvelope {
    /// Id and time as the engine spells them, to notice changes.
    engine: (String, Option<u64>),
    pub(super) id: String,
    created: u64,
    model: String,
    tier: Option<String>,
    fingerprint: Option<String>,
}

impl AnswerEnvelope {
    /// Creates the envelope from the first head.
    pub(super) fn of(head: &Head<'_>, shape: &Shape, stamp: &Stamp, tally: &mut Tally) -> Self {
        let engine = head
            .id
            .map(|id| id.decoded().into_owned())
            .unwrap_or_default();
        // The prefix is that of the upstream API; the Responses encoder replaces it when it begins its object.
        let prefix = shape.upstream.id_prefix();
        let id = match engine.as_str() {
            id if id.is_empty() || shape.quirks.recurring_ids => format!("{prefix}{}", stamp.id),
            engine => ident::completion(engine, prefix),
        };
        if id != engine {
            tally.count(Rule::Id);
        }
        let said = head
            .model
            .map(|model| ident::bounded_name(&model.decoded()).to_owned());
        let said = said.filter(|model| !model.is_empty());
        let model = match shape.options.model_name.as_str() {
            "upstream" => said.unwrap_or_else(|| shape.model.clone()),
            "requested" => shape.model.clone(),
            alias => alias.to_owned(),
        };
        let created = head
            .created
            .filter(|created| *created > 0)
            .unwrap_or(stamp.now);
        Self {
            engine: (engine, head.created),
            id,
            created,
            model,
            tier: None,
            fingerprint: None,
        }
    }

    /// Counts a later head that has another id or time.
    pub(super) fn compare(&self, head: &Head<'_>, tally: &mut Tally) {
        let id_changed = head.id.is_some_and(|id| id != self.engine.0.as_str());
        if id_changed || head.created != self.engine.1 {
            tally.count(Rule::Envelope);
        }
    }

    /// Stores tier and fingerprint when they first become known. Returns true if the envelope has changed.
    pub(super) fn add(&mut self, head: &Head<'_>, shape: &Shape, tally: &mut Tally) -> bool {
        let mut changed = false;
        if self.tier.is_none() {
            const TIERS: &[&str] = &["auto", "default", "flex", "scale", "priority", "fast"];
            let tier = head
                .tier
                .map(|tier| tier.decoded())
                .filter(|tier| TIERS.contains(&tier.as_ref()));
            changed |= tier.is_some();
            self.tier = tier.map(|tier| tier.into_owned());
        }
        let Some(said) = head
            .fingerprint
            .map(|said| said.decoded())
            .filter(|said| !said.is_empty())
        else {
            return changed;
        };
        let options = &shape.options;
        let fingerprint = match options.system_fingerprint {
            SystemFingerprint::Strip => None,
            SystemFingerprint::Hash => Some(ident::fingerprint(&said, &options.fingerprint_salt)),
            SystemFingerprint::Pass => Some(ident::bounded_name(&said).to_owned()),
        };
        if fingerprint.as_deref() != Some(said.as_ref()) {
            tally.count(Rule::Fingerprint);
        }
        if self.fingerprint.is_none() && fingerprint.is_some() {
            self.fingerprint = fingerprint;
            changed = true;
        }
        changed
    }

    /// Returns the head that the client gets.
    pub(super) fn head(&self) -> Head<'_> {
        Head {
            id: Some(Text::plain(&self.id)),
            created: Some(self.created),
            model: Some(Text::plain(&self.model)),
            tier: self.tier.as_deref().map(Text::plain),
            fingerprint: self.fingerprint.as_deref().map(Text::plain),
        }
    }
}
