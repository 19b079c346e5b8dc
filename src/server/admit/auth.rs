//! Authentication of a request and what the caller may access: its tenant and its models (faults 10).
//!
//! Takes: the head of a request. Gives: the caller, the tenant, or a refusal. Never: reads a body.
//!
//! Without configured keys, requests that send the same key for the engine share a tenant, and may use all models.

use super::azure::{PresentedKey, RouteFamily};
use super::batch_line::{LineIdentity, LineStart};
use crate::auth::{Caller, Keyring, masked};
use crate::request::invalid;
use crate::server::printable::printable_name;
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
    Failure::from(Fault::ModelNotFound)
        .with_message(message)
        .with_param("model")
}

/// Returns the refusal of a model that the caller's plan does not have.
fn not_included(name: &str) -> Failure {
    let message = format!(
        "The plan of this key does not include the model `{}`.",
        printable_name(name)
    );
    Failure::from(Fault::UsageNotIncluded)
        .with_message(message)
        .with_param("model")
}

/// Returns the refusal of a key, in OpenAI's wording, by which client libraries tell it from other errors (faults
/// 1).
fn wrong_key(shown: &str) -> Failure {
    let message = format!(
        "Incorrect API key provided: {shown}. Check the key, or ask for one where this service is run."
    );
    Failure::from(Fault::InvalidApiKey).with_message(message)
}

/// Client of a request: who it is and what it may use.
pub(in crate::server) struct ClientIdentity {
    pub(in crate::server) family: RouteFamily,
    /// Authenticated caller; `None` if no keys are configured.
    pub(in crate::server) caller: Option<Arc<Caller>>,
    /// Tenant of the batch, if the request is a line of one.
    line_tenant: Option<Arc<str>>,
    /// Start of that line, until an upstream has been chosen.
    pub(in crate::server) line_start: Option<Arc<LineStart>>,
}

impl ClientIdentity {
    /// Authenticates the caller before the body is read or anything is revealed. Applies to every path, even an
    /// unknown one, because paths are interpreted elsewhere.
    ///
    /// # Errors
    /// The key is missing, ambiguous or unknown.
    pub(in crate::server) fn of(
        head: &request::Parts,
        family: RouteFamily,
        keys: Option<&Keyring>,
    ) -> Result<Self, Failure> {
        let unknown = Self {
            family,
            caller: None,
            line_tenant: None,
            line_start: None,
        };
        if let Some(line) = head.extensions.get::<LineIdentity>() {
            return unknown.of_line(head, line, keys);
        }
        let Some(keys) = keys else { return Ok(unknown) };
        // A mistyped path belongs to no family. Azure's header counts there all the same, so that the error
        // concerns the path and not the key.
        let family = if head.uri.path().starts_with("/openai/") {
            RouteFamily::Undated
        } else {
            RouteFamily::Plain
        };
        let caller = match family.presented_key(&head.headers) {
            PresentedKey::Missing => return Err(Fault::MissingApiKey.into()),
            PresentedKey::Several => return Err(wrong_key("the request has more than one")),
            PresentedKey::Key(key) => keys.caller(key).ok_or_else(|| wrong_key(&masked(key)))?,
        };
        Ok(Self {
            caller: Some(Arc::clone(caller)),
            ..unknown
        })
    }

    /// Adds the client who created the batch of a line. Fails if that client's key is no longer valid.
    fn of_line(
        self,
        head: &request::Parts,
        line: &LineIdentity,
        keys: Option<&Keyring>,
    ) -> Result<Self, Failure> {
        let caller = keys.map(|keys| {
            let revoked = "The key with which the batch was created is not valid any more.";
            let caller = keys.caller_with_counters(&line.caller);
            let caller = caller
                .filter(|caller| caller.tenant == line.tenant)
                .map(Arc::clone);
            caller.ok_or_else(|| Failure::from(Fault::InvalidApiKey).with_message(revoked))
        });
        Ok(Self {
            caller: caller.transpose()?,
            line_tenant: Some(Arc::clone(&line.tenant)),
            line_start: head.extensions.get::<Arc<LineStart>>().cloned(),
            ..self
        })
    }

    /// Returns true if the client wants this request captured, and its key may do so.
    pub(in crate::server) fn wants_capture(&self, head: &request::Parts) -> bool {
        let may_capture = self.line_tenant.is_none()
            && self
                .caller
                .as_ref()
                .is_some_and(|caller| caller.may_capture);
        may_capture && head.headers.get(CAPTURE).is_some_and(|value| value == "1")
    }

    /// Returns the tenant whose stored responses and conversations this client may access.
    pub(in crate::server) fn tenant(&self, headers: &HeaderMap) -> Arc<str> {
        match (&self.line_tenant, &self.caller) {
            (Some(tenant), _) => Arc::clone(tenant),
            (None, Some(caller)) => Arc::clone(&caller.tenant),
            (None, None) => self.family.tenant(headers),
        }
    }

    /// Returns the index of the caller's key in the configuration, which selects its wire options.
    pub(in crate::server) fn key(&self) -> Option<usize> {
        self.caller.as_ref().map(|caller| caller.index)
    }

    pub(in crate::server) fn may_use(&self, model: &str) -> bool {
        self.caller
            .as_ref()
            .is_none_or(|caller| caller.may_use(model))
    }

    /// Returns true if the caller's key lists the models that it may use.
    pub(in crate::server) fn is_restricted(&self) -> bool {
        self.caller
            .as_ref()
            .is_some_and(|caller| !caller.models.is_empty())
    }

    /// Fails if the caller may not use the model, or if its name is too long.
    pub(in crate::server) fn check_model(&self, model: &str) -> Result<(), Failure> {
        if model.chars().nth(LONGEST_MODEL).is_some() {
            return Err(invalid(
                "model",
                &format!("it must have at most {LONGEST_MODEL} characters"),
            ));
        }
        if self.may_use(model) {
            return Ok(());
        }
        let lacks = self
            .caller
            .as_ref()
            .is_some_and(|caller| caller.excludes(model));
        Err(if lacks {
            not_included(model)
        } else {
            no_such_model(model)
        })
    }
}
