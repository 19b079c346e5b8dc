//! Parameters of the formats that write calls as tags.

/// Parameters of a tagged format. An empty marker does not occur in the format.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::wire::parse) struct TaggedForm {
    /// Markers that may precede a call, each at most once.
    pub(in crate::wire::parse) opens: &'static [&'static str],
    /// Markers before and after the function name.
    pub(in crate::wire::parse) name: (&'static str, &'static str),
    /// Marker after the attributes that follow a name.
    pub(in crate::wire::parse) attributes: &'static str,
    /// Marker that closes a call.
    pub(in crate::wire::parse) end: &'static str,
    /// Markers before and after a key.
    pub(in crate::wire::parse) key: (&'static str, &'static str),
    /// Markers before and after the name of a type, which may come between a key and its value.
    pub(in crate::wire::parse) kind: (&'static str, &'static str),
    /// Markers before and after a value.
    pub(in crate::wire::parse) value: (&'static str, &'static str),
    /// Markers that may follow a call; the last of them ends the section.
    pub(in crate::wire::parse) closes: &'static [&'static str],
    /// Additional information in a key.
    pub(in crate::wire::parse) keys: Keys,
    /// True if a line break at either end of a value is not part of it.
    pub(in crate::wire::parse) lines: bool,
    /// True if a value is XML: a CDATA section, or text with entities.
    pub(in crate::wire::parse) xml: bool,
}

/// Syntax of the text between the markers of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::wire::parse) enum Keys {
    /// Key only.
    Plain,
    /// Key and an attribute, which says if the value is a string: `KEY" string="true`, `KEY" type="string"`.
    Typed {
        /// Text between the key and the value of the attribute.
        attribute: &'static str,
        /// Value of the attribute for a string.
        string: &'static str,
    },
    /// Element name, repeated in the closing tag. A value that is not a string may contain elements itself.
    Elements,
}
