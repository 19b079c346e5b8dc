//! Result of `samewire diff`, as text for people or as JSON.

use crate::cli::table::{self, BAD, BOLD, DIM, GOOD, LEFT, Look, PLAIN, RIGHT};
use crate::diff::{Aligned, Comparison, Finding, Frames, Span, Topic, WordDifference};
use crate::json::members;
use crate::visible::{cut, visible, visible_strings};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Longest words that the text shows of a field, in characters.
const SHOWN: usize = 400;

/// Comparisons of all pairs, and what to show of them.
pub(super) struct Report {
    /// Names of both sides.
    pub(super) names: [String; 2],
    /// Comparisons, each with its name if there are several.
    pub(super) pairs: Vec<(Option<String>, Comparison)>,
    /// Names of exchanges that one side alone has.
    pub(super) only: [Vec<String>; 2],
    /// True if the words that differ are shown.
    pub(super) has_words: bool,
}

impl Report {
    /// Returns true if no shape differs.
    pub(super) fn is_same(&self) -> bool {
        self.pairs
            .iter()
            .all(|(_, comparison)| comparison.shape.is_empty())
    }

    /// Returns the result for a terminal.
    pub(super) fn text(&self, look: Look) -> String {
        let mut out = String::new();
        for (side, name) in ["A", "B"].iter().zip(&self.names) {
            let _ = writeln!(
                out,
                "{}  {}",
                look.painted(side, DIM),
                look.painted(&visible(name), BOLD)
            );
        }
        for (name, comparison) in &self.pairs {
            out.push('\n');
            self.pair(name.as_deref(), comparison, look, &mut out);
        }
        for (side, only) in ["A", "B"]
            .iter()
            .zip(&self.only)
            .filter(|(_, only)| !only.is_empty())
        {
            let title = format!("only in {side}  ");
            let names = visible(&only.join(", "));
            let _ = write!(out, "\n{}", look.painted(&title, DIM));
            let width = look.width.saturating_sub(title.len());
            let _ = writeln!(
                out,
                "{}",
                table::wrapped(&names, width).join(&format!("\n{:1$}", "", title.len()))
            );
        }
        if self.pairs.len() > 1 {
            let differing = self
                .pairs
                .iter()
                .filter(|(_, comparison)| !comparison.shape.is_empty())
                .count();
            let same = self.pairs.len() - differing;
            let colour = if differing == 0 { GOOD } else { BAD };
            let text = format!(
                "{same} of {} have the same shape, {differing} differ",
                self.pairs.len()
            );
            let _ = writeln!(out, "\n{}", look.painted(&text, colour));
        }
        out
    }

    fn pair(&self, name: Option<&str>, comparison: &Comparison, look: Look, out: &mut String) {
        let Comparison { rows, shape, words } = comparison;
        let verdict = match shape.len() {
            0 => look.painted("same shape", GOOD),
            1 => look.painted("the shapes differ in 1 place", BAD),
            count => look.painted(&format!("the shapes differ in {count} places"), BAD),
        };
        let name = name.map(|name| format!("{}: ", look.painted(&visible(name), BOLD)));
        let _ = writeln!(out, "{}{verdict}", name.as_deref().unwrap_or_default());
        // In a folder, an exchange of the same shape is one line, and its words with --words.
        if name.is_none() || !shape.is_empty() {
            frames(rows, look, out);
            differences(shape, look, out);
        }
        if words.is_empty() {
            return;
        }
        if self.has_words {
            let rows: Vec<_> = words
                .iter()
                .map(|word| {
                    [
                        word.topic.name().to_owned(),
                        word.path.clone(),
                        cut(&word.a, SHOWN),
                        cut(&word.b, SHOWN),
                    ]
                })
                .collect();
            table::write(
                [("words", DIM), ("field", PLAIN), ("A", LEFT), ("B", RIGHT)],
                &rows,
                look,
                out,
            );
        } else if name.is_none() || !shape.is_empty() {
            let _ = writeln!(out, "  {}", look.painted(&summary(words), DIM));
        }
    }

    /// Returns the result as a JSON object. Part of the public interface: members may be added, but not removed or given
    /// another meaning.
    pub(super) fn json(&self) -> String {
        let [a, b] = &self.names;
        let [only_a, only_b] = &self.only;
        let pairs = self
            .pairs
            .iter()
            .map(|(name, Comparison { rows, shape, words })| {
                let words: Vec<_> = words
                    .iter()
                    .map(|word| WordLine::of(word, self.has_words))
                    .collect();
                let name = name.as_deref();
                members! { name, same_shape: shape.is_empty(), frames: rows, shape, words: words }
            });
        let line = members! {
            a,
            b,
            same_shape: self.is_same(),
            pairs: pairs.collect::<Vec<_>>(),
            only_a,
            only_b,
        };
        visible_strings(&serde_json::to_string(&line).unwrap_or_default()).into_owned()
    }
}

#[derive(Serialize)]
struct WordLine<'a> {
    topic: Topic,
    path: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    a: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    b: Option<&'a str>,
}

impl<'a> WordLine<'a> {
    fn of(word: &'a WordDifference, has_words: bool) -> Self {
        let WordDifference { topic, path, a, b } = word;
        let shown = |words: &'a str| has_words.then_some(words);
        Self {
            topic: *topic,
            path,
            a: shown(a),
            b: shown(b),
        }
    }
}

/// Appends the aligned frames.
fn frames(rows: &[Aligned], look: Look, out: &mut String) {
    let place = |span: Option<Span>| match span {
        None => "-".to_owned(),
        Some(Span { first, last, .. }) if first == last => first.to_string(),
        Some(Span { first, last, count }) if last - first + 1 == count => format!("{first}-{last}"),
        Some(Span { first, last, count }) => format!("{first}-{last} ({count})"),
    };
    let rows: Vec<_> = rows
        .iter()
        .map(|row| [place(row.a), place(row.b), row.says.clone()])
        .collect();
    table::write(
        [("A", LEFT), ("B", RIGHT), ("frames", PLAIN)],
        &rows,
        look,
        out,
    );
}

/// Appends the differences in shape.
fn differences(shape: &[Finding], look: Look, out: &mut String) {
    let rows: Vec<_> = shape
        .iter()
        .map(|finding| {
            let Finding {
                kind,
                path,
                a,
                b,
                frames_a,
                frames_b,
            } = finding;
            [
                kind.name().to_owned(),
                path.clone(),
                a.clone(),
                b.clone(),
                concerned(*frames_a, *frames_b),
            ]
        })
        .collect();
    let head = [
        ("shape", DIM),
        ("field", PLAIN),
        ("A", LEFT),
        ("B", RIGHT),
        ("frames", DIM),
    ];
    table::write(head, &rows, look, out);
}

/// Returns the number of frames with a difference on each side, and the first of them: `A 2 (12×), B 3`.
fn concerned(a: Frames, b: Frames) -> String {
    let side = |name: &str, Frames { count, first }: Frames| {
        let times = if count > 1 {
            format!(" ({count}×)")
        } else {
            String::new()
        };
        first.map(|first| format!("{name} {first}{times}"))
    };
    [side("A", a), side("B", b)]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(", ")
}

/// Returns how many fields differ in words, by topic.
fn summary(words: &[WordDifference]) -> String {
    let mut counts: BTreeMap<Topic, usize> = BTreeMap::new();
    words
        .iter()
        .for_each(|word| *counts.entry(word.topic).or_default() += 1);
    let counts: Vec<_> = counts
        .into_iter()
        .map(|(topic, count)| {
            if count == 1 {
                topic.name().to_owned()
            } else {
                format!("{} ({count})", topic.name())
            }
        })
        .collect();
    format!(
        "words differ, too: {}; --words shows them",
        counts.join(", ")
    )
}
