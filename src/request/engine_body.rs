//! Body of a request to an engine, in pieces, so that the long parts of a client's body are not copied.
//!
//! Takes: slices of the client's body, and the texts written between them. Gives: the pieces in order. Never: copies,
//! except in [`EngineBody::joined`].

use bytes::{Bytes, BytesMut};

/// Body of a request to an engine. Equal bodies have equal bytes, however they are cut.
#[derive(Clone, Debug, Default)]
pub struct EngineBody(Pieces);

#[derive(Clone, Debug)]
enum Pieces {
    One(Bytes),
    Several(Vec<Bytes>),
}

impl Default for Pieces {
    fn default() -> Self {
        Self::One(Bytes::new())
    }
}

impl From<Bytes> for EngineBody {
    fn from(body: Bytes) -> Self {
        Self(Pieces::One(body))
    }
}

impl FromIterator<Bytes> for EngineBody {
    fn from_iter<I: IntoIterator<Item = Bytes>>(pieces: I) -> Self {
        Self(Pieces::Several(
            pieces
                .into_iter()
                .filter(|piece| !piece.is_empty())
                .collect(),
        ))
    }
}

impl PartialEq for EngineBody {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.bytes().eq(other.bytes())
    }
}

impl EngineBody {
    /// Returns the pieces in order.
    pub fn pieces(&self) -> &[Bytes] {
        match &self.0 {
            Pieces::One(body) => std::slice::from_ref(body),
            Pieces::Several(pieces) => pieces,
        }
    }

    /// Returns the pieces in order, so that each can be replaced by an equal one that holds a share of the budget.
    pub(crate) fn pieces_mut(&mut self) -> &mut [Bytes] {
        match &mut self.0 {
            Pieces::One(body) => std::slice::from_mut(body),
            Pieces::Several(pieces) => pieces,
        }
    }

    fn bytes(&self) -> impl Iterator<Item = &u8> {
        self.pieces().iter().flat_map(|piece| piece.iter())
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.pieces().iter().map(Bytes::len).sum()
    }

    /// Returns true if there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.pieces().iter().all(Bytes::is_empty)
    }

    /// Returns the number of bytes that are in the memory of none of these texts.
    pub(crate) fn bytes_outside<'t>(
        &self,
        texts: impl Iterator<Item = &'t Bytes> + Clone,
    ) -> usize {
        let is_in = |piece: &Bytes, text: &Bytes| text.as_ptr_range().contains(&piece.as_ptr());
        let outside = |piece: &&Bytes| !texts.clone().any(|text| is_in(piece, text));
        self.pieces().iter().filter(outside).map(Bytes::len).sum()
    }

    /// Returns all bytes in one piece. Several pieces are copied.
    pub fn joined(&self) -> Bytes {
        if let [whole] = self.pieces() {
            return whole.clone();
        }
        let mut joined = BytesMut::with_capacity(self.len());
        self.pieces()
            .iter()
            .for_each(|piece| joined.extend_from_slice(piece));
        joined.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_equal_if_their_bytes_are() {
        let whole = EngineBody::from(Bytes::from_static(b"abcd"));
        let cut: EngineBody = ["a", "", "bc", "d"]
            .map(|piece| Bytes::from_static(piece.as_bytes()))
            .into_iter()
            .collect();
        assert_eq!(
            (cut.pieces().len(), cut.len(), cut.joined().as_ref()),
            (3, 4, &b"abcd"[..])
        );
        assert_eq!(whole, cut);
        assert_ne!(EngineBody::from(Bytes::from_static(b"abce")), cut);
        assert_ne!(EngineBody::from(Bytes::from_static(b"abcde")), cut);
        let text = whole.joined();
        let mixed: EngineBody = [text.slice(1..3), Bytes::from_static(b"xyz")]
            .into_iter()
            .collect();
        assert_eq!(mixed.bytes_outside([&text].into_iter()), 3);
        assert_eq!(mixed.bytes_outside(mixed.pieces().iter()), 0);
        let empty: EngineBody = [Bytes::new()].into_iter().collect();
        assert!(empty.is_empty() && empty == EngineBody::default() && empty.joined().is_empty());
    }
}
