//! Vocabulary of the ordinary Harmony tokens (`o200k_harmony`), read from a file that operators supply.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::fmt;

/// Token limit of a file, about a quarter above the actual vocabulary.
const RANKS: usize = 1 << 18;

/// Bytes of each token, indexed by rank. Needed to turn an engine's token ids back into text.
#[derive(PartialEq, Eq)]
pub struct Vocabulary {
    /// Bytes of all tokens, concatenated.
    bytes: Box<[u8]>,
    /// Offset of each token in `bytes`, followed by the end of the last one.
    starts: Box<[u32]>,
}

/// Prints only the number of tokens, because the contents are large and always the same.
impl fmt::Debug for Vocabulary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Vocabulary({})", self.len())
    }
}

impl Vocabulary {
    /// Parses a tiktoken file: on each line a token in base64, a space and its rank, in order of rank.
    ///
    /// # Errors
    /// Fails on the first line that is malformed, out of order or one too many, which the message names, and on an
    /// empty file.
    pub fn read(text: &str) -> Result<Self, String> {
        let mut bytes = Vec::with_capacity(text.len() / 2);
        let mut starts = Vec::with_capacity(text.len() / 16);
        for (at, line) in text
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.is_empty())
        {
            let wrong = |why: &str| format!("line {}: {why}", at + 1);
            let (token, rank) = line
                .split_once(' ')
                .ok_or_else(|| wrong("must be a token in base64, a space and its rank"))?;
            if rank.trim().parse() != Ok(starts.len()) {
                return Err(wrong(
                    "must have the rank after that of the line before, from 0",
                ));
            }
            if starts.len() >= RANKS {
                return Err(wrong("there are too many"));
            }
            starts.push(u32::try_from(bytes.len()).map_err(|_| wrong("there are too many bytes"))?);
            STANDARD
                .decode_vec(token, &mut bytes)
                .map_err(|_| wrong("must begin with a token in base64"))?;
        }
        if starts.is_empty() {
            return Err("must have a token on each line".to_owned());
        }
        starts.push(u32::try_from(bytes.len()).map_err(|_| "there are too many bytes".to_owned())?);
        Ok(Self {
            bytes: bytes.into(),
            starts: starts.into(),
        })
    }

    /// Returns the bytes of the token with this rank; `None` if there is no such token.
    pub fn token(&self, rank: u32) -> Option<&[u8]> {
        let at = usize::try_from(rank).ok()?;
        let (start, end) = (*self.starts.get(at)?, *self.starts.get(at + 1)?);
        self.bytes.get(start as usize..end as usize)
    }

    /// Returns the number of tokens, which is also the lowest rank that is not taken.
    pub fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// Returns false, because a vocabulary without tokens cannot be read; exists as the counterpart of `len`.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_and_their_mistakes_named() {
        let vocabulary = Vocabulary::read("IQ== 0\nw6k= 1\n/w== 2\n").unwrap();
        assert_eq!(vocabulary.len(), 3);
        let tokens: Vec<_> = (0..4).map(|rank| vocabulary.token(rank)).collect();
        assert_eq!(
            tokens,
            [
                Some(&b"!"[..]),
                Some(&[0xc3, 0xa9][..]),
                Some(&[0xff][..]),
                None
            ]
        );
        for (text, why) in [
            ("", "must have a token on each line"),
            (
                "IQ==\n",
                "line 1: must be a token in base64, a space and its rank",
            ),
            (
                "IQ== 0\nIg== 2\n",
                "line 2: must have the rank after that of the line before, from 0",
            ),
            (
                "IQ== 0\n?? 1\n",
                "line 2: must begin with a token in base64",
            ),
        ] {
            assert_eq!(Vocabulary::read(text).unwrap_err(), why);
        }
    }
}
