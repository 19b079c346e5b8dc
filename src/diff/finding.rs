//! Differences in shape between two aligned answers.
//!
//! Takes: both answers and their alignment. Gives: [`Finding`]s. Never: looks at words such as texts, ids and counts.

use super::align::Row;
use super::answer::{Answer, Data, Event};
use super::field::Kind;
use super::run::{Run, Shape, part};
use super::stable;
use crate::named::named;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

named! {
    /// Kind of a difference in shape. The JSON output contains its name in snake case.
    #[derive(Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Difference {
        /// The HTTP status.
        Status = "status",
        /// The header `content-type`.
        ContentType = "content type",
        /// The form of the body: events, JSON or text.
        Body = "body",
        /// The end of the connection.
        End = "end",
        /// The name of events, or whether they have one.
        EventName = "event name",
        /// The order of events.
        Order = "order",
        /// Events that only one side has.
        Frames = "frames",
        /// Parts that are in one event on one side, and in several on the other.
        Together = "split",
        /// A value under another name.
        Name = "name",
        /// A field that is missing on one side.
        Field = "field",
        /// A field that is null on one side and missing on the other.
        Null = "null",
        /// The type of a field.
        Type = "type",
        /// A value out of a fixed list, such as `finish_reason`.
        Value = "value",
        /// A value such as an id that changes within an answer on one side.
        Changes = "changes",
    }
}

/// Events of one side that a difference concerns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Frames {
    /// Number of events.
    pub count: usize,
    /// First of them, counted from 1; `None` if there is none.
    pub first: Option<usize>,
}

impl Frames {
    fn of(events: &[usize]) -> Self {
        Self {
            count: events.len(),
            first: events.first().map(|at| at + 1),
        }
    }

    fn add(&mut self, more: Self) {
        self.count += more.count;
        self.first = [self.first, more.first].into_iter().flatten().min();
    }
}

/// Difference in shape: what it concerns, and how each side has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Kind of difference.
    pub kind: Difference,
    /// Path of the field, or what else differs.
    pub path: String,
    /// Form that it has in A.
    pub a: String,
    /// Form that it has in B.
    pub b: String,
    /// Events of A that it concerns.
    pub frames_a: Frames,
    /// Events of B that it concerns.
    pub frames_b: Frames,
}

/// Fields whose value is out of a fixed list, or a position, so that another value is another shape.
const FIXED: [&str; 13] = [
    "object",
    "type",
    "role",
    "finish_reason",
    "status",
    "code",
    "reason",
    "phase",
    "index",
    "output_index",
    "content_index",
    "summary_index",
    "choice_index",
];

/// Returns true if another value of this field is another shape, not other words.
pub(super) fn is_fixed(path: &str, name: &str) -> bool {
    // Elsewhere it holds a stop string.
    FIXED.contains(&name) || name == "stop_reason" && !path.starts_with("choices")
}

const MISSING: &str = "missing";

/// Returns the differences in shape, those of the whole answer first.
pub(super) fn findings(a: &Answer, b: &Answer, rows: &[Row]) -> Vec<Finding> {
    let mut found = Findings::default();
    found.whole(a, b);
    if a.form != b.form {
        return found.list;
    }
    let together = found.together(rows);
    found.lone(rows, &together);
    for (one, two) in rows.iter().filter_map(Row::both) {
        found.pair(
            Side {
                answer: a,
                run: one,
            },
            Side {
                answer: b,
                run: two,
            },
            &together,
        );
    }
    for (path, one, two) in stable::differing(&a.events, &b.events) {
        found.add(
            Difference::Changes,
            &path,
            [one, two],
            [Frames::default(); 2],
        );
    }
    found.list
}

/// Run of an aligned pair, with the answer that it is from.
#[derive(Clone, Copy)]
struct Side<'a> {
    answer: &'a Answer,
    run: &'a Run,
}

impl<'a> Side<'a> {
    fn events(self) -> impl Iterator<Item = &'a Event> {
        self.run
            .events
            .iter()
            .filter_map(move |at| self.answer.events.get(*at))
    }

    fn names(self) -> String {
        let names: BTreeSet<_> = self
            .events()
            .map(|event| event.name.as_deref().unwrap_or("none"))
            .collect();
        names.into_iter().collect::<Vec<_>>().join(" or ")
    }
}

/// Field of a run: its types and values in the run's events.
#[derive(Default)]
struct Held<'a> {
    part: Option<String>,
    /// Types, with the events that have the field as such.
    kinds: BTreeMap<Kind, Vec<usize>>,
    /// Values, where they are out of a fixed list.
    values: BTreeSet<&'a str>,
    /// Number of events with the field.
    count: usize,
}

impl Held<'_> {
    /// Returns the types as words; `all`: number of events in the run.
    fn words(&self, all: usize) -> String {
        let mut kinds: Vec<_> = self.kinds.keys().map(ToString::to_string).collect();
        if self.count < all {
            kinds.push(MISSING.to_owned());
        }
        kinds.join(" or ")
    }
}

/// Reads what a run holds, by path.
fn held(side: Side<'_>) -> BTreeMap<&str, Held<'_>> {
    let mut all: BTreeMap<&str, Held<'_>> = BTreeMap::new();
    for (at, event) in side.run.events.iter().zip(side.events()) {
        let Data::Fields(fields) = &event.data else {
            continue;
        };
        let mut seen = BTreeSet::new();
        for field in fields {
            let held = all.entry(&field.path).or_insert_with(|| Held {
                part: part(&field.place),
                ..Held::default()
            });
            held.count += usize::from(seen.insert(&field.path));
            let events = held.kinds.entry(field.kind).or_default();
            if events.last() != Some(at) {
                events.push(*at);
            }
            if is_fixed(&field.path, field.name()) && field.is_said() {
                held.values.insert(&field.value);
            }
        }
    }
    all
}

#[derive(Default)]
struct Findings {
    list: Vec<Finding>,
    /// Positions in the list, so that equal differences become one.
    places: BTreeMap<(Difference, String, [String; 2]), usize>,
}

impl Findings {
    /// Adds a difference, or its events to an equal one.
    fn add(&mut self, kind: Difference, path: &str, sides: [String; 2], frames: [Frames; 2]) {
        let [frames_a, frames_b] = frames;
        let place = self
            .places
            .entry((kind, path.to_owned(), sides))
            .or_insert_with_key(|(_, _, [a, b])| {
                let (path, a, b) = (path.to_owned(), a.clone(), b.clone());
                let none = Frames::default();
                self.list.push(Finding {
                    kind,
                    path,
                    a,
                    b,
                    frames_a: none,
                    frames_b: none,
                });
                self.list.len() - 1
            });
        if let Some(one) = self.list.get_mut(*place) {
            one.frames_a.add(frames_a);
            one.frames_b.add(frames_b);
        }
    }

    /// Compares what belongs to the answer as a whole.
    fn whole(&mut self, a: &Answer, b: &Answer) {
        let mut compare = |kind, path: &str, a: String, b: String| {
            if a != b {
                self.add(kind, path, [a, b], [Frames::default(); 2]);
            }
        };
        if let (Some(a), Some(b)) = (&a.head, &b.head) {
            compare(
                Difference::Status,
                "status",
                a.status.to_string(),
                b.status.to_string(),
            );
            let label =
                |label: &Option<String>| label.clone().unwrap_or_else(|| MISSING.to_owned());
            compare(
                Difference::ContentType,
                "content-type",
                label(&a.content_type),
                label(&b.content_type),
            );
        }
        compare(
            Difference::Body,
            "body",
            a.form.name().to_owned(),
            b.form.name().to_owned(),
        );
        let end = |answer: &Answer| {
            if answer.is_reset {
                "connection broken"
            } else {
                "complete"
            }
            .to_owned()
        };
        compare(Difference::End, "end", end(a), end(b));
    }

    /// Finds parts that one side has in one event, and the other in several. Returns all these parts.
    fn together(&mut self, rows: &[Row]) -> BTreeSet<String> {
        let (a, b) = (
            sets(rows.iter().filter_map(|row| row.a.as_ref())),
            sets(rows.iter().filter_map(|row| row.b.as_ref())),
        );
        let mut all = BTreeSet::new();
        for (own, other, is_a) in [(&a, &b, true), (&b, &a, false)] {
            let known: BTreeSet<_> = other.keys().copied().flatten().collect();
            for (set, frames) in own
                .iter()
                .filter(|(set, _)| set.len() > 1 && !other.contains_key(*set))
            {
                // Parts that the other side has in one event as well are not torn apart there.
                let is_within = |larger: &&BTreeSet<String>| set.is_subset(larger);
                if !set.iter().all(|part| known.contains(part)) || other.keys().any(is_within) {
                    continue;
                }
                let label = set
                    .iter()
                    .map(String::as_str)
                    .collect::<Vec<_>>()
                    .join(" + ");
                let (words, frames) = match is_a {
                    true => (["together", "apart"], [*frames, Frames::default()]),
                    false => (["apart", "together"], [Frames::default(), *frames]),
                };
                self.add(
                    Difference::Together,
                    &label,
                    words.map(str::to_owned),
                    frames,
                );
                all.extend(set.iter().cloned());
            }
        }
        all
    }

    /// Finds events that only one side has, or that both have in another order.
    fn lone(&mut self, rows: &[Row], together: &BTreeSet<String>) {
        let mut others: Vec<&Run> = rows
            .iter()
            .filter(|row| row.a.is_none())
            .filter_map(|row| row.b.as_ref())
            .collect();
        let is_explained = |run: &Run| {
            run.shape
                .parts()
                .is_some_and(|parts| !parts.is_empty() && parts.is_subset(together))
        };
        let words = |run: &Run| match run.events.len() {
            1 => "1 frame".to_owned(),
            count => format!("{count} frames"),
        };
        for run in rows
            .iter()
            .filter(|row| row.b.is_none())
            .filter_map(|row| row.a.as_ref())
        {
            let label = run.shape.label();
            if let Some(at) = others.iter().position(|other| other.shape == run.shape) {
                let other = others.remove(at);
                let place = |run: &Run| {
                    run.events
                        .first()
                        .map_or_else(String::new, |at| format!("frame {}", at + 1))
                };
                let frames = [Frames::of(&run.events), Frames::of(&other.events)];
                self.add(
                    Difference::Order,
                    &label,
                    [place(run), place(other)],
                    frames,
                );
            } else if !is_explained(run) {
                let frames = [Frames::of(&run.events), Frames::default()];
                self.add(
                    Difference::Frames,
                    &label,
                    [words(run), MISSING.to_owned()],
                    frames,
                );
            }
        }
        for run in others.into_iter().filter(|run| !is_explained(run)) {
            let frames = [Frames::default(), Frames::of(&run.events)];
            self.add(
                Difference::Frames,
                &run.shape.label(),
                [MISSING.to_owned(), words(run)],
                frames,
            );
        }
    }

    /// Compares two aligned runs field by field.
    fn pair(&mut self, a: Side<'_>, b: Side<'_>, together: &BTreeSet<String>) {
        let all = [Frames::of(&a.run.events), Frames::of(&b.run.events)];
        if a.names() != b.names() {
            self.add(Difference::EventName, "event", [a.names(), b.names()], all);
        }
        let (one, two) = (held(a), held(b));
        let paths: BTreeSet<&str> = one.keys().chain(two.keys()).copied().collect();
        let renamed = self.renamed(&one, &two, all);
        let moved = moved(&a.run.shape, &b.run.shape, together);
        // Fields within an object that only one side has are not told one by one.
        let mut outer: Option<String> = None;
        for path in paths {
            if outer.as_ref().is_some_and(|outer| {
                path.strip_prefix(outer.as_str())
                    .is_some_and(|rest| rest.starts_with(['.', '[']))
            }) {
                continue;
            }
            let (left, right) = (one.get(path), two.get(path));
            let part = left.or(right).and_then(|held| held.part.as_ref());
            if renamed.contains(path) || part.is_some_and(|part| moved.contains(part)) {
                outer = Some(path.to_owned());
                continue;
            }
            let counts = [a.run.events.len(), b.run.events.len()];
            if self.field(path, [left, right], counts, all) {
                outer = Some(path.to_owned());
            }
        }
    }

    /// Compares one field of two runs. Returns true if its type or presence differs.
    fn field(
        &mut self,
        path: &str,
        held: [Option<&Held<'_>>; 2],
        counts: [usize; 2],
        all: [Frames; 2],
    ) -> bool {
        let [a, b] = held;
        let words = |held: Option<&Held<'_>>, count| {
            held.map_or_else(|| MISSING.to_owned(), |held| held.words(count))
        };
        let [count_a, count_b] = counts;
        let (left, right) = (words(a, count_a), words(b, count_b));
        if left != right {
            let kind = match (left.as_str(), right.as_str()) {
                ("null", MISSING) | (MISSING, "null") => Difference::Null,
                (MISSING, _) | (_, MISSING) => Difference::Field,
                _ => Difference::Type,
            };
            self.add(
                kind,
                path,
                [left, right],
                [deviating(a, b, all[0]), deviating(b, a, all[1])],
            );
            return true;
        }
        if let (Some(a), Some(b)) = (a, b)
            && a.values != b.values
            && !a.values.is_empty()
            && !b.values.is_empty()
        {
            let words =
                |held: &Held<'_>| held.values.iter().copied().collect::<Vec<_>>().join(" or ");
            self.add(Difference::Value, path, [words(a), words(b)], all);
        }
        false
    }

    /// Finds a part that has another name on each side, such as `reasoning`. Returns the paths of both.
    fn renamed<'p>(
        &mut self,
        a: &BTreeMap<&'p str, Held<'_>>,
        b: &BTreeMap<&'p str, Held<'_>>,
        all: [Frames; 2],
    ) -> BTreeSet<&'p str> {
        let lone = |own: &BTreeMap<&'p str, Held<'_>>,
                    other: &BTreeMap<&'p str, Held<'_>>|
         -> Vec<(&'p str, String)> {
            let is_string = |held: &Held<'_>| held.kinds.contains_key(&Kind::String);
            let alone = own
                .iter()
                .filter(|(path, held)| is_string(held) && !other.get(*path).is_some_and(is_string));
            alone
                .filter_map(|(path, held)| Some((*path, held.part.clone()?)))
                .collect()
        };
        let others = lone(b, a);
        let mut paths = BTreeSet::new();
        for (path, part) in lone(a, b) {
            let Some((other, _)) = others.iter().find(|(_, other)| *other == part) else {
                continue;
            };
            let name = |path: &str| super::field::name(path).to_owned();
            self.add(Difference::Name, path, [name(path), name(other)], all);
            paths.extend([path, *other]);
        }
        paths
    }
}

/// Returns the events of one side in which the field is not as on the other side.
fn deviating(own: Option<&Held<'_>>, other: Option<&Held<'_>>, all: Frames) -> Frames {
    let Some(own) = own else { return all };
    let is_common = |kind: &Kind| other.is_some_and(|other| other.kinds.contains_key(kind));
    let mut events: Vec<usize> = own
        .kinds
        .iter()
        .filter(|(kind, _)| !is_common(kind))
        .flat_map(|(_, events)| events.iter().copied())
        .collect();
    events.sort_unstable();
    events.dedup();
    if events.is_empty() {
        all
    } else {
        Frames::of(&events)
    }
}

/// Returns the sets of parts that events say, with the events.
fn sets<'r>(runs: impl Iterator<Item = &'r Run>) -> BTreeMap<&'r BTreeSet<String>, Frames> {
    let mut sets: BTreeMap<_, Frames> = BTreeMap::new();
    for run in runs {
        if let Some(parts) = run.shape.parts() {
            sets.entry(parts).or_default().add(Frames::of(&run.events));
        }
    }
    sets
}

/// Returns the parts that only one of two aligned events says, because the other side says them elsewhere.
fn moved(a: &Shape, b: &Shape, together: &BTreeSet<String>) -> BTreeSet<String> {
    match (a.parts(), b.parts()) {
        (Some(a), Some(b)) => a
            .symmetric_difference(b)
            .filter(|part| together.contains(*part))
            .cloned()
            .collect(),
        _ => BTreeSet::new(),
    }
}
