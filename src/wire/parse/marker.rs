//! Looking for markers in text that is cut anywhere.

/// Texts that are looked for.
#[derive(Debug, Default)]
pub(super) struct Markers {
    all: Box<[Box<str>]>,
    /// The bytes that they begin with, each once.
    firsts: Box<[u8]>,
}

/// Where a marker stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The first of them: where, and which of those that are looked for.
    At { at: usize, marker: usize },
    /// None, but what begins there may become one.
    Perhaps(usize),
    /// None.
    Nowhere,
}

impl Found {
    /// How much text stands before it.
    pub(super) fn before(self, text: &str) -> usize {
        match self {
            Self::At { at, .. } | Self::Perhaps(at) => at,
            Self::Nowhere => text.len(),
        }
    }
}

impl Markers {
    /// These; empty ones are none, but keep their numbers.
    pub(super) fn new<'m>(all: impl IntoIterator<Item = &'m str>) -> Self {
        let all: Box<[Box<str>]> = all.into_iter().map(Into::into).collect();
        let mut firsts: Vec<u8> = all.iter().filter_map(|marker| marker.bytes().next()).collect();
        firsts.sort_unstable();
        firsts.dedup();
        Self { all, firsts: firsts.into() }
    }

    /// How long one of them is.
    pub(super) fn len(&self, marker: usize) -> usize {
        self.all.get(marker).map_or(0, |marker| marker.len())
    }

    /// How long the longest of them is.
    pub(super) fn longest(&self) -> usize {
        self.all.iter().map(|marker| marker.len()).max().unwrap_or(0)
    }

    /// Where this one of them is in a text.
    pub(super) fn first_of(&self, text: &str, marker: usize) -> Option<usize> {
        text.find(&**self.all.get(marker)?)
    }

    /// The first one in a text; where several begin at one place, the longest. One that may still become a longer one
    /// waits for that.
    pub(super) fn find(&self, text: &str) -> Found {
        let mut from = 0;
        while let Some(at) = self.next(text, from) {
            match self.at(text.get(at..).unwrap_or("")) {
                Found::At { marker, .. } => return Found::At { at, marker },
                Found::Perhaps(_) => return Found::Perhaps(at),
                Found::Nowhere => from = at + 1,
            }
        }
        Found::Nowhere
    }

    /// The one that a text begins with.
    pub(super) fn at(&self, text: &str) -> Found {
        begins(text, &self.all)
    }

    /// The one that begins at a place, if one does or may.
    pub(super) fn at_boundary(&self, text: &str, place: usize) -> Option<Found> {
        let first = *text.as_bytes().get(place)?;
        self.firsts.contains(&first).then(|| self.at(text.get(place..).unwrap_or("")))
    }

    fn next(&self, text: &str, from: usize) -> Option<usize> {
        let rest = text.as_bytes().get(from..)?;
        let found = match *self.firsts {
            [one] => memchr::memchr(one, rest),
            [one, two] => memchr::memchr2(one, two, rest),
            [one, two, three] => memchr::memchr3(one, two, three, rest),
            _ => rest.iter().position(|byte| self.firsts.contains(byte)),
        };
        found.map(|at| from + at)
    }
}

/// Which of these marks a text begins with; where several fit, the longest. One that may still become a longer one waits for
/// that; empty ones are none.
pub(super) fn begins<M: AsRef<str>>(text: &str, marks: &[M]) -> Found {
    let all = || marks.iter().map(AsRef::as_ref).enumerate().filter(|(_, mark)| !mark.is_empty());
    let longest = all().filter(|(_, mark)| text.starts_with(mark)).max_by_key(|(_, mark)| mark.len());
    if all().any(|(_, mark)| mark.len() > text.len() && mark.starts_with(text)) {
        return Found::Perhaps(0);
    }
    longest.map_or(Found::Nowhere, |(marker, _)| Found::At { at: 0, marker })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_found_where_they_begin() {
        let markers = Markers::new(["<a>", "<a>b", "[X]"]);
        for (text, found) in [
            ("", Found::Nowhere),
            ("plain", Found::Nowhere),
            ("1<a", Found::Perhaps(1)),
            ("1<a>", Found::Perhaps(1)),
            ("1<a>c", Found::At { at: 1, marker: 0 }),
            ("1<a>b", Found::At { at: 1, marker: 1 }),
            ("<<<[X]", Found::At { at: 3, marker: 2 }),
            ("ä[X", Found::Perhaps(2)),
            ("[Y]<", Found::Perhaps(3)),
        ] {
            assert_eq!(markers.find(text), found, "{text}");
        }
    }
}
