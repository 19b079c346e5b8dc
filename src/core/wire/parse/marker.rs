//! Search for markers in text that may be cut anywhere, also within a marker.

use std::borrow::Cow;

/// Set of markers to search for. Each is identified by its index.
#[derive(Clone, Debug, Default)]
pub(super) struct Markers {
    all: Box<[Cow<'static, str>]>,
    firsts: FirstBytes,
}

/// Distinct first bytes of some markers, so that the search can skip ahead with `memchr`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FirstBytes {
    /// The first three of them.
    few: [u8; 3],
    count: usize,
    /// All of them, one bit each.
    all: [u64; 4],
}

impl FirstBytes {
    /// Adds the first bytes of these markers; empty ones have none.
    #[must_use]
    pub(super) fn with<'m>(mut self, markers: impl IntoIterator<Item = &'m str>) -> Self {
        let bytes = markers
            .into_iter()
            .filter_map(|marker| marker.bytes().next());
        bytes.for_each(|byte| self.add(byte));
        self
    }

    fn add(&mut self, byte: u8) {
        if self.contains(byte) {
            return;
        }
        if let Some(word) = self.all.get_mut(usize::from(byte / 64)) {
            *word |= 1 << (byte % 64);
        }
        if let Some(free) = self.few.get_mut(self.count) {
            *free = byte;
        }
        self.count += 1;
    }

    /// Returns true if a marker begins with this byte.
    pub(super) fn contains(&self, byte: u8) -> bool {
        let word = self.all.get(usize::from(byte / 64));
        word.is_some_and(|word| word & 1 << (byte % 64) != 0)
    }

    /// Returns the place of the first such byte in a text.
    pub(super) fn find(&self, text: &[u8]) -> Option<usize> {
        let [one, two, three] = self.few;
        match self.count {
            0 => None,
            1 => memchr::memchr(one, text),
            2 => memchr::memchr2(one, two, text),
            3 => memchr::memchr3(one, two, three, text),
            _ => text.iter().position(|byte| self.contains(*byte)),
        }
    }
}

/// Result of a search for markers in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MarkerMatch {
    /// Earliest match: its byte offset and the index of the marker.
    At { at: usize, marker: usize },
    /// Partial match at this byte offset: the text ends there and may continue as a marker.
    Partial(usize),
    /// Neither a match nor a partial match.
    Nowhere,
}

impl MarkerMatch {
    /// Returns how many bytes of the text precede the match or partial match; without one, the whole length.
    pub(super) fn before(self, text: &str) -> usize {
        match self {
            Self::At { at, .. } | Self::Partial(at) => at,
            Self::Nowhere => text.len(),
        }
    }
}

impl Markers {
    /// Creates the set. Empty markers never match, but keep their index.
    pub(super) fn new<M: Into<Cow<'static, str>>>(all: impl IntoIterator<Item = M>) -> Self {
        let all: Box<[Cow<'static, str>]> = all.into_iter().map(Into::into).collect();
        let firsts = FirstBytes::default().with(all.iter().map(AsRef::as_ref));
        Self { all, firsts }
    }

    /// Returns true if a marker begins with white space.
    pub(super) fn begin_blank(&self) -> bool {
        self.all
            .iter()
            .any(|marker| marker.starts_with(char::is_whitespace))
    }

    /// Returns the length of a marker in bytes; 0 if the index is unknown.
    pub(super) fn len(&self, marker: usize) -> usize {
        self.all.get(marker).map_or(0, |marker| marker.len())
    }

    /// Returns the length of the longest marker in bytes; 0 for an empty set.
    pub(super) fn longest(&self) -> usize {
        self.all
            .iter()
            .map(|marker| marker.len())
            .max()
            .unwrap_or(0)
    }

    /// Returns the byte offset of the first occurrence of one marker in a text.
    pub(super) fn first_of(&self, text: &str, marker: usize) -> Option<usize> {
        text.find(&**self.all.get(marker)?)
    }

    /// Finds the earliest marker in a text; of several at one place, the longest. A match that more text could
    /// extend to a longer marker is reported as partial.
    pub(super) fn find(&self, text: &str) -> MarkerMatch {
        self.find_from(text, 0)
    }

    /// Finds the earliest marker at or after byte `from` of a text, as [`Markers::find`] does. A search in a longer
    /// text can continue where the last one has found none: [`MarkerMatch::before`] tells the place.
    pub(super) fn find_from(&self, text: &str, from: usize) -> MarkerMatch {
        let mut from = from;
        while let Some(at) = self.next(text, from) {
            match self.match_at_start(text.get(at..).unwrap_or("")) {
                MarkerMatch::At { marker, .. } => return MarkerMatch::At { at, marker },
                MarkerMatch::Partial(_) => return MarkerMatch::Partial(at),
                MarkerMatch::Nowhere => from = at + 1,
            }
        }
        MarkerMatch::Nowhere
    }

    /// Returns the marker that the text begins with.
    pub(super) fn match_at_start(&self, text: &str) -> MarkerMatch {
        match_start(text, &self.all)
    }

    /// Returns the result for a marker that begins at byte `place`; `None` if no marker has that first byte.
    pub(super) fn at_boundary(&self, text: &str, place: usize) -> Option<MarkerMatch> {
        let first = *text.as_bytes().get(place)?;
        self.firsts
            .contains(first)
            .then(|| self.match_at_start(text.get(place..).unwrap_or("")))
    }

    fn next(&self, text: &str, from: usize) -> Option<usize> {
        let rest = text.as_bytes().get(from..)?;
        self.firsts.find(rest).map(|at| from + at)
    }
}

/// Returns which of the marks the text begins with; of several, the longest. A match that more text could extend to
/// a longer mark is reported as partial; empty marks never match.
pub(super) fn match_start<M: AsRef<str>>(text: &str, marks: &[M]) -> MarkerMatch {
    let all = || {
        marks
            .iter()
            .map(AsRef::as_ref)
            .enumerate()
            .filter(|(_, mark)| !mark.is_empty())
    };
    let longest = all()
        .filter(|(_, mark)| text.starts_with(mark))
        .max_by_key(|(_, mark)| mark.len());
    if all().any(|(_, mark)| mark.len() > text.len() && mark.starts_with(text)) {
        return MarkerMatch::Partial(0);
    }
    longest.map_or(MarkerMatch::Nowhere, |(marker, _)| MarkerMatch::At {
        at: 0,
        marker,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_found_where_they_begin() {
        let markers = Markers::new(["<a>", "<a>b", "[X]"]);
        for (text, found) in [
            ("", MarkerMatch::Nowhere),
            ("plain", MarkerMatch::Nowhere),
            ("1<a", MarkerMatch::Partial(1)),
            ("1<a>", MarkerMatch::Partial(1)),
            ("1<a>c", MarkerMatch::At { at: 1, marker: 0 }),
            ("1<a>b", MarkerMatch::At { at: 1, marker: 1 }),
            ("<<<[X]", MarkerMatch::At { at: 3, marker: 2 }),
            ("ä[X", MarkerMatch::Partial(2)),
            ("[Y]<", MarkerMatch::Partial(3)),
        ] {
            assert_eq!(markers.find(text), found, "{text}");
        }
    }

    #[test]
    fn the_longest_marker() {
        assert_eq!(Markers::new(["<a>", "[TOOL]", "x"]).longest(), 6);
        assert_eq!(Markers::default().longest(), 0);
    }

    /// Checks that markers with one, two, three and more first letters are found alike.
    #[test]
    fn markers_with_several_first_letters() {
        let all = ["<a>", "[b]", "{c}", "(d)"];
        for count in 1..=4 {
            let markers = Markers::new(all[..count].iter().copied());
            for (marker, text) in all[..count].iter().enumerate() {
                assert_eq!(
                    markers.find(&format!("x{text}")),
                    MarkerMatch::At { at: 1, marker },
                    "{count} {text}"
                );
            }
        }
    }
}
