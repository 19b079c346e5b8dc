//! What of a request is changed for an engine, as data: each change with the versions that need it and its evidence.

use super::{Front, Identity, Version, Versions};

/// One thing that is changed in requests for an engine.
#[derive(Clone, Copy, Debug)]
pub struct RequestRule {
    /// The name in metrics and explanations.
    pub name: &'static str,
    /// What it changes, in words.
    pub what: &'static str,
    /// The versions that need it.
    pub versions: Versions,
    /// The front end that needs it; `None`: any.
    pub front: Option<Front>,
    /// What is done.
    pub change: Change,
    /// A fixture's path, or the section of docs/engines.md, as in `engine-quirks E.2`.
    pub evidence: &'static str,
}

impl RequestRule {
    /// A rule for every version and front end.
    pub(super) const fn new(name: &'static str, what: &'static str, change: Change) -> Self {
        Self { name, what, versions: Versions::ALL, front: None, change, evidence: "" }
    }

    /// From this version on.
    pub(super) const fn from(self, version: Version) -> Self {
        Self { versions: Versions::from(version), ..self }
    }

    /// In all before this version.
    pub(super) const fn before(self, version: Version) -> Self {
        Self { versions: Versions::before(version), ..self }
    }

    /// From the first version on, before the second.
    pub(super) const fn within(self, from: Version, before: Version) -> Self {
        Self { versions: Versions::within(from, before), ..self }
    }

    /// Behind this front end alone.
    pub(super) const fn behind(self, front: Front) -> Self {
        Self { front: Some(front), ..self }
    }

    /// On this evidence.
    pub(super) const fn seen(self, evidence: &'static str) -> Self {
        Self { evidence, ..self }
    }

    /// Whether an engine of which this is known needs it.
    pub fn is_for(&self, identity: &Identity) -> bool {
        self.versions.has(identity.version) && self.front.is_none_or(|front| front == identity.front)
    }
}

/// What is done to a request. What concerns messages and tools is of Chat Completions alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A member gets another key; where that one is said too, it counts.
    Rename(&'static str, &'static str),
    /// A member is said once more under another key.
    Copy(&'static str, &'static str),
    /// A member counts instead of an older one that says the same otherwise: that is left out.
    Supersede(&'static str, &'static str),
    /// A number outside of this range, which the engine would take and not keep to: the request is refused.
    Range {
        /// Its key.
        key: &'static str,
        /// The least that the engine keeps to.
        least: i64,
        /// The engine's behaviour without the rule.
        why: &'static str,
    },
    /// Members that the engine refuses and can do without.
    Drop(&'static [&'static str]),
    /// A member that asks for what the engine does not have and would pass over: the request is refused, unless the member is
    /// a list of nothing but these words, or the operator lets it through (`requests.allowed_fields`).
    Refuse {
        /// Its key.
        key: &'static str,
        /// What the engine has.
        but: &'static [&'static str],
        /// What is said of it.
        why: &'static str,
    },
    /// `stream_options`, which the engine refuses: it says how much it used anyway.
    NoStreamOptions,
    /// Members that are null, which means that they are not there.
    Nulls,
    /// Stop strings without a character.
    EmptyStops,
    /// Ways to constrain an answer, spelled as this engine knows them.
    Constrain(&'static Constraints),
    /// An engine that gives one choice is asked as often as choices are wanted.
    FanOut {
        /// It gives more, but for streams in which tools may be called.
        calls: bool,
    },
    /// A schema that is to be kept to gets a name.
    SchemaName,
    /// `reasoning` of other services becomes `reasoning_effort`.
    ReasoningObject {
        /// The engine reads it, so it stays where it says more than an effort.
        is_read: bool,
    },
    /// The effort `none` becomes the switches of chat templates.
    NoReasoning,
    /// An effort that is not among these becomes the nearest that is.
    Efforts(&'static [&'static str]),
    /// As [`Change::Efforts`], for gpt-oss alone.
    HarmonyEfforts(&'static [&'static str]),
    /// The texts of all system and developer messages stand in one message, the first.
    MergeSystem,
    /// The role `developer` becomes `system`, where the options say so or the engine refuses it.
    Developer {
        /// It refuses it.
        always: bool,
    },
    /// `functions`, `function_call` and the role `function` become tools.
    Legacy,
    /// An empty list of tools.
    EmptyTools,
    /// A choice among tools where there are none.
    ChoiceAlone,
    /// Tools that must not be called.
    ChoiceNone,
    /// `allowed_tools`: the others are left out.
    AllowedTools,
    /// Custom tools become functions of one string.
    CustomTools,
    /// Tools are shown to the model, and the engine is told that none of them is called.
    CallsInText,
    /// One call is all that the answer has where the client wants no more.
    OneCall,
    /// The key under which reasoning is read in assistant messages.
    ReasoningKey(&'static str),
    /// Members of assistant messages that the engine does not read, and may refuse.
    DropOfAssistant(&'static [&'static str]),
    /// `tool_calls` that are null or empty.
    NoCalls,
    /// Content stands beside calls, if only an empty one.
    ContentBesideCalls,
    /// Arguments of calls are a JSON object.
    Arguments,
    /// The text of a tool is one string.
    ToolText,
    /// Parts of this type become something else.
    Part(&'static str, Becomes),
    /// The last message is the assistant's: it is gone on with.
    GoOn {
        /// Members that say so, with their values.
        members: &'static [(&'static str, &'static str)],
        /// Also where the message is a finished item of a Responses request.
        items: bool,
    },
}

impl Change {
    /// It concerns messages or tools.
    pub fn is_of_chat(self) -> bool {
        !matches!(
            self,
            Self::Rename(..)
                | Self::Copy(..)
                | Self::Drop(_)
                | Self::NoStreamOptions
                | Self::Nulls
                | Self::EmptyStops
                | Self::Constrain(_)
                | Self::FanOut { .. }
        )
    }
}

/// What a part of a message becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Becomes {
    /// Text, which stands at this key now.
    Text(&'static str),
    /// `image_url`, with an object for its address.
    ImageUrl,
    /// Nothing: the request is refused.
    Refused,
}

/// How an engine is told what an answer must keep to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constraints {
    /// The keys that it does not read, for a schema, an expression, a list of words and a grammar. A dot leads into an
    /// object.
    pub unread: [&'static str; 4],
    /// The same that it reads.
    pub read: [Constraint; 4],
}

/// How one of them is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Constraint {
    /// A member of the request.
    Member(&'static str),
    /// A member of an object.
    Inside(&'static str, &'static str),
    /// `response_format` in Chat Completions; elsewhere this member, a string with the schema's JSON.
    Format(&'static str),
    /// Words become an expression.
    Expression(&'static str),
    /// The engine has nothing of the kind: it stays as it is, for the engine to refuse.
    Unsaid,
}

/// Every effort there is, from none to the most.
pub const EFFORTS: &[&str] = &["none", "minimal", "low", "medium", "high", "xhigh", "max"];
