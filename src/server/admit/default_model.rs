//! Model of a request that names none (wire-format 2.10), or one of Anthropic's that is not there (messages 2.5).

use super::auth::printable_name;
use crate::json;
use crate::request::fields;
use crate::server::context::RequestContext;
use crate::wire::fault::{Failure, Fault};
use bytes::Bytes;
use http::HeaderMap;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;

/// Number of names that an error lists.
const SHOWN: usize = 20;
/// Beginning of the names of Anthropic's models.
const CLAUDE: &str = "claude-";
/// Limit for the names of Anthropic's models that are remembered, and so for the log's lines about them.
const CLAUDE_NAMES: usize = 64;

/// Names of Anthropic's models that the log has, each with the model that answers, so that it has each once.
#[derive(Debug, Default)]
pub(in crate::server) struct LoggedSubstitutes(Mutex<HashSet<(Box<str>, Arc<str>)>>);

impl LoggedSubstitutes {
    /// Returns true for a pair that is new and was kept.
    fn is_new(&self, asked: &str, meant: &Arc<str>) -> bool {
        let mut known = self.0.lock();
        known.len() < CLAUDE_NAMES && known.insert((asked.into(), Arc::clone(meant)))
    }
}

impl RequestContext {
    /// Returns the model for a request that names none: `default_model` of the configuration, else the only one
    /// that the upstreams list, as far as the caller may use it. `None` if a single upstream does not report its
    /// models: it then chooses by itself.
    ///
    /// # Errors
    /// `missing_required_parameter` if several could be meant; the message lists them.
    pub(in crate::server) async fn default_model(
        &mut self,
        headers: &HeaderMap,
    ) -> Result<Option<Arc<str>>, Failure> {
        let configured = self.app.config.default_model.clone();
        if let Some(model) = configured.filter(|model| self.may_use(model)) {
            return Ok(Some(model));
        }
        if self.app.pool.main_models().is_none() {
            // The lists come with the first probe, or with the client's own key. An error here occurs again below.
            let passed = std::mem::take(&mut self.passed);
            let _ = Box::pin(self.all_models(headers)).await;
            self.passed = passed;
        }
        let listed = self.app.pool.main_models();
        let all: Vec<Arc<str>> =
            listed.iter().flatten().filter_map(|model| self.usable_name(model)).collect();
        match all.as_slice() {
            [only] => Ok(Some(Arc::clone(only))),
            // A caller restricted to some models must not reach others by naming none.
            [] if self.app.pool.is_single() && self.may_use("") => Ok(None),
            all => Err(missing(all)),
        }
    }

    /// Returns the model for a request that names one of Anthropic's models, if neither the configuration nor an engine
    /// knows that name: what a request without a name means. `None` if the name stands, or several models could be meant.
    /// Claude Code has such names unless its user names a model.
    pub(in crate::server) async fn substitute_model(
        &mut self,
        asked: &str,
        headers: &HeaderMap,
    ) -> Option<Arc<str>> {
        if !asked.starts_with(CLAUDE) || self.app.pool.knows(asked) {
            return None;
        }
        let meant = self.default_model(headers).await.ok().flatten()?;
        // Only now have all engines listed their models.
        if self.app.pool.knows(asked) {
            return None;
        }
        if self.app.logged_substitutes.is_new(asked, &meant) {
            let asked = printable_name(asked);
            tracing::warn!(
                asked,
                model = &*meant,
                "no model has this name, so the model answers for it; Claude Code takes 200,000 tokens of context for granted \
                 with such a name: give it the model's own, as `samewire env claude` prints it"
            );
        }
        Some(meant)
    }

    /// Returns the body with the configured defaults for parameters that the request does not set. `model` is the
    /// name in the path; if neither path nor body has one, the default model is stored there.
    ///
    /// # Errors
    /// Fails as [`Self::default_model`] does.
    pub(in crate::server) async fn with_defaults(
        &mut self,
        body: Bytes,
        model: &mut Option<String>,
        headers: &HeaderMap,
    ) -> Result<Bytes, Failure> {
        if self.app.pool.models().iter().all(|model| model.defaults.is_empty()) {
            return Ok(body);
        }
        let named = named(&body);
        if model.is_none() && named.is_none() {
            *model = self.default_model(headers).await?.as_deref().map(ToOwned::to_owned);
        }
        Ok(match self.app.pool.model(model.as_ref().or(named.as_ref()).map_or("", String::as_str)) {
            Some((_, known)) => fields::with_defaults(body, &known.defaults),
            None => body,
        })
    }

    /// Returns the name by which the caller may use a listed model: its own, or an alias.
    fn usable_name(&self, model: &Arc<str>) -> Option<Arc<str>> {
        if self.may_use(model) {
            return Some(Arc::clone(model));
        }
        let (_, known) = self.app.pool.model(model)?;
        known.alias_names().find(|alias| self.may_use(alias)).map(|alias| alias.as_str().into())
    }
}

/// Returns the model that a body names, if any.
pub(in crate::server) fn named(body: &[u8]) -> Option<String> {
    json::member(std::str::from_utf8(body).ok()?, "model").filter(|name| !name.is_empty())
}

/// Returns the failure for a request that could mean each of these models.
fn missing(all: &[Arc<str>]) -> Failure {
    let mut message = String::from("Missing required parameter: 'model'.");
    if !all.is_empty() {
        let names: Vec<_> = all.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
        let more = if all.len() > SHOWN { " and others" } else { "" };
        message.push_str(&format!(" Several models are served: {}{more}.", names.join(", ")));
    }
    Failure::from(Fault::MissingParameter).with_message(message).with_param("model")
}
