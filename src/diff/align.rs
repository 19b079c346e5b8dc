//! Alignment of the runs of two answers: which run of one belongs to which of the other.
//!
//! Takes: the runs of both. Gives: [`Row`]s in order. Never: aligns runs that say nothing alike.

use super::run::Run;

/// Row of the alignment: a run on each side, or on one side alone.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    pub(super) a: Option<Run>,
    pub(super) b: Option<Run>,
}

impl Row {
    /// Returns the runs of both sides, if both are there.
    pub(super) fn both(&self) -> Option<(&Run, &Run)> {
        self.a.as_ref().zip(self.b.as_ref())
    }
}

/// Aligns two lists of runs so that the sum of the likenesses is largest: a longest common subsequence in which runs
/// may be alike in part.
pub(super) fn align(a: Vec<Run>, b: Vec<Run>) -> Vec<Row> {
    let table = scores(&a, &b);
    let score = |i: usize, j: usize| {
        table
            .get(i)
            .and_then(|row| row.get(j))
            .copied()
            .unwrap_or(0.0)
    };
    let (mut i, mut j) = (0, 0);
    let mut rows = Vec::new();
    let (mut left, mut right) = (a.into_iter().peekable(), b.into_iter().peekable());
    while let (Some(one), Some(two)) = (left.peek(), right.peek()) {
        let likeness = one.shape.likeness(&two.shape);
        if likeness > 0.0 && score(i, j) <= score(i + 1, j + 1) + likeness {
            rows.push(Row {
                a: left.next(),
                b: right.next(),
            });
            (i, j) = (i + 1, j + 1);
        } else if score(i + 1, j) >= score(i, j + 1) {
            rows.push(Row {
                a: left.next(),
                b: None,
            });
            i += 1;
        } else {
            rows.push(Row {
                a: None,
                b: right.next(),
            });
            j += 1;
        }
    }
    rows.extend(left.map(|run| Row {
        a: Some(run),
        b: None,
    }));
    rows.extend(right.map(|run| Row {
        a: None,
        b: Some(run),
    }));
    joined(rows)
}

/// Returns the best sums of likenesses for what remains from run `i` of one and run `j` of the other.
fn scores(a: &[Run], b: &[Run]) -> Vec<Vec<f32>> {
    let mut rows = vec![vec![0.0; b.len() + 1]];
    for one in a.iter().rev() {
        let below = rows.last().cloned().unwrap_or_default();
        let mut row = vec![0.0_f32; b.len() + 1];
        let mut after = 0.0_f32;
        for (at, two) in b.iter().enumerate().rev() {
            let likeness = one.shape.likeness(&two.shape);
            let of = |at: usize| below.get(at).copied().unwrap_or(0.0);
            let paired = if likeness > 0.0 {
                of(at + 1) + likeness
            } else {
                0.0
            };
            after = paired.max(of(at)).max(after);
            if let Some(cell) = row.get_mut(at) {
                *cell = after;
            }
        }
        rows.push(row);
    }
    rows.reverse();
    rows
}

/// Joins a lone run to the nearest aligned one of the same form, if only lone runs are between them: an event of
/// another form, such as an empty one in the middle of a text, has split it.
fn joined(rows: Vec<Row>) -> Vec<Row> {
    let forward = join_backwards(rows);
    let mut reversed: Vec<_> = join_backwards(forward.into_iter().rev().collect());
    reversed.reverse();
    for run in reversed
        .iter_mut()
        .flat_map(|row| row.a.iter_mut().chain(row.b.iter_mut()))
    {
        run.events.sort_unstable();
    }
    reversed
}

fn join_backwards(rows: Vec<Row>) -> Vec<Row> {
    let mut out: Vec<Row> = Vec::new();
    // Row of the last pair.
    let mut pair = None;
    for mut row in rows {
        if row.both().is_some() {
            pair = Some(out.len());
            out.push(row);
            continue;
        }
        let target = pair.and_then(|at: usize| out.get_mut(at));
        if let Some(target) = target {
            take_in(&mut target.a, &mut row.a);
            take_in(&mut target.b, &mut row.b);
        }
        if row.a.is_some() || row.b.is_some() {
            out.push(row);
        }
    }
    out
}

/// Moves the events of `lone` into `target` if both have one form.
fn take_in(target: &mut Option<Run>, lone: &mut Option<Run>) {
    let (Some(target), Some(run)) = (target, lone.as_mut()) else {
        return;
    };
    if target.shape == run.shape {
        target.events.append(&mut run.events);
        *lone = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diff::run::Shape;

    /// Makes runs from words: `c` is content, `cf` content with a finish reason, `.` nothing, `!` the end mark.
    fn runs(words: &str) -> Vec<Run> {
        let shape = |word: &str| match word {
            "!" => Shape::Done,
            "." => Shape::Parts([].into()),
            _ => Shape::Parts(word.chars().map(String::from).collect()),
        };
        let runs = words.split_whitespace().enumerate();
        runs.map(|(at, word)| Run {
            shape: shape(word),
            events: vec![at],
        })
        .collect()
    }

    fn shown(a: &str, b: &str) -> String {
        let side = |run: &Option<Run>| match run {
            Some(run) => run
                .events
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(","),
            None => "-".to_owned(),
        };
        let rows = align(runs(a), runs(b));
        rows.iter()
            .map(|row| format!("{}={}", side(&row.a), side(&row.b)))
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn runs_are_aligned_in_order() {
        for (a, b, expected) in [
            ("r c f !", "r c f !", "0=0 1=1 2=2 3=3"),
            ("r c cf !", "r c f !", "0=0 1=1 2=2 3=3"),
            ("r c f u !", "r c fu !", "0=0 1=1 2=2 3=- 4=3"),
            ("r c . c f", "r c f", "0=0 1,3=1 2=- 4=2"),
            ("r c f", "r c . c f", "0=0 1=1,3 -=2 2=4"),
            ("f c", "c f", "0=- 1=0 -=1"),
            ("a", "b", "0=- -=0"),
            ("", "a", "-=0"),
        ] {
            assert_eq!(shown(a, b), expected, "{a} | {b}");
        }
    }
}
