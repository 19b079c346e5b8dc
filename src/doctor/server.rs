//! Server: which engine it is, by what it says about itself.
//!
//! Takes: a sender, and the list of models. Gives: a [`Server`]. Never: makes an engine generate.

use crate::conform::{Answer, Frame};
use crate::engine::rule::rules_for;
use crate::engine::template::{REQUEST_ID, TemplateProbe};
use crate::engine::{
    DetectedParsers, ENGINES, Engine, EngineIdentity, EngineLoad, Flags, Front, RouteAnswer, named,
    of_answer, recognised,
};
use crate::exchange::{Ended, Exchange, Failure, Request, Sender};
use crate::upstream::models::{self, ListedModel};
use crate::wire::TemplateFacts;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method};
use std::collections::{BTreeMap, BTreeSet};

/// Server, as far as it says what it is.
#[derive(Clone, Debug, Default)]
pub struct Server {
    /// Engine, version and front end; `None`: it is none that samewire knows, or it does not say so.
    pub identity: Option<EngineIdentity>,
    /// Routes and marks that show it.
    pub evidence: Vec<String>,
    /// Parsers that the engine runs; `None`: it does not say so.
    pub parsers: Option<DetectedParsers>,
    /// Facts about the tested model's chat template.
    pub template: TemplateFacts,
    /// Models that it lists, but for those without a name.
    pub models: Vec<ListedModel>,
    /// True if it lists models, and none of them has a name.
    pub(super) is_nameless: bool,
    /// Route that other versions or front ends of the engine have, and this server has not.
    pub lacks: Option<&'static str>,
    /// Front end that the routes leave possible, until an answer shows it.
    possible_front: Option<Front>,
    /// True if a route or an answer shows that it is the engine's usual front end.
    shows_usual_front: bool,
}

impl Server {
    /// Returns the name of the engine; empty if it is not known.
    pub fn engine(&self) -> &'static str {
        self.identity.map_or("", |identity| identity.engine.name)
    }

    /// Returns engine, version and front end, for people; `None`: samewire does not know the engine. The usual front end
    /// of an engine that has another is named as soon as an answer shows that it is that one.
    pub fn title(&self) -> Option<String> {
        let identity = self.identity?;
        let other = identity.engine.detection.other_front.as_ref();
        let is_usual = self.shows_usual_front
            && other.is_some_and(|other| other.versions.has(identity.version));
        Some(format!(
            "{identity}{}",
            if is_usual {
                " (front end in Python)"
            } else {
                ""
            }
        ))
    }

    /// Returns true if samewire changes requests for this engine and version by this rule.
    pub(super) fn has_rule(&self, name: &str) -> bool {
        let identity = self
            .identity
            .or_else(|| named("auto").map(EngineIdentity::from));
        identity.is_some_and(|identity| rules_for(&identity).any(|rule| rule.name == name))
    }

    /// Returns the flags with which the engine tells more.
    pub(super) fn flags(&self) -> Flags {
        self.identity
            .map_or(Flags::NONE, |identity| identity.engine.detection.flags)
    }

    /// Returns the listed model of this name.
    pub fn model(&self, name: &str) -> Option<&ListedModel> {
        self.models.iter().find(|model| model.id == name)
    }

    /// Requests the prompts that show what the chat template of a model does.
    pub(super) async fn look_at_template(&mut self, sender: &Sender, model: &str) {
        let Some(routes) = self.identity.and_then(|identity| identity.engine.renders) else {
            return;
        };
        let mut probe = TemplateProbe::new(routes, model);
        while let Some((path, body)) = probe.next_request() {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            headers.insert("x-request-id", HeaderValue::from_static(REQUEST_ID));
            let request = Request {
                method: Method::POST,
                path: path.to_owned(),
                headers,
                body: body.into(),
            };
            match sender.send_to_root(request).await {
                Ok(reply) if reply.ended == Ended::Clean => {
                    probe.take(reply.status.as_u16(), &reply.body);
                }
                // The next one would fail, too.
                _ => break,
            }
        }
        self.template = probe.facts();
    }

    fn set_engine(&mut self, engine: &'static Engine, evidence: String) {
        self.identity = Some(engine.into());
        self.evidence.push(evidence);
    }

    /// Takes the list of models.
    pub(super) fn take_models(&mut self, body: &[u8]) {
        self.models = models::read(body).unwrap_or_default();
        let count = self.models.len();
        self.models.retain(|model| !model.id.trim().is_empty());
        self.is_nameless = count > 0 && self.models.is_empty();
        let owner = self
            .models
            .iter()
            .find_map(|model| Some((recognised(model.owner.as_deref()?)?, model)));
        if let Some((engine, model)) = owner {
            let owner = model.owner.clone().unwrap_or_default();
            self.set_engine(engine, format!("owned_by {owner} in /v1/models"));
        }
    }

    /// Takes an answer as a hint, where no route has told more.
    pub(super) fn take_answer(&mut self, answer: &Answer) {
        // A route that is missing may be missing in a gateway, or in an old version: the chunks are what shows it.
        let has_chunks = answer.chunks().any(|chunk| chunk.choice().is_some());
        match self.possible_front.take_if(|_| has_chunks) {
            Some(front) if leaves_out_nulls(answer) => {
                self.identity = self
                    .identity
                    .map(|identity| EngineIdentity { front, ..identity });
                self.evidence
                    .push("chunks without members that are null".to_owned());
            }
            Some(_) => self.shows_usual_front = true,
            None => {}
        }
        let Some((engine, version)) = of_answer(answer.raw.as_bytes()) else {
            return;
        };
        if self.identity.is_none() {
            self.set_engine(engine, "marks in its answers".to_owned());
        }
        if let Some(identity) = self
            .identity
            .as_mut()
            .filter(|identity| identity.engine == engine)
        {
            identity.version = identity.version.or(version);
        }
    }
}

/// Returns true if a chunk has a choice without `finish_reason`, where the engine's usual front end has null.
fn leaves_out_nulls(answer: &Answer) -> bool {
    answer
        .chunks()
        .filter_map(Frame::choice)
        .any(|choice| choice.get("finish_reason").is_none())
}

/// Routes that were requested, with their answers, so that none is requested twice. The answers are not saved: an
/// engine's settings may have its keys.
pub(super) struct Routes<'s> {
    sender: &'s Sender,
    answers: BTreeMap<&'static str, Exchange>,
}

impl<'s> Routes<'s> {
    pub(super) fn new(sender: &'s Sender) -> Self {
        Self {
            sender,
            answers: BTreeMap::new(),
        }
    }

    async fn get(&mut self, path: &'static str) -> Result<&Exchange, Failure> {
        if !self.answers.contains_key(path) {
            let answer = get(self.sender, path).await?;
            // The next route would stall, too.
            if answer.ended == Ended::Stalled {
                return Err(Failure {
                    unreachable: false,
                    why: format!("{path}: {}", answer.ended.name()),
                });
            }
            self.answers.insert(path, answer);
        }
        let gone = || Failure {
            unreachable: false,
            why: format!("{path} was not asked"),
        };
        self.answers.get(path).ok_or_else(gone)
    }

    /// Finds out what the server is.
    ///
    /// # Errors
    /// Fails if a route does not answer at all; the server keeps what was found out until then.
    pub(super) async fn identify(
        &mut self,
        server: &mut Server,
        header: Option<&str>,
    ) -> Result<(), Failure> {
        if server.identity.is_none() {
            self.find_engine(server).await?;
        }
        let Some(identity) = server.identity else {
            return Ok(());
        };
        for place in identity
            .engine
            .detection
            .places
            .iter()
            .filter(|place| place.version.is_some())
        {
            let answer = self.get(place.path).await?;
            let told = place.read(&answer.body);
            if answer.status.as_u16() == 200 && told.says_version {
                server.evidence.push(place.path.to_owned());
                server.identity = Some(EngineIdentity {
                    version: told.version,
                    ..identity
                });
                server.parsers = told.parsers;
                if told.http2 {
                    let hint = format!(
                        "HTTP/2 in {} (http = \"2\" of the upstream uses it)",
                        place.path
                    );
                    server.evidence.push(hint);
                }
                break;
            }
        }
        let version = server.identity.and_then(|identity| identity.version);
        if let Some(other) = &identity.engine.detection.other_front {
            let answer = self.get(other.missing_route).await?;
            let route = RouteAnswer::of(answer.status.as_u16(), &answer.body);
            server.lacks = (answer.status.as_u16() == 404).then_some(other.missing_route);
            let is_possible = route == RouteAnswer::None && other.is_possible(version, header);
            server.possible_front = is_possible.then_some(other.front);
            server.shows_usual_front =
                matches!(route, RouteAnswer::FastApiHasNone | RouteAnswer::Some);
        }
        Ok(())
    }

    async fn find_engine(&mut self, server: &mut Server) -> Result<(), Failure> {
        for engine in ENGINES {
            for place in engine
                .detection
                .places
                .iter()
                .filter(|place| place.proof.is_some())
            {
                let answer = self.get(place.path).await?;
                if answer.status.as_u16() == 200 && place.proves(&answer.body) {
                    server.set_engine(engine, place.path.to_owned());
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// Sends a GET to one of the engine's own routes.
async fn get(sender: &Sender, path: &'static str) -> Result<Exchange, Failure> {
    let request = Request {
        method: Method::GET,
        path: path.to_owned(),
        headers: HeaderMap::new(),
        body: Bytes::new(),
    };
    sender.send_to_root(request).await
}

/// Returns the most requests to routes that tell what an engine is and what it has to do, with so many looks at its load.
/// All are short, and none makes the model work.
pub(super) fn most_requests(looks: u16) -> u16 {
    let places: BTreeSet<_> = ENGINES
        .iter()
        .flat_map(|engine| engine.detection.places)
        .map(|place| place.path)
        .collect();
    let loads = ENGINES
        .iter()
        .map(|engine| engine.detection.loads.len())
        .max()
        .unwrap_or(0);
    // One for the route that only one front end has.
    u16::try_from(places.len() + 1 + loads + TemplateProbe::MOST)
        .unwrap_or(u16::MAX)
        .saturating_add(looks)
}

/// Returns the load of an engine and the route that tells it, or `None` if no route does. `route`: the one that has told
/// it before.
pub(super) async fn load(
    sender: &Sender,
    engine: &str,
    route: Option<&str>,
) -> Option<(EngineLoad, &'static str)> {
    let is_requested = |path: &str| route.is_none_or(|route| route == path);
    for route in named(engine)?
        .detection
        .loads
        .iter()
        .filter(|route| is_requested(route.path))
    {
        let answer = get(sender, route.path).await.ok()?;
        if let Some(load) = route
            .read(&answer.body)
            .filter(|_| answer.status.as_u16() == 200)
        {
            return Some((load, route.path));
        }
    }
    None
}
