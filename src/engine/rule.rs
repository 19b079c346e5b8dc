//! Request rules: the changes that an engine needs in requests, as data. Each rule carries the versions that need it
//! and its evidence; `plan::adapt` applies them.

use super::{EngineIdentity, EngineVersion, Front, Versions};
use crate::request::{KeySet, THINKING_SWITCHES};

/// Request rule: one change in requests for an engine, with its name in metrics, the versions and front end that
/// need it, and the evidence for it.
#[derive(Clone, Copy, Debug)]
pub struct RequestRule {
    /// Name in metrics and explanations.
    pub name: &'static str,
    /// Description of the change, for explanations.
    pub what: &'static str,
    /// Versions of the engine that need the change.
    pub versions: Versions,
    /// Front end that needs the change; `None`: any.
    pub front: Option<Front>,
    /// The change itself.
    pub change: RuleChange,
    /// Parts of a request that the change looks at, known before any request comes.
    pub(crate) subject: Subject,
    /// Evidence for the rule: a fixture's path, or a section of docs/engines.md, as in `engines E.2`.
    pub evidence: &'static str,
}

impl RequestRule {
    /// Creates a rule for every version and front end, without evidence; the builder methods below narrow it.
    pub(super) const fn new(name: &'static str, what: &'static str, change: RuleChange) -> Self {
        let subject = Subject::of(change);
        Self {
            name,
            what,
            versions: Versions::ALL,
            front: None,
            change,
            subject,
            evidence: "",
        }
    }

    /// Limits the rule to this version and later ones.
    pub(super) const fn from(self, version: EngineVersion) -> Self {
        Self {
            versions: Versions::from(version),
            ..self
        }
    }

    /// Limits the rule to versions before this one.
    pub(super) const fn before(self, version: EngineVersion) -> Self {
        Self {
            versions: Versions::before(version),
            ..self
        }
    }

    /// Limits the rule to versions from `from` on, `before` excluded.
    pub(super) const fn within(self, from: EngineVersion, before: EngineVersion) -> Self {
        Self {
            versions: Versions::within(from, before),
            ..self
        }
    }

    /// Limits the rule to this front end.
    pub(super) const fn behind(self, front: Front) -> Self {
        Self {
            front: Some(front),
            ..self
        }
    }

    /// Sets the evidence: a fixture's path or a section.
    pub(super) const fn with_evidence(self, evidence: &'static str) -> Self {
        Self { evidence, ..self }
    }

    /// Returns true if the engine's version and front end need this rule. An unknown version counts as the newest.
    pub fn is_for(&self, identity: &EngineIdentity) -> bool {
        self.versions.has(identity.version)
            && self.front.is_none_or(|front| front == identity.front)
    }
}

/// Change to a request, made by `plan::adapt`. Most changes apply to Chat Completions alone
/// ([`RuleChange::is_of_chat`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleChange {
    /// Renames a member (first key to second key); a value already present under the second key wins.
    Rename(&'static str, &'static str),
    /// Copies a member to a second key, for engines of which some versions read one key and some the other.
    Copy(&'static str, &'static str),
    /// Removes the second key, an older name, if the first key is present too: the newer one wins.
    Supersede(&'static str, &'static str),
    /// Refuses a request whose number is out of range, because the engine would accept the number and ignore it.
    Range {
        /// Key of the number.
        key: &'static str,
        /// Smallest value that the engine respects.
        least: i64,
        /// Engine's behaviour without the rule, for the error message.
        why: &'static str,
    },
    /// Removes members that the engine refuses and that do not matter to it.
    Drop(&'static [&'static str]),
    /// Refuses a request with a member that the engine lacks and would ignore, unless its value is a list of nothing
    /// but the words in `supported`, or the operator allows the member (`requests.allowed_fields`).
    Refuse {
        /// Key of the member.
        key: &'static str,
        /// Values that the engine does support, as JSON.
        supported: &'static [&'static str],
        /// Reason, for the error message.
        why: &'static str,
    },
    /// Removes `stream_options`, which the engine refuses; the engine reports usage anyway.
    NoStreamOptions,
    /// Removes members of the API that are null, because some engines refuse null where OpenAI treats it as absent.
    Nulls,
    /// Removes empty stop strings.
    EmptyStops,
    /// Rewrites members that constrain the answer (schema, regular expression …) to the spelling this engine reads.
    ///
    /// Both lists are in the order schema, regular expression, list of words, grammar.
    Constrain {
        /// Keys that the engine does not read. A dot separates an object's key from the key inside it.
        unread: &'static [&'static str; 4],
        /// Replacements that the engine reads.
        read: &'static [Constraint; 4],
    },
    /// Asks for one choice per request, and sends one request for each choice, because the engine gives only one.
    FanOut {
        /// True if the engine gives several choices, but fails at streams in which tools may be called.
        calls: bool,
    },
    /// Adds a name to a JSON schema in `response_format` that has none.
    SchemaName,
    /// Turns a `reasoning` object, as other services take it, into `reasoning_effort`.
    ReasoningObject {
        /// True if the engine reads the object: it is kept if it holds more than an effort.
        is_read: bool,
    },
    /// Turns the effort `none` into the chat template's switches that disable reasoning.
    NoReasoning,
    /// Turns other services' switches for reasoning (`thinking`, `enable_thinking`, `think`) into those of chat
    /// templates.
    ThinkingSwitch {
        /// True if the engine reads `thinking_token_budget`.
        budget: bool,
    },
    /// Removes a `thinking_token_budget` that [`RuleChange::ThinkingSwitch`] has set.
    BudgetLeftOut,
    /// Replaces an unsupported reasoning effort with the nearest of these.
    Efforts(&'static [&'static str]),
    /// Same as [`RuleChange::Efforts`], for gpt-oss models only.
    HarmonyEfforts(&'static [&'static str]),
    /// Replaces the effort with the nearest one that this model takes, as a refusal or the configuration says.
    LearnedEffort,
    /// Merges the texts of all system and developer messages into one system message at the start.
    MergeSystem,
    /// Changes the messages of the finished body, which `plan::changed_messages` does last.
    OfFinishedBody,
    /// Changes the role `developer` to `system`, if the options ask for it or the engine refuses the role.
    Developer {
        /// True if the engine refuses the role.
        always: bool,
    },
    /// Turns `functions`, `function_call` and messages of role `function` into tools.
    LegacyFunctions,
    /// Removes an empty list of tools, together with the members that depend on it.
    EmptyTools,
    /// Removes `tool_choice` if there are no tools.
    ChoiceAlone,
    /// Removes all tools if `tool_choice` is `none`, so that they are not in the prompt.
    ChoiceNone,
    /// Applies `allowed_tools`: removes the other tools and replaces the choice with its mode.
    AllowedTools,
    /// Turns custom tools into functions with one string parameter.
    CustomTools,
    /// Sets `tool_choice` to `none`: the model still sees the tools, and samewire reads the calls from its text.
    CallsInText,
    /// Limits the answer to one call if the client wants no parallel calls; the request itself stays unchanged.
    OneCall,
    /// Moves reasoning in assistant messages to the key that the engine reads.
    ReasoningKey(&'static str),
    /// Removes members of assistant messages that the engine does not read and may refuse.
    DropOfAssistant(&'static [&'static str]),
    /// Removes `tool_calls` that are null or empty from assistant messages.
    NoCalls,
    /// Adds empty content to assistant messages that have calls and no content, because the engine requires it.
    ContentBesideCalls,
    /// Replaces the arguments of calls in assistant messages with a JSON object if they are none.
    Arguments,
    /// Joins the text parts of a tool message into one string.
    ToolText,
    /// Converts or refuses message parts of this type.
    Part(&'static str, Becomes),
    /// Continues the last message if it is an assistant's: sets members that tell the engine not to start a new one.
    ContinueMessage {
        /// Members to set, with their values as JSON.
        members: &'static [(&'static str, &'static str)],
        /// True if this also applies when the message is a finished item of a Responses request.
        items: bool,
    },
}

impl RuleChange {
    /// Returns true if the change applies to Chat Completions alone, such as those to messages, tools and reasoning.
    pub fn is_of_chat(self) -> bool {
        !matches!(
            self,
            Self::Rename(..)
                | Self::Copy(..)
                | Self::Drop(_)
                | Self::NoStreamOptions
                | Self::Nulls
                | Self::EmptyStops
                | Self::Constrain { .. }
                | Self::FanOut { .. }
        )
    }
}

/// Parts of a request that a change looks at: it leaves a request alone that has none of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Subject {
    /// Keys of the request object.
    pub(crate) members: KeySet,
    /// True if structured messages are looked at too.
    pub(crate) messages: bool,
}

impl Subject {
    const NONE: Self = Self {
        members: KeySet::NONE,
        messages: false,
    };
    const MESSAGES: Self = Self {
        messages: true,
        ..Self::NONE
    };

    const fn of(change: RuleChange) -> Self {
        match change {
            RuleChange::Rename(key, _)
            | RuleChange::Copy(key, _)
            | RuleChange::Supersede(key, _)
            | RuleChange::Range { key, .. }
            | RuleChange::Refuse { key, .. } => Self::NONE.and(&[key]),
            RuleChange::Drop(keys) => Self::NONE.and(keys),
            RuleChange::NoStreamOptions => Self::NONE.and(&["stream_options"]),
            RuleChange::Nulls => Self {
                members: KeySet::ALL,
                messages: false,
            },
            RuleChange::EmptyStops => Self::NONE.and(&["stop"]),
            RuleChange::Constrain { unread, .. } => Self::NONE.and(unread),
            RuleChange::FanOut { .. } => Self::NONE.and(&["n"]),
            RuleChange::SchemaName => Self::NONE.and(&["response_format"]),
            RuleChange::ReasoningObject { .. } => Self::NONE.and(&["reasoning"]),
            RuleChange::NoReasoning
            | RuleChange::Efforts(_)
            | RuleChange::HarmonyEfforts(_)
            | RuleChange::LearnedEffort => Self::NONE.and(&["reasoning_effort"]),
            // A budget outside the body comes with an effort.
            RuleChange::ThinkingSwitch { .. } => Self::NONE
                .and(&THINKING_SWITCHES)
                .and(&["reasoning_effort"]),
            RuleChange::BudgetLeftOut => Self::NONE.and(&["thinking", "reasoning_effort"]),
            RuleChange::MergeSystem | RuleChange::OfFinishedBody => Self::NONE.and(&["messages"]),
            RuleChange::LegacyFunctions => Self::MESSAGES.and(&["functions", "function_call"]),
            RuleChange::EmptyTools | RuleChange::CallsInText => Self::NONE.and(&["tools"]),
            RuleChange::ChoiceAlone | RuleChange::ChoiceNone | RuleChange::AllowedTools => {
                Self::NONE.and(&["tool_choice"])
            }
            RuleChange::CustomTools => Self::MESSAGES.and(&["tools", "tool_choice"]),
            RuleChange::OneCall => Self::NONE,
            RuleChange::Developer { .. }
            | RuleChange::ReasoningKey(_)
            | RuleChange::DropOfAssistant(_)
            | RuleChange::NoCalls
            | RuleChange::ContentBesideCalls
            | RuleChange::Arguments
            | RuleChange::ToolText
            | RuleChange::Part(..)
            | RuleChange::ContinueMessage { .. } => Self::MESSAGES,
        }
    }

    /// Adds members. A dot separates an object's key from the key inside it.
    const fn and(mut self, mut keys: &[&str]) -> Self {
        while let [key, rest @ ..] = keys {
            self.members = self.members.with(KeySet::of(outer(key)));
            keys = rest;
        }
        self
    }
}

/// Returns the part of a key before its first dot.
const fn outer(key: &str) -> &str {
    let mut rest = key.as_bytes();
    while let [first, after @ ..] = rest
        && *first != b'.'
    {
        rest = after;
    }
    key.split_at(key.len() - rest.len()).0
}

/// Conversion of a message part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Becomes {
    /// A text part, whose text is now at this key.
    Text(&'static str),
    /// An `image_url` part, with the address in an object.
    ImageUrl,
    /// A text part with the content of a file. The request is refused if that is no text.
    FileText,
}

/// Spelling of one output constraint, as the engine reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Constraint {
    /// A member of the request.
    Member(&'static str),
    /// A member of an object: the object's key, then the member's key.
    Inside(&'static str, &'static str),
    /// `response_format` in Chat Completions; in other APIs the member of this key, a string that holds the schema
    /// as JSON.
    Format(&'static str),
    /// A regular expression under this key, made from the list of words.
    Expression(&'static str),
    /// No equivalent: the member stays unchanged, and the engine refuses it.
    Unsupported,
}

/// Returns the request rules that an engine needs in its version and with its front end, in the order of application.
pub fn rules_for(identity: &EngineIdentity) -> impl Iterator<Item = &'static RequestRule> {
    let identity = *identity;
    identity
        .engine
        .rules()
        .filter(move |rule| rule.is_for(&identity))
}
