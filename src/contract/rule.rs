//! Rules of the contract: the values of the label `rule` of `samewire_contract_violations_total`.

macro_rules! rules {
    ($($(#[$doc:meta])+ $name:ident = $label:literal,)*) => {
        /// Rule of the contract. The comment on each variant states it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Rule { $($(#[$doc])+ $name,)* }

        impl Rule {
            /// Returns the name in metrics and in the log.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $label,)* }
            }
        }
    };
}

rules! {
    /// A frame is one event of JSON with its blank line (8.2).
    Framing = "framing",
    /// A frame or object satisfies its schema in the published description of the API.
    Schema = "schema",
    /// Id, creation time, model and object are the same in all chunks (1.7).
    Envelope = "envelope",
    /// The role comes first in each choice, and once (2.3 rule 1).
    Role = "role",
    /// A choice has one finish, and nothing after it (2.3 rule 7).
    Finish = "finish",
    /// The usage frame is the last before the end (2.3).
    Usage = "usage",
    /// A call begins with id, type and name, which come once, and calls are numbered from 0 (2.5).
    ToolCall = "tool_call",
    /// The end of a stream is its last frame (2.3 rule 10).
    AfterEnd = "after_end",
    /// A stream that was not cut ends with its end mark (3.3).
    EndMissing = "end_missing",
    /// Events are numbered from 0 without gaps (4.6).
    Numbering = "numbering",
    /// The events of an answer, its items and its blocks come in the order of their life (4.6; messages 4).
    Order = "order",
    /// The complete text of a part, call or item equals the sum of its deltas (4.6).
    Text = "text",
    /// The final output equals the items of the stream (4.6 rule 9).
    Output = "output",
}
