//! Who asks, and what that opens: the tenant, the models, the options (faults 10).
//!
//! Where no keys are checked, everybody who sends the same key to the engine is one tenant, and all models are there.

use super::azure::{PresentedKey, RouteFamily};
use super::context::RequestContext;
use crate::auth::masked;
use crate::request::invalid;
use crate::wire::fault::{Failure, Fault};
use http::{HeaderMap, request};
use std::sync::Arc;

/// Characters of the name of a model. Answers name it on every frame (faults C46).
const LONGEST_MODEL: usize = 512;

/// What is said of a model that is not there, and of one that is not there for this caller.
pub(super) fn no_such_model(name: &str) -> Failure {
    let message = format!("The model `{}` does not exist.", shown(name));
    Failure::from(Fault::ModelNotFound).with_message(message).with_param("model")
}

/// Returns the refusal of a model that the caller's plan does not have.
fn not_included(name: &str) -> Failure {
    let message = format!("The plan of this key does not include the model `{}`.", shown(name));
    Failure::from(Fault::UsageNotIncluded).with_message(message).with_param("model")
}

/// A client's name of a model as it may stand in a message.
fn shown(name: &str) -> String {
    name.chars().filter(|request| !request.is_control()).take(64).collect()
}

/// Returns the refusal of a key, in OpenAI's words, by which client libraries tell it from other errors (faults 1).
fn wrong_key(shown: &str) -> Failure {
    let message = format!(
        "Incorrect API key provided: {shown}. Check the key, or ask for one where this service is run."
    );
    Failure::from(Fault::InvalidApiKey).with_message(message)
}

impl RequestContext {
    /// Finds out who asks, before anything is told or read. All paths are behind this, also those that lead nowhere: what
    /// a path means is decided once, and not here.
    pub(super) fn recognise(&mut self, head: &request::Parts) -> Result<(), Failure> {
        let Some(keys) = &self.app.config.auth else { return Ok(()) };
        // A mistyped path is of no family; who comes with Azure's header is told of the path, and not of the key.
        let family =
            if head.uri.path().starts_with("/openai/") { RouteFamily::Undated } else { RouteFamily::Plain };
        let caller = match family.shown(&head.headers) {
            PresentedKey::Nothing => return Err(Fault::MissingApiKey.into()),
            PresentedKey::Several => return Err(wrong_key("the request has more than one")),
            PresentedKey::Key(key) => keys.caller(key).ok_or_else(|| wrong_key(&masked(key)))?,
        };
        self.caller = Some(Arc::clone(caller));
        if let Some(record) = &mut self.record {
            record.caller.clone_from(&self.caller);
        }
        Ok(())
    }

    /// Whose responses and conversations there are for this request.
    pub(super) fn tenant(&self, headers: &HeaderMap) -> Arc<str> {
        match &self.caller {
            Some(caller) => Arc::clone(&caller.tenant),
            None => self.family.tenant(headers),
        }
    }

    pub(super) fn may_use(&self, model: &str) -> bool {
        self.caller.as_ref().is_none_or(|caller| caller.may_use(model))
    }

    /// Fails on a model that is not there for this caller, and on a name that is too long to be one.
    pub(super) fn check_model(&mut self, model: &str) -> Result<(), Failure> {
        if let Some(record) = &mut self.record {
            record.named(model);
        }
        if model.chars().nth(LONGEST_MODEL).is_some() {
            return Err(invalid("model", &format!("it must have at most {LONGEST_MODEL} characters")));
        }
        if self.may_use(model) {
            return Ok(());
        }
        let lacks = self.caller.as_ref().is_some_and(|caller| caller.lacks(model));
        Err(if lacks { not_included(model) } else { no_such_model(model) })
    }
}
