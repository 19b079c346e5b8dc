//! Header of a Harmony message: author, channel and recipient (wire-format 6).

/// Marker in front of the name of a channel.
pub(super) const CHANNEL: &str = "<|channel|>";
/// Marker in front of the format that the message is constrained to.
pub(super) const CONSTRAIN: &str = "<|constrain|>";

/// Channel of calls.
const COMMENTARY: &str = "commentary";

/// Roles that the format defines for an author.
const ROLES: [&str; 5] = ["assistant", "developer", "system", "tool", "user"];

/// Destination of a message's text, as its header determines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Destination<'h> {
    /// Reasoning text.
    Reasoning,
    /// Answer text for the user.
    Content,
    /// Arguments of a call of this function.
    Call(&'h str),
    /// Arguments of this browser tool.
    Browser(Browser),
    /// Text of another author than the assistant, which is dropped.
    Dropped,
}

/// Tools of the built-in browser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Browser {
    Search,
    Open,
    Find,
}

/// Parsed header of one message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Header {
    channel: Option<String>,
    recipient: Option<String>,
    /// True if the author is not the assistant.
    foreign: bool,
    /// Remaining text that is neither role, channel nor recipient, without leading white space: a content type, or
    /// the text of a message that lacks its `<|message|>`.
    pub(super) rest: String,
}

impl Header {
    /// Parses a header, including the markers in it. `started`: it began with `<|start|>`, so that a role comes
    /// first.
    pub(super) fn read(text: &str, started: bool) -> Self {
        let mut header = Self::default();
        let plain = header.take_channel(text).replace(CONSTRAIN, " ");
        let addressed = plain.split_whitespace().any(|word| word.starts_with("to="));
        let mut author = None;
        // True if the first word is neither role nor recipient.
        let mut named = false;
        let mut words = 0;
        for piece in plain.split_inclusive(char::is_whitespace) {
            let word = piece.trim_end();
            if word.is_empty() {
                header
                    .rest
                    .push_str(if header.rest.is_empty() { "" } else { piece });
                continue;
            }
            let first = words == 0 && author.is_none();
            if first && (word == "assistant" || started && ROLES.contains(&word)) {
                author = Some(word);
                continue;
            }
            if let Some(recipient) = word
                .strip_prefix("to=")
                .filter(|_| header.recipient.is_none())
            {
                header.recipient = Some(recipient.to_owned());
                continue;
            }
            words += 1;
            named |= first && header.recipient.is_none();
            if words == 1 && !addressed && names_recipient(word) {
                header.recipient = Some(word.to_owned());
                continue;
            }
            header.rest.push_str(piece);
        }
        header.recipient = header.recipient.filter(|recipient| !recipient.is_empty());
        // The output of a tool has the tool's name in place of a role, and the assistant as recipient.
        let answers = started && named && header.recipient.as_deref() == Some("assistant");
        header.foreign = answers || author.is_some_and(|author| author != "assistant");
        header
    }

    /// Removes all channels from the text and returns the rest. The last channel counts.
    fn take_channel(&mut self, text: &str) -> String {
        let mut left = String::with_capacity(text.len());
        let mut parts = text.split(CHANNEL);
        left.push_str(parts.next().unwrap_or(""));
        for part in parts {
            let end = part
                .find(|c: char| c.is_whitespace() || c == '<')
                .unwrap_or(part.len());
            let (channel, after) = part.split_at(end);
            self.channel = Some(channel.to_owned());
            left.push_str(after);
        }
        left
    }

    /// Returns true if the header names a channel.
    pub(super) fn has_channel(&self) -> bool {
        self.channel.is_some()
    }

    /// Returns the destination of the message's text. The channel `final` outranks any recipient.
    pub(super) fn route(&self) -> Destination<'_> {
        match (self.channel.as_deref(), self.recipient.as_deref()) {
            _ if self.foreign => Destination::Dropped,
            (Some("final"), _) => Destination::Content,
            (_, Some("browser.search")) => Destination::Browser(Browser::Search),
            (_, Some("browser.open")) => Destination::Browser(Browser::Open),
            (_, Some("browser.find")) => Destination::Browser(Browser::Find),
            (_, Some(recipient)) => {
                let name = recipient
                    .strip_prefix("functions.")
                    .filter(|name| !name.is_empty());
                // A recipient that is a function means a call, on any channel but `final` and also without a
                // channel.
                name.map_or(Destination::Reasoning, Destination::Call)
            }
            _ if self.is_thought() => Destination::Reasoning,
            _ => Destination::Content,
        }
    }

    /// Returns true if a message for no recipient is reasoning.
    pub(super) fn is_thought(&self) -> bool {
        self.channel.as_deref() == Some("analysis")
    }
}

fn names_recipient(word: &str) -> bool {
    word.starts_with("functions.") || word.starts_with("browser.") || word == "python"
}

/// Returns the header of a call, with which a text begins and whose markers the engine has left out; the arguments
/// follow (raullenchai/Rapid-MLX#480).
pub(super) fn unmarked_call(text: &str) -> Option<&str> {
    let (header, _) = text.split_once('{')?;
    let is_header = HeaderStart::of(header) == HeaderStart::Yes;
    Some(header).filter(|header| is_header && header.contains("to=functions."))
}

/// Result of checking how a text without markers can begin a header: `[assistant] [commentary] [to=recipient] [type]`,
/// separated by white space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderStart {
    /// Text that cannot begin a header.
    No,
    /// Text that may become the beginning of a header.
    Part,
    /// Text that is the beginning of a header.
    Yes,
}

impl HeaderStart {
    pub(super) fn of(text: &str) -> Self {
        let mut rest = text.trim_start();
        if rest.is_empty() {
            return Self::Yes;
        }
        for (word, alone) in [("assistant", Self::Yes), (COMMENTARY, Self::Part)] {
            if word.starts_with(rest) && rest != word {
                return Self::Part;
            }
            if let Some(after) = rest.strip_prefix(word) {
                let next = after.trim_start();
                if next.is_empty() {
                    return alone;
                }
                if next.len() == after.len() {
                    return Self::No;
                }
                rest = next;
            }
        }
        if "to=".starts_with(rest) {
            return Self::Part;
        }
        let Some(recipient) = rest.strip_prefix("to=") else {
            return Self::No;
        };
        let mut words = recipient.split_whitespace();
        let named = !recipient.starts_with(char::is_whitespace) && words.next().is_some();
        let kind = words
            .next()
            .is_none_or(|kind| kind.bytes().all(|byte| byte.is_ascii_alphanumeric()));
        if named && kind && words.next().is_none() {
            Self::Yes
        } else {
            Self::No
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Browser::{Find, Open, Search};

    /// Headers, whether their message has started, and where its text goes.
    const ROUTES: &[(&str, bool, Destination<'_>)] = &[
        ("<|channel|>analysis", false, Destination::Reasoning),
        ("<|channel|>final", false, Destination::Content),
        (
            "assistant<|channel|>final <|constrain|>json",
            true,
            Destination::Content,
        ),
        (
            "<|channel|>final to=functions.f",
            false,
            Destination::Content,
        ),
        ("<|channel|>commentary", false, Destination::Content),
        (
            "<|channel|>commentary to=functions.f <|constrain|>json",
            false,
            Destination::Call("f"),
        ),
        (
            "<|channel|>commentary to=functions.f<|constrain|>json",
            false,
            Destination::Call("f"),
        ),
        (
            "<|channel|>analysis to=functions.f code",
            false,
            Destination::Call("f"),
        ),
        (
            " to=functions.f<|channel|>commentary json",
            false,
            Destination::Call("f"),
        ),
        (
            "assistant to=functions.a.b<|channel|>commentary",
            true,
            Destination::Call("a.b"),
        ),
        (
            "<|channel|>commentary functions.f json",
            false,
            Destination::Call("f"),
        ),
        (
            "<|channel|>commentary json functions.f",
            false,
            Destination::Content,
        ),
        (
            "<|channel|>commentary to=functions.functions.f",
            false,
            Destination::Call("functions.f"),
        ),
        (
            "<|channel|>commentary to=functions.",
            false,
            Destination::Reasoning,
        ),
        ("<|channel|>commentary to=", false, Destination::Content),
        (
            "<|channel|>analysis to=browser.search code",
            false,
            Destination::Browser(Search),
        ),
        (
            "<|channel|>commentary browser.open",
            false,
            Destination::Browser(Open),
        ),
        (
            "<|channel|>x to=browser.find",
            false,
            Destination::Browser(Find),
        ),
        (
            "<|channel|>commentary to=browser.close",
            false,
            Destination::Reasoning,
        ),
        (
            "<|channel|>commentary python",
            false,
            Destination::Reasoning,
        ),
        (
            "<|channel|>commentary to=container.exec",
            false,
            Destination::Reasoning,
        ),
        ("assistant", true, Destination::Content),
        ("<|channel|>new", true, Destination::Content),
        ("", false, Destination::Content),
        ("user", true, Destination::Dropped),
        ("user<|channel|>final", true, Destination::Dropped),
        (
            "functions.f to=assistant<|channel|>commentary",
            true,
            Destination::Dropped,
        ),
        (
            "<|channel|>analysis to=assistant",
            false,
            Destination::Reasoning,
        ),
        (
            " to=assistant<|channel|>analysis",
            true,
            Destination::Reasoning,
        ),
        (
            "<|channel|>analysis<|channel|>final",
            false,
            Destination::Content,
        ),
    ];

    #[test]
    fn headers_say_where_their_text_goes() {
        for &(text, started, expected) in ROUTES {
            assert_eq!(Header::read(text, started).route(), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_header_is_text() {
        for (text, started, expected) in [
            (
                "<|channel|>analysis We  need\n to think",
                false,
                "We  need\n to think",
            ),
            ("<|channel|>final<|constrain|>{\"a\":1}", false, "{\"a\":1}"),
            (
                "assistant to=functions.f<|channel|>commentary json{}",
                true,
                "json{}",
            ),
            ("assistant assistant", true, "assistant"),
            ("<|channel|>final to=x to=y", false, "to=y"),
            ("user Hi", false, "user Hi"),
        ] {
            assert_eq!(Header::read(text, started).rest, expected, "{text}");
        }
    }

    #[test]
    fn beginnings_have_beginnings() {
        use HeaderStart::{No, Part, Yes};
        for (text, expected) in [
            ("", Yes),
            (" \n", Yes),
            ("assis", Part),
            ("assistant", Yes),
            (" assistant ", Yes),
            ("assistants", No),
            ("assistant is", No),
            ("t", Part),
            ("to=", Part),
            (" to=functions.f", Yes),
            ("assistant to=functions.f ", Yes),
            ("assistantto=f", No),
            ("to=functions.f json", Yes),
            ("to=5 is it", No),
            ("to= 5", No),
            ("Hello", No),
        ] {
            assert_eq!(HeaderStart::of(text), expected, "{text}");
            if expected != No {
                let parts = text.char_indices().map(|(at, _)| &text[..at]);
                parts.for_each(|part| assert_ne!(HeaderStart::of(part), No, "{part} of {text}"));
            }
        }
    }
}
