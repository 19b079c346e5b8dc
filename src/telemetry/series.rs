//! Counters, gauges and histograms, and their rendering in the Prometheus text format.

use crate::visible::visible_lines;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Number that can rise and fall, updated without locks. Some counters without labels use it as well.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// Creates a gauge with an initial value other than 0.
    pub const fn of(value: i64) -> Self {
        Self(AtomicI64::new(value))
    }

    /// Adds `by`, which may be negative, and returns the new value.
    pub fn add(&self, by: i64) -> i64 {
        self.0.fetch_add(by, Ordering::Relaxed) + by
    }

    /// Replaces the value, as for states that are 0 or 1.
    pub fn set(&self, value: i64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Returns the current value, which other threads may change at any time.
    pub fn value(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Appends the value, without braces if there are no labels.
    pub(super) fn render(&self, name: &str, labels: &str, out: &mut String) {
        let (open, close) = if labels.is_empty() {
            ("", "")
        } else {
            ("{", "}")
        };
        let _ = writeln!(out, "{name}{open}{labels}{close} {}", self.value());
    }
}

/// Histogram of durations, with fixed bounds in seconds and updates without locks.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    /// Counts per bound, and a last one for durations above all bounds.
    counts: Box<[AtomicU64]>,
    nanoseconds: AtomicU64,
}

impl Histogram {
    pub(super) fn new(bounds: &'static [f64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self {
            bounds,
            counts,
            nanoseconds: AtomicU64::new(0),
        }
    }

    /// Records one duration.
    pub fn observe(&self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let place = self.bounds.partition_point(|bound| *bound < seconds);
        if let Some(count) = self.counts.get(place) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// Returns true if nothing has been recorded, so that the series can be omitted.
    pub(super) fn is_empty(&self) -> bool {
        self.counts
            .iter()
            .all(|count| count.load(Ordering::Relaxed) == 0)
    }

    /// Adds the present counts to a snapshot of histograms with the same bounds.
    pub(super) fn add_to(&self, snapshot: &mut HistogramSnapshot) {
        for (sum, count) in snapshot.counts.iter_mut().zip(&self.counts) {
            *sum += count.load(Ordering::Relaxed);
        }
    }

    pub(super) fn render(&self, name: &str, labels: &str, out: &mut String) {
        let mut total = 0;
        let bounds = self
            .bounds
            .iter()
            .map(ToString::to_string)
            .chain(["+Inf".to_owned()]);
        for (bound, count) in bounds.zip(&self.counts) {
            total += count.load(Ordering::Relaxed);
            let _ = writeln!(out, "{name}_bucket{{{labels},le=\"{bound}\"}} {total}");
        }
        let sum = Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed)).as_secs_f64();
        let _ = writeln!(
            out,
            "{name}_sum{{{labels}}} {sum}\n{name}_count{{{labels}}} {total}"
        );
    }
}

/// Counts of one or several histograms at one time.
#[derive(Clone, Debug)]
pub struct HistogramSnapshot {
    bounds: &'static [f64],
    counts: Vec<u64>,
}

impl HistogramSnapshot {
    pub(super) fn new(bounds: &'static [f64]) -> Self {
        Self {
            bounds,
            counts: vec![0; bounds.len() + 1],
        }
    }

    /// Returns the counts that have been added since an earlier snapshot.
    pub(super) fn since(&self, before: &Self) -> Self {
        let counts = self
            .counts
            .iter()
            .zip(&before.counts)
            .map(|(now, before)| now.saturating_sub(*before));
        Self {
            bounds: self.bounds,
            counts: counts.collect(),
        }
    }

    /// Returns the number of durations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns a quantile in seconds, interpolated within its bucket; `None` without durations. Above all bounds it is
    /// the last bound.
    pub fn quantile(&self, part: f64) -> Option<f64> {
        let total = self.count();
        if total == 0 {
            return None;
        }
        let rank = part * total as f64;
        let (mut below, mut lower) = (0.0, 0.0);
        for (bound, count) in self.bounds.iter().zip(&self.counts) {
            let count = *count as f64;
            if count > 0.0 && below + count >= rank {
                return Some(lower + (bound - lower) * (rank - below) / count);
            }
            (below, lower) = (below + count, *bound);
        }
        Some(lower)
    }
}

/// Family of histograms with one label. The label's values are literals in the source, so their number is small.
#[derive(Debug)]
pub struct Histograms {
    label: &'static str,
    bounds: &'static [f64],
    series: RwLock<BTreeMap<&'static str, Histogram>>,
}

impl Histograms {
    pub(super) fn new(label: &'static str, bounds: &'static [f64]) -> Self {
        Self {
            label,
            bounds,
            series: RwLock::default(),
        }
    }

    /// Records one duration for a value of the label, creating its histogram if needed.
    pub fn observe(&self, value: &'static str, duration: Duration) {
        if let Some(known) = self.series.read().get(value) {
            return known.observe(duration);
        }
        let mut series = self.series.write();
        series
            .entry(value)
            .or_insert_with(|| Histogram::new(self.bounds))
            .observe(duration);
    }

    pub(super) fn render(&self, name: &str, help: &str, out: &mut String) {
        head(name, help, "histogram", out);
        for (value, histogram) in &*self.series.read() {
            histogram.render(name, &labels(&[(self.label, value)]), out);
        }
    }
}

/// Number of series that may still be created, shared by several counters. Label values come from closed sets, so
/// normal use stays below it. It bounds memory if that is ever violated, or if the configuration is very large.
#[derive(Clone, Debug)]
pub struct SeriesBudget(Arc<AtomicUsize>);

impl SeriesBudget {
    /// Creates a budget for this number of series, to be shared by clones.
    pub fn of(series: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(series)))
    }

    fn take(&self) -> bool {
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(1)
            })
            .is_ok()
    }

    fn give_back(&self, series: usize) {
        self.0.fetch_add(series, Ordering::Relaxed);
    }
}

/// Family of counters by the values of its labels. Looked up a few times for each request, never for each token.
/// Counting in a known series takes only a read lock, so a scrape does not delay it, and writes no text.
#[derive(Debug)]
pub struct Counters<const LABELS: usize> {
    names: [&'static str; LABELS],
    budget: SeriesBudget,
    /// Series in the order of their values.
    series: RwLock<Vec<Series<LABELS>>>,
}

#[derive(Debug)]
struct Series<const LABELS: usize> {
    values: [Box<str>; LABELS],
    count: AtomicU64,
}

impl<const LABELS: usize> Series<LABELS> {
    /// Returns the place of the series with these values, or where it would be.
    fn place(all: &[Self], values: &[&str; LABELS]) -> Result<usize, usize> {
        all.binary_search_by(|one| {
            one.values
                .iter()
                .map(|value| &**value)
                .cmp(values.iter().copied())
        })
    }

    fn add(&self, by: u64) {
        self.count.fetch_add(by, Ordering::Relaxed);
    }
}

impl<const LABELS: usize> Counters<LABELS> {
    /// Creates a family with labels of these names and without series, which shares the budget.
    pub fn new(names: [&'static str; LABELS], budget: &SeriesBudget) -> Self {
        Self {
            names,
            budget: budget.clone(),
            series: RwLock::default(),
        }
    }

    /// Adds `by` to the series with these values of the labels. Once the budget is used up, new combinations are
    /// counted with every value as `other`.
    pub fn add(&self, values: [&str; LABELS], by: u64) {
        if !self.add_to_known(&values, by) {
            self.add_to_new(values, by);
        }
    }

    fn add_to_known(&self, values: &[&str; LABELS], by: u64) -> bool {
        let series = self.series.read();
        let known = Series::place(&series, values)
            .ok()
            .and_then(|at| series.get(at));
        known.map(|known| known.add(by)).is_some()
    }

    fn add_to_new(&self, values: [&str; LABELS], by: u64) {
        let mut series = self.series.write();
        let fits = Series::place(&series, &values).is_ok() || self.budget.take();
        let values = if fits { values } else { ["other"; LABELS] };
        match Series::place(&series, &values) {
            Ok(at) => series.get(at).into_iter().for_each(|known| known.add(by)),
            Err(at) => series.insert(
                at,
                Series {
                    values: values.map(Into::into),
                    count: by.into(),
                },
            ),
        }
    }

    /// Drops the series in which the label has this value, so that others may take their place.
    pub(super) fn forget(&self, label: &str, value: &str) {
        let Some(at) = self.names.iter().position(|name| *name == label) else {
            return;
        };
        let mut series = self.series.write();
        let before = series.len();
        series.retain(|one| one.values.get(at).is_none_or(|own| **own != *value));
        self.budget.give_back(before - series.len());
    }

    /// Returns what `read` makes of each series: of the values of its labels, and of its count.
    pub(super) fn counts<T>(&self, mut read: impl FnMut([&str; LABELS], u64) -> T) -> Vec<T> {
        let series = self.series.read();
        let counts = series.iter().map(|Series { values, count }| {
            read(
                values.each_ref().map(|value| &**value),
                count.load(Ordering::Relaxed),
            )
        });
        counts.collect()
    }

    pub(super) fn render(&self, name: &str, help: &str, out: &mut String) {
        head(name, help, "counter", out);
        let mut lines = self.counts(|values, count| {
            let pairs: Vec<_> = self.names.into_iter().zip(values).collect();
            (labels(&pairs), count)
        });
        lines.sort_unstable();
        for (labels, count) in lines {
            let _ = writeln!(out, "{name}{{{labels}}} {count}");
        }
    }
}

pub(super) fn head(name: &str, help: &str, kind: &str, out: &mut String) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// Appends a metric without labels.
pub(super) fn single(name: &str, help: &str, kind: &str, value: impl Display, out: &mut String) {
    head(name, help, kind, out);
    let _ = writeln!(out, "{name} {value}");
}

/// Returns labels in the form `a="b",c="d"`, escaped as the Prometheus text format requires.
pub(super) fn labels(pairs: &[(&str, &str)]) -> String {
    let mut text = String::with_capacity(pairs.len() * 32);
    for (name, value) in pairs {
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(name);
        text.push_str("=\"");
        let seen = visible_lines(value);
        let mut rest = &*seen;
        while let Some(at) = memchr::memchr3(b'\\', b'"', b'\n', rest.as_bytes()) {
            let (plain, special) = rest.split_at(at);
            text.push_str(plain);
            text.push_str(match special.as_bytes() {
                [b'\n', ..] => "\\n",
                [b'"', ..] => "\\\"",
                _ => "\\\\",
            });
            rest = special.get(1..).unwrap_or("");
        }
        text.push_str(rest);
        text.push('"');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_add_up_and_bounds_belong_below() {
        let histogram = Histogram::new(&[0.1, 1.0]);
        for millis in [1, 100, 500, 5000] {
            histogram.observe(Duration::from_millis(millis));
        }
        let mut text = String::new();
        histogram.render("x", "a=\"b\"", &mut text);
        assert_eq!(
            text,
            "x_bucket{a=\"b\",le=\"0.1\"} 2\nx_bucket{a=\"b\",le=\"1\"} 3\nx_bucket{a=\"b\",le=\"+Inf\"} 4\n\
             x_sum{a=\"b\"} 5.601\nx_count{a=\"b\"} 4\n"
        );
    }

    #[test]
    fn quantiles_are_interpolated() {
        let histogram = Histogram::new(&[0.1, 0.2, 1.0]);
        let snapshot = |histogram: &Histogram| {
            let mut snapshot = HistogramSnapshot::new(histogram.bounds);
            histogram.add_to(&mut snapshot);
            snapshot
        };
        let before = snapshot(&histogram);
        assert_eq!(before.quantile(0.5), None);
        for millis in [50, 150, 150, 5000] {
            histogram.observe(Duration::from_millis(millis));
        }
        let after = snapshot(&histogram).since(&before);
        let shown: Vec<_> = [0.25, 0.5, 0.75, 0.95]
            .map(|part| format!("{:.3}", after.quantile(part).unwrap()))
            .into();
        assert_eq!(
            (after.count(), shown.join(" ")),
            (4, "0.100 0.150 0.200 1.000".to_owned())
        );
    }

    #[test]
    fn values_are_read_back() {
        let counters = Counters::new(["engine", "rule"], &SeriesBudget::of(5));
        counters.add(["vllm", "id"], 2);
        let counts =
            counters.counts(|[engine, rule], count| (engine.to_owned(), rule.to_owned(), count));
        assert_eq!(counts, [("vllm".to_owned(), "id".to_owned(), 2)]);
    }

    #[test]
    fn what_is_forgotten_makes_room() {
        let counters = Counters::new(["upstream", "kind"], &SeriesBudget::of(2));
        for name in ["a", "b", "c"] {
            counters.add([name, "x"], 1);
        }
        counters.forget("upstream", "a");
        counters.forget("kind", "b");
        counters.forget("model", "b");
        counters.add(["d", "x"], 1);
        let counts = counters.counts(|[upstream, _], count| (upstream.to_owned(), count));
        let expected =
            [("b", 1), ("d", 1), ("other", 1)].map(|(name, count)| (name.to_owned(), count));
        assert_eq!(counts, expected);
    }

    fn rendered<const LABELS: usize>(counters: &Counters<LABELS>) -> String {
        let mut text = String::new();
        counters.render("x", "h", &mut text);
        text
    }

    #[test]
    fn counters_escape_their_labels_and_are_bounded() {
        let (most, counters) = (20, Counters::new(["a"], &SeriesBudget::of(20)));
        counters.add(["q\"\\\n"], 2);
        counters.add(["q\"\\\n"], 3);
        assert_eq!(
            rendered(&counters),
            "# HELP x h\n# TYPE x counter\nx{a=\"q\\\"\\\\\\n\"} 5\n"
        );
        let unseen = Counters::new(["a"], &SeriesBudget::of(20));
        unseen.add(["\u{202e}a\u{1b}\r\nb"], 1);
        assert!(
            rendered(&unseen).contains("x{a=\"\\\\u{202e}a\\\\u{1b}\\\\r\\nb\"} 1\n"),
            "{}",
            rendered(&unseen)
        );
        for n in 0..2 * most {
            counters.add([&n.to_string()], 1);
        }
        counters.add(["5"], 9);
        let text = rendered(&counters);
        assert_eq!(text.lines().count(), 2 + most + 1);
        assert!(
            text.contains("x{a=\"5\"} 10\n") && text.contains("x{a=\"other\"} 21\n"),
            "{text}"
        );
    }

    /// The end of a value counts as a quotation mark, which comes after a space.
    #[test]
    fn counters_are_in_the_order_of_their_lines() {
        let counters = Counters::new(["a", "b"], &SeriesBudget::of(9));
        for values in [["m-2", "x"], ["m", "y"], ["m", "x"], ["m 1", "x"]] {
            counters.add(values, 1);
        }
        let text = rendered(&counters);
        let found: Vec<_> = text.lines().skip(2).collect();
        let expected = ["m 1\",b=\"x", "m\",b=\"x", "m\",b=\"y", "m-2\",b=\"x"]
            .map(|values| format!("x{{a=\"{values}\"}} 1"));
        assert_eq!(found, expected);
    }
}
