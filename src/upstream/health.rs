//! Health of an upstream by its probes: a loop that probes it, and the verdict (faults 8). A probe that succeeds
//! also identifies the engine from time to time (module `identify`).

use super::Upstream;
use super::identify::{Identification, doubt, identify_if_due};
use super::probe::{Probe, ProbeFailure};
use super::templates;
use crate::config::Health;
use std::time::Duration;

/// Pause between probes until the first one has succeeded. An engine may take minutes to load its model, or may
/// have been ready all along. Short, so that an engine gets requests soon after it has become ready.
const FIRST_PROBE_PAUSE: Duration = Duration::from_millis(500);
/// Upper limit for the engines behind one host name that one probe tries until one of them is well.
const MAX_ENGINES: usize = 4;

/// Whether an upstream gets requests, as its probes say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Standing {
    /// Upstream that gets requests.
    #[default]
    Up,
    /// Upstream whose probes got no answer in time, as those of an engine that is busy with others' requests: it gets
    /// requests that no other upstream can take.
    Late,
    /// Upstream that gets no requests.
    Down,
}

/// Settings of the watch over an upstream.
#[derive(Clone, Debug, Default)]
pub struct WatchSettings {
    /// Section `[health]`.
    pub health: Health,
    /// True if the text of some answers is parsed, so that the models' chat templates matter.
    pub reads_text: bool,
}

/// Probes an upstream until it is retired, and sets its readiness accordingly. `config` returns the settings in
/// force, which a reload may change.
pub async fn watch(upstream: &Upstream, config: impl Fn() -> WatchSettings) {
    let mut verdict = HealthVerdict::resumed(*upstream.trouble.lock(), *upstream.standing.lock());
    let mut identification = Identification::default();
    // Status and kind of cause of the last failure in the log.
    let mut told = (None, None);
    while !upstream.is_retired() {
        let WatchSettings {
            health: config,
            reads_text,
        } = &config();
        let mut probe = Probe::new(upstream, *config.timeout);
        let found = result(&mut probe, &mut identification, config).await;
        if found.is_ok() && *reads_text {
            templates::learn_listed(&mut probe).await;
        }
        // The engine would close an idle connection before the next probe anyway.
        upstream.probes.close_idle();
        if upstream.is_retired() {
            return;
        }
        let (failed, trouble) = (found.is_err(), found.err().map(ProbeFailure::why));
        tracing::debug!(
            upstream = upstream.config.name,
            trouble,
            status = probe.status,
            cause = probe.cause,
            "a probe has come back"
        );
        let trouble = verdict.add_result(found, upstream.was_heard(), config);
        let kind = (probe.status, probe.cause.as_deref().map(without_figures));
        // Another cause of the same trouble is logged, too: the first one may have hidden it.
        if trouble != *upstream.trouble.lock() || trouble.is_some() && failed && kind != told {
            let (upstream, status) = (&upstream.config.name, probe.status);
            match trouble {
                Some(why) => {
                    tracing::warn!(
                        upstream,
                        why,
                        status,
                        cause = probe.cause,
                        "upstream is not ready"
                    );
                }
                None => tracing::info!(upstream, "upstream is ready"),
            }
            told = kind;
        }
        upstream.set_trouble(trouble);
        upstream.set_standing(verdict.standing(config));
        upstream.figures.up.set(trouble.is_none().into());
        let pause = if verdict.proven {
            spread(*config.interval)
        } else {
            FIRST_PROBE_PAUSE.min(*config.interval)
        };
        let pause = tokio::time::sleep(pause);
        tokio::pin!(pause);
        while let Some(wanted) = tokio::select! {
            () = &mut pause => None,
            wanted = upstream.wanted.next() => Some(wanted).filter(|_| !upstream.is_retired()),
        } {
            templates::learn_wanted(&mut probe, wanted).await;
            upstream.probes.close_idle();
        }
    }
}

/// Returns the text of a cause without the figures that differ each time, such as the time in "certificate expired".
fn without_figures(cause: &str) -> String {
    cause.replace(|letter: char| letter.is_ascii_digit(), "")
}

/// Returns a time that is up to a fifth longer or shorter at random, so that many processes do not probe in step.
pub(super) fn spread(time: Duration) -> Duration {
    let chance = f64::from(getrandom::u32().unwrap_or(u32::MAX / 2)) / f64::from(u32::MAX);
    time.mul_f64(0.8 + 0.4 * chance)
}

/// Verdict on an upstream from the results of its probes. A single failure of a proven engine changes nothing: it
/// takes `down_after` failures in a row, and `up_after` successes to undo them. A late probe counts less than one that
/// fails: not at all while answers arrive, and at most it makes the upstream a last resort.
#[derive(Debug, Default)]
struct HealthVerdict {
    /// True once a probe has succeeded.
    proven: bool,
    /// Reason why the upstream is not ready.
    trouble: Option<ProbeFailure>,
    /// Number of probes in a row that contradict the current verdict.
    contradicting: u32,
    /// Number of probes in a row that have failed.
    failed: u32,
    /// True if the engine answered the last probe with 503.
    refuses: bool,
}

impl HealthVerdict {
    /// Continues the verdict on an upstream that a reload has replaced.
    fn resumed(trouble: Option<&'static str>, standing: Standing) -> Self {
        let found = trouble.and_then(|why| match standing {
            Standing::Up => None,
            Standing::Late => Some(ProbeFailure::Silent),
            Standing::Down => Some(ProbeFailure::Bad(why)),
        });
        Self {
            proven: trouble.is_none() || found.is_some(),
            trouble: found,
            ..Self::default()
        }
    }

    /// Adds the result of a probe and returns the reason why the upstream is not ready, if it is not. `lively`: an
    /// answer has arrived recently.
    fn add_result(
        &mut self,
        found: Result<(), ProbeFailure>,
        lively: bool,
        config: &Health,
    ) -> Option<&'static str> {
        match (found, self.trouble) {
            (Err(ProbeFailure::NotSent), _) if self.proven => return self.why(),
            (Ok(()), None) => self.contradicting = 0,
            (Err(ProbeFailure::Silent), None) if lively && self.proven => {}
            (Err(ProbeFailure::Silent), None | Some(ProbeFailure::Silent)) if lively => {
                self.change_if(true, None);
                self.proven = true;
            }
            (Err(trouble), None) => {
                self.contradicting += 1;
                let enough = !self.proven
                    || trouble == ProbeFailure::Refuses
                    || self.contradicting >= config.down_after;
                self.change_if(enough, Some(trouble));
            }
            (Ok(()), Some(_)) => {
                self.contradicting += 1;
                self.change_if(!self.proven || self.contradicting >= config.up_after, None);
            }
            (Err(trouble), Some(_)) => {
                self.contradicting = 0;
                self.trouble = Some(trouble);
            }
        }
        self.proven |= found.is_ok();
        self.failed = if found.is_ok() {
            0
        } else {
            self.failed.saturating_add(1)
        };
        self.refuses = found == Err(ProbeFailure::Refuses);
        self.why()
    }

    fn why(&self) -> Option<&'static str> {
        self.trouble.map(ProbeFailure::why)
    }

    /// Returns whether the upstream gets requests. One that was never ready may still be loading: it counts as up
    /// until `down_after` probes have failed, or one was answered with 503.
    fn standing(&self, config: &Health) -> Standing {
        match self.trouble {
            Some(trouble) if self.proven || self.refuses || self.failed >= config.down_after => {
                match trouble {
                    ProbeFailure::Silent => Standing::Late,
                    _ => Standing::Down,
                }
            }
            _ => Standing::Up,
        }
    }

    fn change_if(&mut self, enough: bool, trouble: Option<ProbeFailure>) {
        if enough {
            (self.trouble, self.contradicting) = (trouble, 0);
        }
    }
}

/// Checks the upstream, and identifies its engine where that is due.
async fn result(
    probe: &mut Probe<'_>,
    identification: &mut Identification,
    config: &Health,
) -> Result<(), ProbeFailure> {
    let mut result = Err(ProbeFailure::Silent);
    let patience = probe.timeout.max(
        probe
            .upstream
            .identity()
            .engine
            .detection
            .min_health_timeout,
    );
    // One engine's failure says nothing about the others behind the same name.
    for attempt in 1..=MAX_ENGINES {
        // Without a kept connection the next try goes to the next address.
        probe.upstream.probes.close_idle();
        let addresses = probe.upstream.probes.addresses();
        let found = tokio::time::timeout(patience, probe.check(&config.path)).await;
        result = found.unwrap_or(Err(ProbeFailure::Silent));
        if result == Err(ProbeFailure::Silent) {
            // The answer of another route does not explain it.
            probe.status = None;
        }
        if result.is_ok() || attempt >= addresses {
            break;
        }
    }
    match result {
        Ok(()) => identify_if_due(probe, identification, config).await,
        // After a failure, the next engine to answer may be a different one.
        Err(_) => doubt(probe.upstream, identification),
    }
    result
}

#[cfg(test)]
mod tests {
    use super::super::pool::Pool;
    use super::*;
    use crate::config::{Config, Overrides};
    use crate::telemetry::Metrics;
    use std::io::{self, BufRead, Write};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const BAD: Result<(), ProbeFailure> = Err(ProbeFailure::Bad("bad"));
    const SILENT: Result<(), ProbeFailure> = Err(ProbeFailure::Silent);
    const UNASKED: Result<(), ProbeFailure> = Err(ProbeFailure::NotSent);
    const REFUSES: Result<(), ProbeFailure> = Err(ProbeFailure::Refuses);
    const GOOD: Result<(), ProbeFailure> = Ok(());

    /// Returns the verdict after each probe: `+` for ready, `-` for not ready.
    fn course(probes: &[Result<(), ProbeFailure>], lively: bool) -> String {
        let (mut verdict, config) = (HealthVerdict::default(), Health::default());
        let ready = |probe| verdict.add_result(probe, lively, &config).is_none();
        probes
            .iter()
            .copied()
            .map(ready)
            .map(|ready| if ready { '+' } else { '-' })
            .collect()
    }

    #[test]
    fn three_bad_ones_down_two_good_ones_up() {
        for (probes, lively, expected) in [
            // The first probe decides.
            (&[GOOD, BAD, BAD, BAD, GOOD, GOOD][..], false, "+++--+"),
            (&[BAD, BAD, GOOD], false, "--+"),
            (&[GOOD, BAD, BAD, GOOD, BAD, BAD, GOOD], false, "+++++++"),
            (
                &[GOOD, BAD, BAD, BAD, GOOD, BAD, GOOD, GOOD],
                false,
                "+++----+",
            ),
            // An engine that says it is not ready is believed at once.
            (&[GOOD, REFUSES, GOOD, GOOD], false, "+--+"),
            // An engine that serves requests is up although a probe times out, even if none has succeeded; one that
            // cannot be reached is not.
            (&[GOOD, SILENT, SILENT, SILENT, SILENT], true, "+++++"),
            (&[GOOD, SILENT, SILENT, SILENT], false, "+++-"),
            (&[GOOD, BAD, SILENT, BAD, SILENT, BAD], true, "+++++-"),
            (&[SILENT, GOOD], true, "++"),
            (
                &[GOOD, BAD, BAD, BAD, SILENT, SILENT, GOOD],
                true,
                "+++--++",
            ),
            // A probe that was not sent has neither failed nor succeeded.
            (&[GOOD, UNASKED, UNASKED, UNASKED, UNASKED], false, "+++++"),
            (
                &[GOOD, BAD, BAD, UNASKED, BAD, GOOD, UNASKED, GOOD],
                false,
                "++++---+",
            ),
            (&[UNASKED, GOOD], false, "-+"),
        ] {
            assert_eq!(course(probes, lively), expected, "{probes:?} {lively}");
        }
    }

    #[test]
    fn probes_are_spread() {
        let interval = Duration::from_secs(5);
        let pauses: Vec<_> = (0..200).map(|_| spread(interval)).collect();
        assert!(
            pauses
                .iter()
                .all(|pause| (4_000..=6_000).contains(&pause.as_millis()))
        );
        assert!(
            pauses.iter().any(|pause| *pause < interval)
                && pauses.iter().any(|pause| *pause > interval)
        );
    }

    /// An engine that was never ready may still be loading, unless it says itself that it is not ready.
    #[test]
    fn an_engine_that_was_never_ready_is_down_after_three_probes_or_at_its_word() {
        let config = Health::default();
        let mut verdict = HealthVerdict::default();
        assert_eq!(
            verdict.add_result(REFUSES, false, &config),
            Some("it says that it is not ready")
        );
        assert_eq!(verdict.standing(&config), Standing::Down);
        let mut verdict = HealthVerdict::default();
        for (probe, why, standing) in [
            (SILENT, "it does not answer in time", Standing::Up),
            (
                UNASKED,
                "the proxy has no room for another connection",
                Standing::Up,
            ),
            (BAD, "bad", Standing::Down),
            (SILENT, "it does not answer in time", Standing::Late),
        ] {
            assert_eq!(verdict.add_result(probe, false, &config), Some(why));
            assert_eq!(verdict.standing(&config), standing, "{why}");
        }
    }

    /// Late probes make an upstream a last resort, which one that fails closes.
    #[test]
    fn late_probes_count_less_than_those_that_fail() {
        let config = Health::default();
        let mut verdict = HealthVerdict::default();
        let mut standing = |probe, lively| {
            verdict.add_result(probe, lively, &config);
            verdict.standing(&config)
        };
        let found = [GOOD, SILENT, SILENT, SILENT, GOOD].map(|probe| standing(probe, false));
        assert_eq!(
            found,
            [
                Standing::Up,
                Standing::Up,
                Standing::Up,
                Standing::Late,
                Standing::Late
            ]
        );
        assert_eq!(standing(BAD, false), Standing::Down);
        assert_eq!(standing(SILENT, false), Standing::Late);
        assert_eq!(
            standing(SILENT, true),
            Standing::Up,
            "it has just answered a request"
        );
    }

    /// A reload makes a new verdict, which goes on from where the last one stood.
    #[test]
    fn a_verdict_outlives_a_reload() {
        let config = Health::default();
        let mut ready = HealthVerdict::resumed(None, Standing::Up);
        assert_eq!(
            ready.add_result(BAD, false, &config),
            None,
            "one failure of an engine that was well"
        );
        let mut down = HealthVerdict::resumed(Some("why"), Standing::Down);
        assert_eq!(down.standing(&config), Standing::Down);
        assert_eq!(
            down.add_result(GOOD, false, &config),
            Some("why"),
            "one success is not enough"
        );
        assert_eq!(down.add_result(GOOD, false, &config), None);
        let late = HealthVerdict::resumed(Some("it does not answer in time"), Standing::Late);
        assert_eq!(late.standing(&config), Standing::Late);
        let mut new = HealthVerdict::resumed(Some("not probed yet"), Standing::Up);
        assert_eq!(new.standing(&config), Standing::Up);
        assert_eq!(
            new.add_result(BAD, false, &config),
            Some("bad"),
            "it was never well"
        );
        assert_eq!(new.add_result(GOOD, false, &config), None);
    }

    #[test]
    fn the_configuration_says_how_many_probes_decide() {
        let config = Health {
            down_after: 2,
            up_after: 3,
            ..Health::default()
        };
        let mut verdict = HealthVerdict::default();
        let mut course = |probe| verdict.add_result(probe, false, &config).is_none();
        let probes = [
            GOOD, BAD, GOOD, BAD, BAD, GOOD, GOOD, BAD, GOOD, GOOD, GOOD, BAD,
        ];
        let found: Vec<_> = probes.into_iter().map(&mut course).collect();
        let expected = [
            true, true, true, true, false, false, false, false, false, false, true, true,
        ];
        assert_eq!(found, expected);
        // An engine that was never well is down after as many failures.
        let mut verdict = HealthVerdict::default();
        let mut is_down = |probe| {
            verdict.add_result(probe, false, &config);
            verdict.standing(&config) == Standing::Down
        };
        assert_eq!([is_down(BAD), is_down(BAD)], [false, true]);
    }

    /// Starts an engine that answers each request with this status, and counts its probes.
    fn engine(status: &'static str) -> (String, Arc<AtomicUsize>) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let counted = Arc::clone(&counted);
                std::thread::spawn(move || {
                    for line in io::BufReader::new(&stream).lines().map_while(Result::ok) {
                        counted.fetch_add(
                            usize::from(line.starts_with("GET /v1/models ")),
                            Ordering::Relaxed,
                        );
                        if line.is_empty() {
                            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
                            (&stream).write_all(answer.as_bytes()).unwrap();
                        }
                    }
                });
            }
        });
        (url, count)
    }

    /// If a name has several engines, another one is probed in place of one that is not well; a single one is probed once.
    #[tokio::test]
    async fn a_single_engine_is_asked_once_for_each_probe() {
        for (status, is_well) in [("200 OK", true), ("500 Internal Server Error", false)] {
            let (url, count) = engine(status);
            let text = format!("threads = 1\n[[upstream]]\nurl = \"{url}\"");
            let config = Config::read(&text, &[&Overrides::default()]).unwrap();
            let pool = Pool::new(&config, &Metrics::default()).unwrap();
            let mut probe = Probe::new(&pool.upstreams()[0], Duration::from_secs(60));
            let found = result(
                &mut probe,
                &mut Identification::default(),
                &Health::default(),
            )
            .await;
            assert_eq!(found.is_ok(), is_well, "{found:?}");
            assert_eq!(count.load(Ordering::Relaxed), 1, "{status}");
        }
    }
}
