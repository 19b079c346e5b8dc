//! Engines with a host name: one that does not resolve, one with many addresses, one whose address changes.

use crate::sim::prelude::*;
use crate::sim::{Dns, DnsReply, NAME, NameFiles};
use std::net::{Ipv4Addr, TcpListener};

/// Configuration with a single probe at the start.
const ONE_PROBE: &str = "[health]\ninterval = 600\ndown_after = 100000";

fn ip(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, last)
}

fn url(port: u16) -> String {
    format!("http://{NAME}:{port}")
}

/// Starts a samewire that resolves `NAME` by these files.
async fn behind(names: &NameFiles, engine: Engine, setup: Setup) -> World {
    let port = engine.address.port();
    World::start(
        engine,
        setup.upstream(&url(port)).name_files(names.folder()),
    )
    .await
}

/// Starts engines on one port at consecutive addresses. Each reports its number, and holds marked requests until
/// the gate opens.
async fn replicas(count: u8, gate: &Gate) -> Vec<Engine> {
    'again: loop {
        let mut engines = Vec::new();
        let mut port = 0;
        for n in 1..=count {
            let Ok(listener) = TcpListener::bind(SocketAddr::from((ip(n), port))) else {
                continue 'again;
            };
            port = listener.local_addr().expect("bound").port();
            let gate = gate.clone();
            let engine = Engine::on(listener, move |attempt| {
                match attempt.text().contains("held") {
                    true => Script::new()
                        .head_sse()
                        .text("one")
                        .wait(&gate)
                        .text("two")
                        .stop(),
                    false => Script::answer(&format!("e{n}"), 1),
                }
            });
            engines.push(engine.await);
        }
        return engines;
    }
}

async fn ready(world: &World) -> u16 {
    world.samewire.admin("/readyz").await.head.status
}

#[tokio::test]
async fn fault_u02_a_name_that_leads_nowhere() {
    let (Some(names), Some(dns)) = (NameFiles::new(), Dns::start(DnsReply::Nothing)) else {
        return;
    };
    names.set_dns_server(&dns.address.to_string());
    let engine = Engine::script(Script::answer("a", 1)).await;
    let setup = Setup::new()
        .allow_errors()
        .config("[timeouts]\ndns = 0.3")
        .config(ONE_PROBE);
    let world = behind(&names, engine, setup).await;
    for says in [DnsReply::Nothing, DnsReply::Failure, DnsReply::Empty] {
        dns.set_reply(says);
        for request in [Request::stream(""), Request::plain("")] {
            let start = Instant::now();
            assert_eq!(
                world.request(&request).await.failure(),
                "502 server_error upstream_unreachable"
            );
            assert!(start.elapsed() < SOON, "{says:?} {:?}", start.elapsed());
        }
    }
    dns.set_reply(DnsReply::Silent);
    let timed_out = async {
        loop {
            let start = Instant::now();
            let answer = world.stream("").await;
            if answer.head.status == 504 {
                assert_eq!(answer.fault().code.as_deref(), Some("upstream_timeout"));
                return start.elapsed();
            }
            let code = answer.fault().code;
            assert_eq!(
                code.as_deref(),
                Some("upstream_unreachable"),
                "the last reply counts for a second"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let took = within("a timeout", timed_out).await;
    assert!(
        took > Duration::from_millis(250) && took < SOON,
        "dns = 0.3, {took:?}"
    );
    assert_eq!(world.engine.attempt_count(), 0);
    dns.set_reply(DnsReply::Address(ip(1)));
    until("the name is known", || {
        world
            .samewire
            .logs()
            .iter()
            .any(|l| l.contains("addresses"))
    })
    .await;
    assert_eq!(world.stream("").await.head.status, 200);
    world.end().await;
}

/// Lookups do not grow with the number of requests, even if the name has no addresses.
#[tokio::test]
async fn fault_u02_no_lookup_for_each_request() {
    let (Some(names), Some(dns)) = (NameFiles::new(), Dns::start(DnsReply::Nothing)) else {
        return;
    };
    names.set_dns_server(&dns.address.to_string());
    // Failed probes must not refuse the requests first.
    let setup = Setup::new()
        .allow_errors()
        .config("[health]\ndown_after = 100000");
    let world = behind(&names, Engine::script(Script::answer("a", 1)).await, setup).await;
    let (start, before) = (Instant::now(), dns.question_count());
    for _ in 0..100 {
        assert_eq!(world.request(&Request::plain("")).await.head.status, 502);
    }
    let lookups = (dns.question_count() - before) / 2;
    assert!(
        lookups as u64 <= start.elapsed().as_secs() + 2,
        "{lookups} in {:?}",
        start.elapsed()
    );
    dns.set_reply(DnsReply::Address(ip(1)));
    world.samewire.admin_becomes("/readyz", 200).await;
    let before = dns.question_count();
    dns.set_reply(DnsReply::Silent);
    for _ in 0..100 {
        assert_eq!(world.stream("").await.head.status, 200);
    }
    assert_eq!(dns.question_count(), before, "it is known");
    world.end().await;
}

#[tokio::test]
async fn fault_o28_no_dns_at_the_start() {
    let Some(names) = NameFiles::new() else {
        return;
    };
    let engine = Engine::script(Script::answer("a", 1)).await;
    let world = behind(&names, engine, Setup::new().allow_errors()).await;
    assert_eq!(
        (
            ready(&world).await,
            world.samewire.admin("/livez").await.head.status
        ),
        (503, 200)
    );
    world.stream("").await.with_status(502).fault();
    names.set_hosts(&[ip(1)]);
    world.samewire.admin_becomes("/readyz", 200).await;
    assert_eq!(world.stream("").await.head.status, 200);
    world.end().await;
}

#[tokio::test]
async fn fault_u02_fifty_addresses_of_which_one_answers() {
    let Some(names) = NameFiles::new() else {
        return;
    };
    let engine = Engine::script(Script::answer("a", 1)).await;
    let nobody = (1..50).map(|n| Ipv4Addr::new(127, 0, 7, n));
    names.set_hosts(&nobody.chain([ip(1)]).collect::<Vec<_>>());
    let world = behind(&names, engine, Setup::new()).await;
    let start = Instant::now();
    for _ in 0..60 {
        assert_eq!(world.stream("").await.head.status, 200);
    }
    assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
    world.end().await;
}

/// An address that never answers costs its share of the connect timeout once, and is then skipped for a while.
#[tokio::test]
async fn fault_u02_an_address_that_never_answers() {
    let Some(names) = NameFiles::new() else {
        return;
    };
    let (hole, _held) = crate::sim::unanswered_address();
    let port: u16 = hole
        .rsplit(':')
        .next()
        .and_then(|port| port.parse().ok())
        .expect("a port");
    let Ok(listener) = TcpListener::bind(SocketAddr::from((ip(2), port))) else {
        eprintln!("skipped: the port is taken at the other address");
        return;
    };
    let engine = Engine::on(listener, |_| Script::answer("a", 1)).await;
    names.set_hosts(&[ip(1), ip(2)]);
    let setup = Setup::new().config("[timeouts]\nconnect = 1");
    let world = behind(&names, engine, setup).await;
    let start = Instant::now();
    for _ in 0..20 {
        assert_eq!(world.stream("").await.head.status, 200);
    }
    assert!(
        start.elapsed() < Duration::from_secs(9),
        "{:?}",
        start.elapsed()
    );
    world.end().await;
}

/// A name with several engines counts as up while one of them is loading.
#[tokio::test]
async fn fault_o23_one_that_is_not_ready_is_not_all_of_them() {
    let Some(names) = NameFiles::new() else {
        return;
    };
    let mut engines = replicas(3, &Gate::default()).await.into_iter();
    names.set_hosts(&[ip(1), ip(2), ip(3)]);
    let setup = Setup::new()
        .allow_errors()
        .config("[health]\ninterval = 0.02\nup_after = 1");
    let mut world = behind(&names, engines.next().expect("three"), setup).await;
    world.others = engines.collect();
    world.samewire.admin_becomes("/readyz", 200).await;
    let loading = || Script::new().whole("503 Service Unavailable", "", "");
    for engine in [&world.engine, &world.others[1]] {
        engine.set_health(loading());
        engine.wait_probes("/health", 11).await;
        assert_eq!(ready(&world).await, 200);
    }
    world.others[0].set_health(loading());
    world.samewire.admin_becomes("/readyz", 503).await;
    world.end().await;
}

/// Sends this many requests. Returns how many of them each engine received.
async fn shares(world: &World, requests: usize) -> Vec<usize> {
    let before = world.attempt_counts();
    for _ in 0..requests {
        assert_eq!(world.stream("").await.head.status, 200);
    }
    world
        .attempt_counts()
        .iter()
        .zip(before)
        .map(|(after, before)| after - before)
        .collect()
}

/// Waits until requests reach these engines and no others.
async fn spread(world: &World, expected: impl Fn(&[usize]) -> bool) -> Duration {
    let start = Instant::now();
    loop {
        let shares = shares(world, 8).await;
        if expected(&shares) {
            return start.elapsed();
        }
        assert!(start.elapsed() < Duration::from_secs(45), "{shares:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The number of engines with one name changes from one to four and back, under load: a running stream continues,
/// and lookups may fail in between.
#[tokio::test]
async fn fault_o23_more_engines_behind_a_name_and_fewer() {
    let Some(names) = NameFiles::new() else {
        return;
    };
    let gate = Gate::default();
    names.set_hosts(&[ip(1)]);
    let mut engines = replicas(4, &gate).await.into_iter();
    let mut world = behind(
        &names,
        engines.next().expect("four"),
        Setup::new().allow_errors(),
    )
    .await;
    world.others = engines.collect();
    world.samewire.admin_becomes("/readyz", 200).await;
    let mut client = Client::connect(world.proxy()).await;
    let body = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"held"}]}"#;
    client.send(&Request::chat(body).bytes()).await;
    client.event_with_head("one").await;
    assert_eq!(shares(&world, 8).await, [8, 0, 0, 0]);

    names.set_hosts(&[ip(1), ip(2), ip(3), ip(4)]);
    // A change is noticed within half a minute, and new engines have their full share ten seconds later.
    let took = spread(&world, |shares| shares[1..].iter().any(|share| *share > 0)).await;
    assert!(took < Duration::from_secs(32), "{took:?}");
    spread(&world, |shares| *shares == [2, 2, 2, 2]).await;

    // The lookup fails: the known addresses are kept.
    names.set_hosts(&[]);
    let failing = || {
        world
            .samewire
            .logs()
            .iter()
            .any(|line| line.contains("cannot be looked up"))
    };
    until_within("the name fails", Duration::from_secs(40), failing).await;
    assert_eq!(shares(&world, 8).await, [2, 2, 2, 2]);

    names.set_hosts(&[ip(3)]);
    spread(&world, |shares| *shares == [0, 0, 8, 0]).await;
    gate.open();
    client.event_with("two").await;
    let rest = String::from_utf8(client.rest().await).expect("UTF-8");
    assert!(rest.ends_with("data: [DONE]\n\n"), "{rest}");
    world.end().await;
}
