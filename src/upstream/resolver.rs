//! Resolver: the addresses of an engine's host name, looked up in the background so that requests rarely wait.
//!
//! Takes: the system's results for a name (`/etc/hosts`, DNS, and others). Gives: the addresses, in turn, so that
//! several engines behind one name share the load. Never: runs two lookups at once; forgets addresses because DNS
//! fails (faults U02, O23).
//!
//! Each upstream has one resolver, which all threads share.

use crate::config::{Timeouts, UpstreamConfig};
use crate::error::{Error, RetryClass};
use crate::wire::fault::Fault;
use parking_lot::{Mutex, MutexGuard};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Age from which the addresses are looked up again at their next use. Probes use them every few seconds, so a
/// change is known within half a minute.
const FRESH: Duration = Duration::from_secs(20);
/// Age up to which addresses stay in use if lookups fail.
const STALE: Duration = Duration::from_secs(300);
/// Pause after a failed lookup.
const PAUSE: Duration = Duration::from_secs(1);
/// Time for which an address that could not be reached is used only if no other one is available.
const SHUNNED: Duration = Duration::from_secs(10);
/// Time after which a new address beside others gets its full share of the requests.
const RAMP: Duration = Duration::from_secs(10);

/// Function that starts a lookup; its result goes to [`PendingLookup`].
pub(super) type Lookup = fn(PendingLookup);

/// Resolver of one upstream: its known addresses, and the state of the lookup that refreshes them.
#[derive(Debug)]
pub(super) struct Resolver {
    /// Upstream's name in the log.
    upstream: String,
    host: String,
    port: u16,
    /// Time that a request waits for the first lookup.
    timeout: Duration,
    lookup: Lookup,
    /// Address that the configuration gives in place of a name: no lookup is needed.
    fixed: Option<SocketAddr>,
    state: Mutex<ResolverState>,
    updated: Notify,
}

impl Resolver {
    /// Creates a resolver that queries the system.
    pub(super) fn from_system(upstream: &UpstreamConfig, timeouts: &Timeouts) -> Arc<Self> {
        Self::with_lookup(
            by_the_system,
            &upstream.name,
            (&upstream.host, upstream.port),
            *timeouts.dns,
        )
    }

    /// Takes over the known addresses of another resolver for the same name, so that a reload does not forget them.
    pub(super) fn inherit(&self, before: &Self) {
        if (&self.host, self.port) == (&before.host, before.port) {
            self.state().known = before.state().known.clone();
        }
    }

    fn with_lookup(
        lookup: Lookup,
        upstream: &str,
        (host, port): (&str, u16),
        patience: Duration,
    ) -> Arc<Self> {
        let host = host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        let turn = getrandom::u32().unwrap_or(0) as usize;
        Arc::new(Self {
            upstream: upstream.to_owned(),
            fixed: host
                .parse::<IpAddr>()
                .ok()
                .map(|ip| SocketAddr::new(ip, port)),
            host,
            port,
            timeout: patience,
            lookup,
            state: Mutex::new(ResolverState {
                turn,
                ..ResolverState::default()
            }),
            updated: Notify::new(),
        })
    }

    /// Returns the address whose turn it is, or `None` if none is known. Starts a lookup in the background if one
    /// is due.
    pub(super) fn next(self: &Arc<Self>) -> Option<SocketAddr> {
        if self.fixed.is_some() {
            return self.fixed;
        }
        self.refresh();
        self.state()
            .next(Instant::now(), || getrandom::u32().unwrap_or(u32::MAX))
    }

    /// Returns the addresses in the order in which to try them: `first`, then those that could be reached last
    /// time. Waits for the lookup if none is known yet.
    ///
    /// # Errors
    /// Fails if no address is known and the lookup fails or takes too long.
    pub(super) async fn order(
        self: &Arc<Self>,
        first: Option<SocketAddr>,
    ) -> Result<Vec<SocketAddr>, Error> {
        if let Some(fixed) = self.fixed {
            return Ok(vec![fixed]);
        }
        loop {
            let told = self.updated.notified();
            self.refresh();
            let since = {
                let state = self.state();
                if let Some(order) = state.order(Instant::now(), first) {
                    return Ok(order);
                }
                match (state.lookup_since, &state.failed) {
                    (Some(since), _) => since,
                    (None, failed) => {
                        let why = failed
                            .as_ref()
                            .map_or_else(|| ErrorKind::NotFound.into(), FailedLookup::error);
                        return Err(Error::from(Fault::Unreachable).with_source(&why));
                    }
                }
            };
            if tokio::time::timeout_at(since + self.timeout, told)
                .await
                .is_err()
            {
                let why = io::Error::new(ErrorKind::TimedOut, "the name is not answered for");
                return Err(Error::from(Fault::Timeout)
                    .with_class(RetryClass::Unsent)
                    .with_source(&why));
            }
        }
    }

    /// Returns the number of known addresses.
    pub(super) fn count(&self) -> usize {
        if self.fixed.is_some() {
            1
        } else {
            self.state().places(Instant::now()).len()
        }
    }

    /// Records whether an address could be reached.
    pub(super) fn record_connect(&self, address: SocketAddr, reached: bool) {
        if self.fixed.is_none() {
            self.state().tried(Instant::now(), address, reached);
        }
    }

    /// Starts a lookup, if one is due.
    fn refresh(self: &Arc<Self>) {
        if self.state().is_due(Instant::now()) {
            (self.lookup)(PendingLookup {
                by: Arc::clone(self),
                told: false,
            });
        }
    }

    fn finish(&self, found: io::Result<Vec<SocketAddr>>) {
        match self.state().record_lookup(Instant::now(), found) {
            LookupReport::None => {}
            LookupReport::Addresses(count) => {
                tracing::info!(
                    upstream = self.upstream,
                    addresses = count,
                    "upstream's addresses"
                );
            }
            LookupReport::Fails(why) => {
                tracing::warn!(
                    upstream = self.upstream,
                    why,
                    "upstream's name cannot be looked up"
                );
            }
        }
        self.updated.notify_waiters();
    }

    fn state(&self) -> MutexGuard<'_, ResolverState> {
        self.state.lock()
    }
}

/// Lookup that is under way. Counts as failed if it is dropped without a result.
#[derive(Debug)]
pub(super) struct PendingLookup {
    by: Arc<Resolver>,
    told: bool,
}

impl PendingLookup {
    fn tell(mut self, found: io::Result<Vec<SocketAddr>>) {
        self.told = true;
        self.by.finish(found);
    }
}

impl Drop for PendingLookup {
    fn drop(&mut self) {
        if !self.told {
            self.by.finish(Err(ErrorKind::Interrupted.into()));
        }
    }
}

/// Looks the name up through the system, on its own thread: a lookup takes up to half a minute if no server
/// answers, and must not keep a runtime from shutting down.
fn by_the_system(lookup: PendingLookup) {
    let resolve = move || {
        let found = (lookup.by.host.as_str(), lookup.by.port).to_socket_addrs();
        lookup.tell(found.map(Iterator::collect));
    };
    // If no thread can be started, `lookup` is dropped, which reports the failure.
    let _ = std::thread::Builder::new()
        .name("lookup".to_owned())
        .spawn(resolve);
}

/// Change to log after a lookup.
#[derive(Debug, PartialEq, Eq)]
enum LookupReport {
    None,
    Addresses(usize),
    Fails(String),
}

/// State of a resolver. Independent of the clock: callers pass the time.
#[derive(Debug, Default)]
struct ResolverState {
    known: Option<KnownAddresses>,
    /// Start of the lookup that is under way.
    lookup_since: Option<Instant>,
    /// Failure of the last lookup.
    failed: Option<FailedLookup>,
    turn: usize,
}

#[derive(Clone, Debug)]
struct KnownAddresses {
    addresses: Vec<ResolvedAddress>,
    since: Instant,
}

#[derive(Clone, Debug)]
struct ResolvedAddress {
    address: SocketAddr,
    /// Time at which it joined the others; `None` if it was among the first.
    joined: Option<Instant>,
    /// Time until which it is used only if no other one is available.
    shunned: Option<Instant>,
}

#[derive(Debug)]
struct FailedLookup {
    at: Instant,
    kind: ErrorKind,
    why: String,
}

impl FailedLookup {
    fn error(&self) -> io::Error {
        io::Error::new(self.kind, self.why.clone())
    }
}

impl ResolvedAddress {
    fn is_shunned(&self, now: Instant) -> bool {
        self.shunned.is_some_and(|until| now < until)
    }

    /// Returns true if this address takes part in the choice: not if it is shunned, and only at times while it is
    /// new.
    fn takes_part(&self, now: Instant, chance: impl FnOnce() -> u32) -> bool {
        let age = self
            .joined
            .map(|joined| now.saturating_duration_since(joined))
            .filter(|age| *age < RAMP);
        let share = |age: Duration| age.as_secs_f64() / RAMP.as_secs_f64();
        !self.is_shunned(now)
            && age.is_none_or(|age| f64::from(chance()) / f64::from(u32::MAX) < share(age))
    }
}

impl ResolverState {
    /// Returns true if a lookup has to start, and marks it as under way.
    fn is_due(&mut self, now: Instant) -> bool {
        let past = |since: Instant, time| now.saturating_duration_since(since) >= time;
        let due = self.lookup_since.is_none()
            && self
                .known
                .as_ref()
                .is_none_or(|known| past(known.since, FRESH))
            && self
                .failed
                .as_ref()
                .is_none_or(|failed| past(failed.at, PAUSE));
        if due {
            self.lookup_since = Some(now);
        }
        due
    }

    fn places(&self, now: Instant) -> &[ResolvedAddress] {
        let good = self
            .known
            .as_ref()
            .filter(|known| now.saturating_duration_since(known.since) < STALE);
        good.map_or(&[], |known| &known.addresses)
    }

    fn next(&mut self, now: Instant, chance: impl Fn() -> u32) -> Option<SocketAddr> {
        let turn = self.turn;
        self.turn = turn.wrapping_add(1);
        let places = self.places(now);
        if let [only] = places {
            return Some(only.address);
        }
        let some: Vec<_> = places
            .iter()
            .filter(|place| place.takes_part(now, &chance))
            .collect();
        let nth = |count: usize| turn.checked_rem(count).unwrap_or(0);
        let chosen = some
            .get(nth(some.len()))
            .copied()
            .or_else(|| places.get(nth(places.len())));
        chosen.map(|place| place.address)
    }

    fn order(&self, now: Instant, first: Option<SocketAddr>) -> Option<Vec<SocketAddr>> {
        let places = self.places(now);
        let start = first.and_then(|first| places.iter().position(|place| place.address == first));
        let start = start.unwrap_or_else(|| self.turn.checked_rem(places.len()).unwrap_or(0));
        let (after, before) = places.split_at_checked(start)?;
        let mut turned: Vec<_> = before.iter().chain(after).collect();
        turned.sort_by_key(|place| Some(place.address) != first && place.is_shunned(now));
        Some(turned.iter().map(|place| place.address).collect())
            .filter(|order: &Vec<_>| !order.is_empty())
    }

    fn tried(&mut self, now: Instant, address: SocketAddr, reached: bool) {
        let mut places = self.known.iter_mut().flat_map(|known| &mut known.addresses);
        if let Some(place) = places.find(|place| place.address == address) {
            place.shunned = (!reached).then(|| now + SHUNNED);
        }
    }

    fn record_lookup(&mut self, now: Instant, found: io::Result<Vec<SocketAddr>>) -> LookupReport {
        self.lookup_since = None;
        let found = found.and_then(|all| match all.is_empty() {
            true => Err(io::Error::new(
                ErrorKind::NotFound,
                "the name has no addresses",
            )),
            false => Ok(all),
        });
        let mut found = match found {
            Ok(found) => found,
            Err(error) => {
                let (kind, why) = (error.kind(), error.to_string());
                let before = self.failed.replace(FailedLookup {
                    at: now,
                    kind,
                    why: why.clone(),
                });
                return if before.is_some() {
                    LookupReport::None
                } else {
                    LookupReport::Fails(why)
                };
            }
        };
        self.failed = None;
        found.sort_unstable();
        found.dedup();
        let known = self.known.take();
        let first = known.is_none();
        let mut before = known.map_or_else(Vec::new, |known| known.addresses);
        let count = before.len();
        let mut kept = 0;
        let places = found.into_iter().map(|address| {
            match before.iter().position(|place| place.address == address) {
                Some(at) => {
                    kept += 1;
                    before.swap_remove(at)
                }
                None => ResolvedAddress {
                    address,
                    joined: (!first).then_some(now),
                    shunned: None,
                },
            }
        });
        let places: Vec<_> = places.collect();
        let same = kept == count && kept == places.len();
        let news = if same {
            LookupReport::None
        } else {
            LookupReport::Addresses(places.len())
        };
        self.known = Some(KnownAddresses {
            addresses: places,
            since: now,
        });
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn at(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 8000))
    }

    fn all(lasts: impl IntoIterator<Item = u8>) -> io::Result<Vec<SocketAddr>> {
        Ok(lasts.into_iter().map(at).collect())
    }

    fn fails() -> io::Result<Vec<SocketAddr>> {
        Err(io::Error::other("no answer"))
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Returns how often each address is chosen in this number of turns.
    fn shares(state: &mut ResolverState, now: Instant, times: usize) -> Vec<usize> {
        let seed = AtomicUsize::new(1);
        let chance = || {
            let number = seed.fetch_add(1, Ordering::Relaxed) as u64;
            u32::try_from(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32).unwrap()
        };
        let mut shares = vec![0; 60];
        for _ in 0..times {
            let SocketAddr::V4(address) = state.next(now, chance).unwrap() else {
                panic!()
            };
            shares[usize::from(address.ip().octets()[3])] += 1;
        }
        let last = shares.iter().rposition(|share| *share > 0).unwrap();
        shares[1..=last].to_vec()
    }

    #[test]
    fn fault_u02_one_lookup_at_a_time_and_none_while_it_is_fresh() {
        let (mut state, start) = (ResolverState::default(), Instant::now());
        assert_eq!(state.next(start, || 0), None);
        assert!(state.is_due(start));
        assert!(!state.is_due(start + seconds(100)), "one is under way");
        assert_eq!(
            state.record_lookup(start, all([1])),
            LookupReport::Addresses(1)
        );
        assert!(!state.is_due(start + seconds(19)));
        assert!(state.is_due(start + seconds(20)));
        assert_eq!(
            state.next(start + seconds(25), || 0),
            Some(at(1)),
            "nobody waits for it"
        );
        assert_eq!(
            state.record_lookup(start + seconds(26), all([1])),
            LookupReport::None
        );
        assert!(!state.is_due(start + seconds(45)));
    }

    #[test]
    fn fault_u02_what_was_good_stays_for_five_minutes() {
        let (mut state, start) = (ResolverState::default(), Instant::now());
        state.is_due(start);
        state.record_lookup(start, all([1, 2]));
        let mut told = Vec::new();
        for second in 20..299 {
            let now = start + seconds(second);
            if state.is_due(now) {
                told.push(
                    state.record_lookup(now, if second % 2 == 0 { fails() } else { all([]) }),
                );
            }
            assert!(state.next(now, || 0).is_some(), "{second}");
            assert_eq!(state.order(now, None).unwrap().len(), 2);
        }
        assert_eq!(told.len(), 279, "one a second");
        assert_eq!(
            told.iter()
                .filter(|news| **news != LookupReport::None)
                .count(),
            1,
            "said once: {:?}",
            told[0]
        );
        let late = start + seconds(300);
        assert_eq!(
            (state.next(late, || 0), state.order(late, None)),
            (None, None)
        );
        assert!(state.is_due(late));
        assert_eq!(
            state.record_lookup(late, all([2, 3])),
            LookupReport::Addresses(2)
        );
        assert_eq!(state.order(late, Some(at(3))).unwrap(), [at(3), at(2)]);
    }

    #[test]
    fn fault_u02_fifty_addresses_share_the_requests() {
        let (mut state, start) = (ResolverState::default(), Instant::now());
        state.record_lookup(start, all(1..=50));
        assert_eq!(shares(&mut state, start, 5_000), [100; 50]);
        let first = state.next(start, || 0).unwrap();
        let order = state.order(start, Some(first)).unwrap();
        assert_eq!((order.len(), order[0]), (50, first));
    }

    #[test]
    fn fault_u02_who_cannot_be_reached_is_asked_last() {
        let (mut state, start) = (ResolverState::default(), Instant::now());
        state.record_lookup(start, all(1..=4));
        state.tried(start, at(2), false);
        assert_eq!(shares(&mut state, start, 300), [100, 0, 100, 100]);
        assert_eq!(
            state.order(start, Some(at(1))).unwrap(),
            [at(1), at(3), at(4), at(2)]
        );
        state.record_lookup(start, all(1..=4));
        assert_eq!(
            shares(&mut state, start, 300),
            [100, 0, 100, 100],
            "it is the same address still"
        );
        (1..=4).for_each(|last| state.tried(start, at(last), false));
        assert_eq!(
            shares(&mut state, start, 400),
            [100; 4],
            "there is no other"
        );
        assert_eq!(shares(&mut state, start + SHUNNED, 400), [100; 4]);
        state.tried(start, at(3), true);
        assert_eq!(shares(&mut state, start, 100), [0, 0, 100]);
    }

    #[test]
    fn fault_o23_new_ones_come_slowly_and_those_that_left_are_not_asked() {
        let (mut state, start) = (ResolverState::default(), Instant::now());
        state.record_lookup(start, all([1]));
        let grown = start + seconds(20);
        assert_eq!(
            state.record_lookup(grown, all(1..=4)),
            LookupReport::Addresses(4)
        );
        assert_eq!(shares(&mut state, grown, 100), [100]);
        let half = shares(&mut state, grown + seconds(5), 4_000);
        assert!(
            half[0] > 1_500 && half[1..].iter().all(|share| (400..=1_000).contains(share)),
            "{half:?}"
        );
        assert_eq!(shares(&mut state, grown + RAMP, 400), [100; 4]);
        let shrunk = grown + seconds(30);
        assert_eq!(
            state.record_lookup(shrunk, all([4])),
            LookupReport::Addresses(1)
        );
        assert_eq!(shares(&mut state, shrunk, 100), [0, 0, 0, 100]);
        assert_eq!(state.record_lookup(shrunk, all([4, 4])), LookupReport::None);
        assert_eq!(
            state.record_lookup(shrunk, all([3])),
            LookupReport::Addresses(1)
        );
    }

    #[tokio::test]
    async fn fault_u02_waiting_for_the_first_addresses_has_an_end() {
        fn silent(lookup: PendingLookup) {
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(400));
                lookup.tell(all([7]));
            });
        }
        let addresses =
            Resolver::with_lookup(silent, "e", ("engine", 8000), Duration::from_millis(100));
        assert_eq!(addresses.next(), None);
        let begun = Instant::now();
        let error = addresses.order(None).await.unwrap_err();
        assert_eq!(
            (error.public.fault, error.class),
            (Fault::Timeout, RetryClass::Unsent)
        );
        assert!(
            (50..350).contains(&begun.elapsed().as_millis()),
            "{:?}",
            begun.elapsed()
        );
        let begun = Instant::now();
        addresses.order(None).await.unwrap_err();
        assert!(
            begun.elapsed() < Duration::from_millis(50),
            "nobody waits for what is late already"
        );
        while addresses.next().is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(
            addresses.order(None).await.unwrap(),
            [at(7)],
            "late is better than never"
        );
    }

    #[tokio::test]
    async fn fault_u02_many_requests_are_one_lookup() {
        static LOOKUPS: AtomicUsize = AtomicUsize::new(0);
        fn failing(lookup: PendingLookup) {
            LOOKUPS.fetch_add(1, Ordering::SeqCst);
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(50));
                drop(lookup);
            });
        }
        let addresses =
            Resolver::with_lookup(failing, "e", ("engine", 8000), Duration::from_secs(2));
        let all = futures::future::join_all((0..100).map(|_| addresses.order(None))).await;
        for error in all.into_iter().map(Result::unwrap_err) {
            assert_eq!(
                (error.public.fault, error.class),
                (Fault::Unreachable, RetryClass::Unsent)
            );
        }
        addresses.order(None).await.unwrap_err();
        assert_eq!(LOOKUPS.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn what_was_known_is_handed_on() {
        fn never(_: PendingLookup) {
            panic!("looked up");
        }
        let named = |name| Resolver::with_lookup(never, "e", (name, 8000), Duration::from_secs(2));
        let before = named("engine");
        before.state().record_lookup(Instant::now(), all([1]));
        for (name, known) in [("engine", Some(at(1))), ("other", None)] {
            let after = named(name);
            after.inherit(&before);
            assert_eq!(after.state().next(Instant::now(), || 0), known, "{name}");
        }
    }

    #[test]
    fn addresses_are_counted_and_the_one_that_failed_comes_last() {
        fn never(_: PendingLookup) {
            panic!("looked up");
        }
        let addresses = Resolver::with_lookup(never, "e", ("engine", 8000), Duration::from_secs(2));
        assert_eq!(addresses.count(), 0);
        addresses.state().record_lookup(Instant::now(), all([1, 2]));
        assert_eq!(addresses.count(), 2);
        for failed in [1, 2] {
            addresses.record_connect(at(failed), false);
            let order = addresses.state().order(Instant::now(), None).unwrap();
            assert_eq!(order.last(), Some(&at(failed)), "{order:?}");
            addresses.record_connect(at(failed), true);
        }
    }

    #[tokio::test]
    async fn addresses_need_no_lookup() {
        fn never(_: PendingLookup) {
            panic!("looked up");
        }
        for (host, address) in [("127.0.0.1", "127.0.0.1:8000"), ("[::1]", "[::1]:8000")] {
            let addresses = Resolver::with_lookup(never, "e", (host, 8000), Duration::from_secs(2));
            let address = address.parse().unwrap();
            assert_eq!(addresses.next(), Some(address));
            assert_eq!(addresses.order(None).await.unwrap(), [address]);
        }
        let here = Resolver::with_lookup(
            by_the_system,
            "e",
            ("localhost", 8000),
            Duration::from_secs(2),
        );
        let order = here.order(None).await.unwrap();
        assert!(
            order.iter().all(|address| address.ip().is_loopback()),
            "{order:?}"
        );
    }

    #[test]
    fn an_address_takes_part_by_its_age() {
        let start = Instant::now();
        let address = |joined, shunned| ResolvedAddress {
            address: at(1),
            joined,
            shunned,
        };
        let quarter = u32::MAX / 4;
        for (age, chance, takes_part) in [
            (0, 0, false),
            (5, quarter, true),
            (5, 3 * quarter, false),
            (9, 3 * quarter, true),
            (10, u32::MAX, true),
            (11, u32::MAX, true),
        ] {
            let new = address(Some(start), None);
            assert_eq!(
                new.takes_part(start + seconds(age), || chance),
                takes_part,
                "{age} s, {chance}"
            );
            assert!(
                address(None, None).takes_part(start + seconds(age), || chance),
                "it was among the first"
            );
            let shunned = address(None, Some(start + SHUNNED));
            assert_eq!(
                shunned.takes_part(start + seconds(age), || chance),
                age >= 10,
                "{age} s"
            );
        }
    }
}
