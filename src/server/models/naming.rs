//! Model that a request is for: by its path, its body or the configuration (wire-format 2.10); of Messages also in place of
//! one of Anthropic's (messages 2.5).

use super::lists;
use crate::json;
use crate::request::fields;
use crate::server::admit::auth::ClientIdentity;
use crate::server::admitted::Admitted;
use crate::server::printable::printable_name;
use crate::server::reply::ClientReply;
use crate::upstream::Pool;
use crate::wire::fault::{Failure, Fault};
use bytes::Bytes;
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
    fn is_new(&self, requested: &str, meant: &Arc<str>) -> bool {
        let mut known = self.0.lock();
        known.len() < CLAUDE_NAMES && known.insert((requested.into(), Arc::clone(meant)))
    }
}

/// Body of a request, and the model that its path or the configuration gives it.
pub(in crate::server) struct Named {
    /// Body with the configured defaults of the model.
    pub(in crate::server) body: Bytes,
    /// Model that takes precedence over the one in the body; `None`: that one is meant.
    pub(in crate::server) given: Option<String>,
    /// Model that the body names, if it was looked for.
    pub(in crate::server) named: Option<String>,
}

/// Decides the model of a request as far as its body must be known for it: by the deployment in the path and, if the
/// model has defaults or (`by_model`) decides how the body is read, by the body's own name or the default model.
///
/// # Errors
/// Fails as [`default_model`] does.
pub(in crate::server) async fn name(
    admitted: &Admitted<'_>,
    reply: &mut ClientReply,
    body: Bytes,
    by_model: bool,
) -> Result<Named, Failure> {
    let pool = &admitted.app.pool;
    let mut given = admitted.identity.family.deployment(admitted.head);
    let has_defaults = pool.models().iter().any(|model| !model.defaults.is_empty());
    if !has_defaults && (!by_model || given.is_some()) {
        return Ok(Named {
            body,
            given,
            named: None,
        });
    }
    let named = named(&body);
    if given.is_none() && named.is_none() {
        given = default_model(admitted, reply)
            .await?
            .as_deref()
            .map(ToOwned::to_owned);
    }
    let body = match pool.model(given.as_ref().or(named.as_ref()).map_or("", String::as_str)) {
        Some((_, known)) => fields::with_defaults(body, &known.defaults),
        None => body,
    };
    Ok(Named { body, given, named })
}

/// Completes [`name`] once the body is parsed: `parsed` is the model that it names. Returns the model that takes its
/// place, if any.
///
/// # Errors
/// Fails as [`default_model`] and [`check`] do.
pub(in crate::server) async fn settle(
    admitted: &Admitted<'_>,
    reply: &mut ClientReply,
    parsed: &str,
) -> Result<Option<Arc<str>>, Failure> {
    let given = match admitted.identity.family.deployment(admitted.head) {
        Some(deployment) => Some(deployment.into()),
        None if parsed.is_empty() => default_model(admitted, reply).await?,
        None => None,
    };
    check(admitted, reply, given.as_deref().unwrap_or(parsed))?;
    Ok(given)
}

/// Notes the model in the record. Fails if the caller may not use it, or if its name is too long.
pub(in crate::server) fn check(
    admitted: &Admitted<'_>,
    reply: &mut ClientReply,
    model: &str,
) -> Result<(), Failure> {
    reply.note(|record| record.named(model));
    admitted.identity.check_model(model)
}

/// Returns the model for a request that names none: `default_model` of the configuration, else the only one
/// that the upstreams list, as far as the caller may use it. `None` if a single upstream does not report its
/// models: it then chooses by itself.
///
/// # Errors
/// `missing_required_parameter` if several could be meant; the message lists them.
pub(in crate::server) async fn default_model(
    admitted: &Admitted<'_>,
    reply: &mut ClientReply,
) -> Result<Option<Arc<str>>, Failure> {
    let (app, identity) = (admitted.app, &admitted.identity);
    let configured = app.config.default_model.clone();
    if let Some(model) = configured.filter(|model| identity.may_use(model)) {
        return Ok(Some(model));
    }
    if app.pool.main_models().is_none() {
        // The lists come with the first probe, or with the client's own key. An error here occurs again below.
        let passed = std::mem::take(&mut reply.passed);
        let _ = Box::pin(lists::all_models(admitted, reply)).await;
        reply.passed = passed;
    }
    let listed = app.pool.main_models();
    let usable = |model| usable_name(&app.pool, identity, model);
    let all: Vec<Arc<str>> = listed.iter().flatten().filter_map(usable).collect();
    match all.as_slice() {
        [only] => Ok(Some(Arc::clone(only))),
        // A caller restricted to some models must not reach others by naming none.
        [] if app.pool.is_single() && identity.may_use("") => Ok(None),
        all => Err(missing(all)),
    }
}

/// Returns the model for a request of Messages whose body names `named`: for one of Anthropic's models that neither the
/// configuration nor an engine knows, and for none, the default model. `None`: the body's name counts, or the engine
/// chooses. Claude Code has such names unless its user names a model.
///
/// # Errors
/// Fails as [`default_model`] does, if the body names none; or if it is no object.
pub(in crate::server) async fn model_of_message(
    admitted: &Admitted<'_>,
    reply: &mut ClientReply,
    body: &[u8],
    named: Option<&str>,
) -> Result<Option<Arc<str>>, Failure> {
    let app = admitted.app;
    let Some(requested) = named else {
        // A body that is no object has its own error.
        fields::check_object(body)?;
        return default_model(admitted, reply).await;
    };
    if !requested.starts_with(CLAUDE) || app.pool.knows(requested) {
        return Ok(None);
    }
    let meant = default_model(admitted, reply).await.ok().flatten();
    // Only now have all engines listed their models.
    let Some(meant) = meant.filter(|_| !app.pool.knows(requested)) else {
        return Ok(None);
    };
    if app.logged_substitutes.is_new(requested, &meant) {
        tracing::warn!(
            asked = printable_name(requested),
            model = &*meant,
            "no model has this name, so the model answers for it; Claude Code takes 200,000 tokens of context for granted \
             with such a name: give it the model's own, as `samewire env claude` prints it"
        );
    }
    Ok(Some(meant))
}

/// Returns the name by which the caller may use a listed model: its own, or an alias.
fn usable_name(pool: &Pool, identity: &ClientIdentity, model: &Arc<str>) -> Option<Arc<str>> {
    if identity.may_use(model) {
        return Some(Arc::clone(model));
    }
    let (_, known) = pool.model(model)?;
    known
        .alias_names()
        .find(|alias| identity.may_use(alias))
        .map(|alias| alias.as_str().into())
}

/// Returns the model that a body names, if any.
pub(in crate::server) fn named(body: &[u8]) -> Option<String> {
    json::member(std::str::from_utf8(body).ok()?, "model").filter(|name| !name.is_empty())
}

/// Returns the failure for a request that could mean each of these models.
fn missing(all: &[Arc<str>]) -> Failure {
    let mut message = String::from("Missing required parameter: 'model'.");
    if !all.is_empty() {
        let names: Vec<_> = all
            .iter()
            .take(SHOWN)
            .map(|name| format!("`{name}`"))
            .collect();
        let more = if all.len() > SHOWN { " and others" } else { "" };
        message.push_str(&format!(
            " Several models are served: {}{more}.",
            names.join(", ")
        ));
    }
    Failure::from(Fault::MissingParameter)
        .with_message(message)
        .with_param("model")
}
