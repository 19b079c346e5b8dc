//! Authentication of a request and what the caller may access: its tenant and its models (faults 10).
//!
//! Takes: the head of a request. Gives: the caller, the tenant, or a refusal. Remembers: the caller, in the
//! context of the request and in its record. Never: reads a body.
//!
//! Without configured keys, requests that send the same key for the engine share a tenant, and may use all models.

use super::azure::{PresentedKey, RouteFamily};
use crate::auth::masked;
use crate::request::invalid;
use crate::server::batch::identity::LineIdentity;
use crate::server::batch::registry::LineStart;
use crate::server::context::RequestContext;
use crate::wire::fault::{Failure, Fault};
use http::{HeaderMap, request};
use std::sync::Arc;

/// Header by which a client whose key may do so has a single request captured.
const CAPTURE: &str = "x-samewire-capture";
/// Upper limit for the characters of a model name: answers repeat the name on every frame (faults C46).
const LONGEST_MODEL: usize = 512;

/// Returns the error for an unknown model. A model that the caller's key does not list gets the same error, so
/// that its existence is not revealed.
pub(in crate::server) fn no_such_model(name: &str) -> Failure {
    let message = format!("The model `{}` does not exist.", printable_name(name));
    Failure::from(Fault::ModelNotFound).with_message(message).with_param("model")
}

/// Returns the refusal of a model that the caller's plan does not have.
fn not_included(name: &str) -> Failure {
    let message = format!("The plan of this key does not include the model `{}`.", printable_name(name));
    Failure::from(Fault::UsageNotIncluded).with_message(message).with_param("model")
}

/// Returns a client's name or id made safe for a message: without control characters, cut after 64 characters.
pub(in crate::server) fn printable_name(name: &str) -> String {
    name.chars().filter(|request| !request.is_control()).take(64).collect()
}

/// Returns the refusal of a key, in OpenAI's wording, by which client libraries tell it from other errors (faults
/// 1).
fn wrong_key(shown: &str) -> Failure {
    let message = format!(
        "Incorrect API key provided: {shown}. Check the key, or ask for one where this service is run."
    );
    Failure::from(Fault::InvalidApiKey).with_message(message)
}

impl RequestContext {
    /// Authenticates the caller before the body is read or anything is revealed. Fails if the key is missing,
    /// ambiguous or unknown. Applies to every path, even an unknown one, because paths are interpreted elsewhere.
    pub(in crate::server) fn authenticate(&mut self, head: &request::Parts) -> Result<(), Failure> {
        if let Some(line) = head.extensions.get::<LineIdentity>() {
            return self.authenticate_line(head, line);
        }
        let Some(keys) = &self.app.config.auth else {
            self.capture(head, false);
            return Ok(());
        };
        // A mistyped path belongs to no family. Azure's header counts there all the same, so that the error
        // concerns the path and not the key.
        let family =
            if head.uri.path().starts_with("/openai/") { RouteFamily::Undated } else { RouteFamily::Plain };
        let caller = match family.presented_key(&head.headers) {
            PresentedKey::Missing => return Err(Fault::MissingApiKey.into()),
            PresentedKey::Several => return Err(wrong_key("the request has more than one")),
            PresentedKey::Key(key) => keys.caller(key).ok_or_else(|| wrong_key(&masked(key)))?,
        };
        self.caller = Some(Arc::clone(caller));
        if let Some(record) = &mut self.record {
            record.authenticated(self.caller.clone());
        }
        let is_wanted = caller.may_capture && head.headers.get(CAPTURE).is_some_and(|value| value == "1");
        self.capture(head, is_wanted);
        Ok(())
    }

    /// Authenticates a line of a batch by the client who created the batch. Fails if that client's key is no longer
    /// valid.
    fn authenticate_line(&mut self, head: &request::Parts, line: &LineIdentity) -> Result<(), Failure> {
        self.line_tenant = Some(Arc::clone(&line.tenant));
        self.line_start = head.extensions.get::<Arc<LineStart>>().cloned();
        if let Some(keys) = &self.app.config.auth {
            let caller = keys.caller_with_counters(&line.caller);
            let revoked = "The key with which the batch was created is not valid any more.";
            let caller = caller.filter(|caller| caller.tenant == line.tenant);
            let caller = caller.ok_or_else(|| Failure::from(Fault::InvalidApiKey).with_message(revoked))?;
            self.caller = Some(Arc::clone(caller));
        }
        if let Some(record) = &mut self.record {
            record.authenticated(self.caller.clone());
        }
        self.capture(head, false);
        Ok(())
    }

    /// Begins to record the exchange, if requests are captured or this one is to be.
    fn capture(&mut self, head: &request::Parts, is_wanted: bool) {
        if let Some(record) = &mut self.record {
            record.capture(head, is_wanted);
            self.recording.clone_from(&record.recording);
        }
    }

    /// Returns the tenant whose stored responses and conversations this request may access.
    pub(in crate::server) fn tenant(&self, headers: &HeaderMap) -> Arc<str> {
        match (&self.line_tenant, &self.caller) {
            (Some(tenant), _) => Arc::clone(tenant),
            (None, Some(caller)) => Arc::clone(&caller.tenant),
            (None, None) => self.family.tenant(headers),
        }
    }

    pub(in crate::server) fn may_use(&self, model: &str) -> bool {
        self.caller.as_ref().is_none_or(|caller| caller.may_use(model))
    }

    /// Checks the requested model, and notes its name in the record. Fails if the caller may not use the model, or
    /// if the name is too long.
    pub(in crate::server) fn check_model(&mut self, model: &str) -> Result<(), Failure> {
        if let Some(record) = &mut self.record {
            record.named(model);
        }
        if model.chars().nth(LONGEST_MODEL).is_some() {
            return Err(invalid("model", &format!("it must have at most {LONGEST_MODEL} characters")));
        }
        if self.may_use(model) {
            return Ok(());
        }
        let lacks = self.caller.as_ref().is_some_and(|caller| caller.excludes(model));
        Err(if lacks { not_included(model) } else { no_such_model(model) })
    }
}
