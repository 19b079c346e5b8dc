//! Index of prompts by their beginnings: which engines have seen a beginning lately, and so have it in their caches
//! (`[affinity] by = "prefix"`).
//!
//! Takes: hashes of the blocks of a prompt, each over all blocks up to it, so that equal hashes mean equal beginnings: the
//! paths of a radix tree whose nodes are in a flat map. Gives: engines. Remembers: a bounded number of blocks, those used
//! last. Never: text.

use super::UpstreamId;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;
use tokio::time::Instant;

/// Bytes of one block.
const BLOCK: usize = 512;
/// Upper limit for the blocks of one prompt: its first 128 KiB.
const BLOCKS: usize = 256;
/// Upper limit for the engines that are known for one block, as where all prompts begin alike.
const HOLDERS: usize = 4;
/// Time without use after which a block is forgotten, at most twice that: engines reuse their memory meanwhile.
const LIFETIME: Duration = Duration::from_secs(600);

/// Returns the hashes of a prompt's blocks. A rest that fills no block does not count. `seed`: what prompts must share
/// besides, such as the model.
pub fn blocks<'t>(seed: &str, texts: impl Iterator<Item = &'t str>) -> Vec<u64> {
    let mut found = Vec::new();
    let mut hasher = DefaultHasher::new();
    seed.hash(&mut hasher);
    let mut room = BLOCK;
    for text in texts {
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            let (front, after) = rest.split_at(rest.len().min(room));
            hasher.write(front);
            (rest, room) = (after, room - front.len());
            if room == 0 {
                found.push(hasher.finish());
                if found.len() == BLOCKS {
                    return found;
                }
                room = BLOCK;
            }
        }
        // Texts cannot be told apart by where one ends, which no prompt makes use of.
    }
    found
}

/// Upstreams that have got a block, the last one first.
type Holders = [Option<UpstreamId>; HOLDERS];

/// Index of blocks. Half of them are older than the other half, and go at once when there are too many.
#[derive(Debug)]
pub(super) struct PrefixIndex {
    /// Upper limit for the blocks.
    most: usize,
    halves: Mutex<Halves>,
}

#[derive(Debug)]
struct Halves {
    young: HashMap<u64, Holders>,
    old: HashMap<u64, Holders>,
    /// Time at which the young half began.
    since: Instant,
}

impl PrefixIndex {
    /// Creates an index for this number of blocks, of about 50 bytes each.
    pub(super) fn new(most: usize) -> Self {
        let halves = Halves {
            young: HashMap::new(),
            old: HashMap::new(),
            since: Instant::now(),
        };
        Self {
            most,
            halves: Mutex::new(halves),
        }
    }

    /// Returns the number of blocks for which it was made.
    pub(super) fn size(&self) -> usize {
        self.most
    }

    /// Returns the engines that have seen a beginning of the prompt: first those of the longest one, then those of shorter
    /// ones, each once. `upstream` gives the engine of an id, `None` for one that has gone or does not matter.
    pub(super) fn holders<T>(
        &self,
        prompt: &[u64],
        upstream: impl Fn(UpstreamId) -> Option<T>,
    ) -> Vec<T> {
        let halves = self.halves.lock();
        let (mut seen, mut found) = (Vec::new(), Vec::new());
        for block in prompt.iter().rev() {
            let known = halves.young.get(block).or_else(|| halves.old.get(block));
            for engine in known.into_iter().flatten().flatten() {
                if !seen.contains(engine) {
                    seen.push(*engine);
                    found.extend(upstream(*engine));
                }
            }
            if found.len() >= HOLDERS {
                break;
            }
        }
        found
    }

    /// Notes that an engine has got the prompt.
    pub(super) fn note(&self, prompt: &[u64], engine: UpstreamId, now: Instant) {
        let mut halves = self.halves.lock();
        for block in prompt {
            let age = now.saturating_duration_since(halves.since);
            if halves.young.len() >= (self.most / 2).max(1) || age > LIFETIME {
                halves.old = std::mem::take(&mut halves.young);
                halves.since = now;
            }
            let before = halves.old.remove(block).unwrap_or_default();
            let holders = halves.young.entry(*block).or_insert(before);
            // The one that has it for the longest time gives way to another.
            let place = holders
                .iter()
                .position(|known| *known == Some(engine))
                .unwrap_or(HOLDERS - 1);
            if let Some(newer) = holders.get_mut(..=place) {
                newer.rotate_right(1);
                newer
                    .first_mut()
                    .into_iter()
                    .for_each(|first| *first = Some(engine));
            }
        }
    }

    /// Returns the number of blocks that are known.
    #[cfg(test)]
    pub(super) fn known(&self) -> usize {
        let halves = self.halves.lock();
        halves.young.len() + halves.old.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<u64> {
        blocks("m", std::iter::once(text))
    }

    fn holders(index: &PrefixIndex, prompt: &[u64]) -> Vec<UpstreamId> {
        index.holders(prompt, Some)
    }

    #[test]
    fn blocks_tell_how_far_prompts_agree() {
        let long = |end: &str| format!("{}{end}", "x".repeat(3 * BLOCK));
        let (one, other) = (of(&long(&"a".repeat(BLOCK))), of(&long(&"b".repeat(BLOCK))));
        assert_eq!((one.len(), &one[..3]), (4, &other[..3]));
        assert_ne!(one[3], other[3]);
        assert_eq!(of(&long("rest")), one[..3], "a rest does not count");
        let cut = blocks(
            "m",
            [&"x".repeat(700) as &str, &"x".repeat(3 * BLOCK - 700)].into_iter(),
        );
        assert_eq!(cut, one[..3], "however the text is cut");
        assert_ne!(blocks("n", std::iter::once(&*long(""))), one[..3]);
        assert_eq!(of(&"x".repeat(BLOCK * 2 * BLOCKS)).len(), BLOCKS);
        assert!(of("short").is_empty());
    }

    #[test]
    fn those_with_the_longest_beginning_come_first() {
        let (index, now) = (PrefixIndex::new(100), Instant::now());
        let (one, other) = (UpstreamId::new(), UpstreamId::new());
        index.note(&[1, 2, 3], one, now);
        index.note(&[1, 2, 4], other, now);
        assert_eq!(holders(&index, &[1, 2, 3, 9]), [one, other]);
        assert_eq!(holders(&index, &[1, 2, 4]), [other, one]);
        assert_eq!(holders(&index, &[1, 5]), [other, one], "the last one first");
        assert!(holders(&index, &[6]).is_empty());
        let mut many: Vec<_> = (0..10).map(|_| UpstreamId::new()).collect();
        many.iter()
            .for_each(|engine| index.note(&[1], *engine, now));
        many.reverse();
        assert_eq!(holders(&index, &[1]), many[..HOLDERS]);
        let (kept, gone) = (UpstreamId::new(), &many[..HOLDERS]);
        index.note(&[8], kept, now);
        gone.iter()
            .for_each(|engine| index.note(&[8, 9], *engine, now));
        index.note(&[8], kept, now);
        let here = |engine| Some(engine).filter(|engine| !gone.contains(engine));
        assert_eq!(
            index.holders(&[8, 9], here),
            [kept],
            "those that have gone take up no place"
        );
    }

    #[test]
    fn blocks_are_bounded_and_go_when_nobody_uses_them() {
        let (index, start, engine) = (PrefixIndex::new(100), Instant::now(), UpstreamId::new());
        for block in 0..1_000 {
            index.note(&[block, 5_000], engine, start);
            assert!(index.known() <= 101, "{}", index.known());
        }
        assert_eq!(holders(&index, &[5_000]), [engine], "what is used stays");
        assert!(holders(&index, &[0]).is_empty());
        let later = |n: u32| start + LIFETIME * n + Duration::from_secs(u64::from(n));
        index.note(&[6_000], engine, later(1));
        assert_eq!(holders(&index, &[5_000]), [engine]);
        index.note(&[6_000], engine, later(2));
        assert!(holders(&index, &[5_000]).is_empty());
        assert_eq!(holders(&index, &[6_000]), [engine]);
    }
}
