//! Slow clients: a thousand that never finish a head, readers that stop, and one that vanishes.

use crate::canonical::grammar;
use crate::clients::leaving::settled;
use crate::sim::prelude::*;
use socket2::{SockFilter, SockRef};
use std::sync::atomic::AtomicBool;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// Opens streams that have received an event with `ready`, and then stop reading.
pub async fn readers(world: &World, count: usize) -> Vec<Client> {
    let mut clients = Vec::new();
    for _ in 0..count {
        let mut client = Request::stream("").send_narrow(world.proxy()).await;
        client.event_with_head("ready").await;
        clients.push(client);
    }
    clients
}

/// Connects and sends nothing, or a head byte by byte. Returns how long the connection was kept.
async fn slow_head(to: SocketAddr, drips: bool) -> Duration {
    let mut stream = TcpStream::connect(to).await.expect("samewire accepts");
    let start = Instant::now();
    let head = Request::stream("").head_bytes();
    let mut byte = [0; 256];
    for drop in head.iter().cycle() {
        // An empty read, or an error, is the close; an error response may come before it.
        match tokio::time::timeout(Duration::from_millis(200), stream.read(&mut byte)).await {
            Ok(Ok(0) | Err(_)) => break,
            Ok(Ok(_)) => continue,
            Err(_) => {}
        }
        if drips && stream.write_all(&[*drop]).await.is_err() {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "the slot is held for ever");
    }
    start.elapsed()
}

#[tokio::test]
async fn fault_c07_a_thousand_slow_heads_disturb_nobody() {
    const SLOW: usize = 1_000;
    let setup = Setup::new().config("[timeouts]\nclient_head = 2");
    let world = World::start(Script::answer("a", 5), setup).await;
    let proxy = world.proxy();
    let over = Arc::new(AtomicBool::new(false));
    let mut traffic = JoinSet::new();
    for _ in 0..4 {
        let over = Arc::clone(&over);
        traffic.spawn(async move {
            let mut served = 0;
            while !over.load(Ordering::Relaxed) {
                let answer = Request::stream("").answer(proxy).await;
                assert_eq!((answer.head.status, answer.ended), (200, Ended::LastChunk));
                assert!(answer.text().ends_with("data: [DONE]\n\n"));
                served += 1;
            }
            served
        });
    }
    let mut slow = JoinSet::new();
    for n in 0..SLOW {
        slow.spawn(slow_head(proxy, n % 2 == 0));
    }
    let mut longest = Duration::ZERO;
    while let Some(took) = slow.join_next().await {
        longest = longest.max(took.expect("no panic"));
    }
    over.store(true, Ordering::Relaxed);
    let mut served = 0;
    while let Some(count) = traffic.join_next().await {
        served += count.expect("no error in normal traffic");
    }
    println!("{served} served beside {SLOW} slow heads, which lasted {longest:?}");
    assert!(longest < PATIENCE, "{longest:?}");
    assert!(served > 20, "{served}");
    assert_eq!(world.engine.attempt_count(), served);
    // Such clients do not delay the shutdown either.
    let held: Vec<_> = [Client::connect(proxy).await, Client::connect(proxy).await].into();
    world.samewire.signal("INT");
    let mut world = world;
    world.samewire.exit(PATIENCE).await;
    drop(held);
    world.end_without_checks();
}

/// Events of these answers of 26 MB, which is more than the sockets and buffers between engine and client hold.
const EVENTS: u64 = 1_600;
const SIZE: usize = 16 << 10;

/// 40 clients, each with a long answer of which it reads only the beginning.
#[tokio::test]
async fn fault_c09_many_stopped_readers_cost_little_and_are_given_up() {
    const READERS: usize = 40;
    let gate = Gate::default();
    let begun = Script::stream().text("ready").wait(&gate);
    let script = begun
        .then(Step::Flood {
            events: EVENTS,
            size: SIZE,
        })
        .stop();
    let setup = Setup::new().config("[timeouts]\nclient_write_stall = 3");
    let world = World::start(script, setup).await;
    let clients = readers(&world, READERS).await;
    let before = world.samewire.allocated();
    let start = Instant::now();
    gate.open();
    let written = || (0..READERS).map(|n| world.engine.written(n)).sum();
    let written = settled(written).await;
    let each = world.samewire.allocated().saturating_sub(before) / READERS as u64;
    println!(
        "{each} bytes are kept for each stopped reader, of {} that its engine sent",
        written / READERS as u64
    );
    assert!(each <= 128 << 10, "{each} bytes for each of {READERS}");
    assert!(
        written / (READERS as u64) < 20 << 20,
        "the engines were held back: {written}"
    );
    let closed = || (0..READERS).all(|n| world.engine.closed(n).is_some());
    until("all answers are cancelled", closed).await;
    assert!(
        start.elapsed() > Duration::from_millis(2_500),
        "they were given time: {:?}",
        start.elapsed()
    );
    for mut client in clients {
        while client.piece().await.is_some() {}
        assert!(
            matches!(client.ended(), Ended::Reset | Ended::Short),
            "{:?}",
            client.ended()
        );
    }
    world.end().await;
}

/// A reader that resumes before its time is over has lost nothing.
#[tokio::test]
async fn fault_c09_a_reader_that_resumes_in_time_gets_every_byte() {
    let flood = Step::Flood {
        events: EVENTS,
        size: SIZE,
    };
    let script = Script::stream().then(flood).stop();
    let setup = Setup::new().config("[timeouts]\nclient_write_stall = 15\ninter_token = 1");
    let world = World::start(script, setup).await;
    let whole = world.stream("").await;
    let mut client = Request::stream("").send_narrow(world.proxy()).await;
    client.head().await;
    let mut body = Vec::new();
    // Twice: the timer restarts when bytes are taken.
    for until_then in [10 << 10, 4 << 20] {
        while body.len() < until_then {
            body.extend(client.piece().await.expect("more"));
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    body.extend(client.rest().await);
    assert_eq!(
        client.ended(),
        Ended::LastChunk,
        "{:#?}",
        world.samewire.request_lines()
    );
    assert!(
        body == whole.body,
        "every byte, in order: {} of {}",
        body.len(),
        whole.body.len()
    );
    assert_eq!(
        grammar(whole.text()).len(),
        usize::try_from(EVENTS).expect("few") + 3
    );
    world.end().await;
}

/// The same with the default timeouts: the kernel's user timeout of 30 s must not take the stopped reader for a
/// vanished one.
#[tokio::test]
async fn fault_c09_a_reader_that_stops_for_long_is_there_again() {
    let flood = Step::Flood {
        events: EVENTS,
        size: SIZE,
    };
    let world = World::start(Script::stream().then(flood).stop(), Setup::new()).await;
    let mut client = Request::stream("").send_narrow(world.proxy()).await;
    client.head().await;
    let mut body = client.piece().await.expect("the beginning");
    tokio::time::sleep(Duration::from_secs(50)).await;
    body.extend(client.rest().await);
    assert_eq!(
        client.ended(),
        Ended::LastChunk,
        "{:#?}",
        world.samewire.request_lines()
    );
    let text = String::from_utf8(body).expect("UTF-8");
    assert_eq!(
        grammar(&text).len(),
        usize::try_from(EVENTS).expect("few") + 3,
        "every event, and a good end"
    );
    world.end().await;
}

/// A slow reader is not a stopped one: while some bytes are taken, the time does not run out, however many are
/// left.
#[tokio::test]
async fn fault_c09_a_reader_that_is_slow_for_long_is_not_given_up() {
    let flood = Step::Flood {
        events: EVENTS,
        size: SIZE,
    };
    let script = Script::stream().then(flood).stop();
    let setup = Setup::new().config("[timeouts]\nclient_write_stall = 1.5");
    let world = World::start(script, setup).await;
    let mut client = Request::stream("").send_narrow(world.proxy()).await;
    client.head().await;
    // 200 KB per second, for three times as long as a stopped reader is given.
    let start = Instant::now();
    let mut taken = 0;
    while start.elapsed() < Duration::from_millis(4_500) {
        let due = usize::try_from(start.elapsed().as_millis()).expect("short") * 200;
        while taken < due {
            taken += client
                .piece()
                .await
                .unwrap_or_else(|| panic!("cut off after {taken} bytes"))
                .len();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    client.leave(CloseKind::Fin);
    until("the answer is cancelled", || {
        world.engine.closed(0).is_some()
    })
    .await;
    world.end().await;
}

/// Simulates a power failure: a socket filter drops every packet for this socket, so that the kernel acknowledges
/// nothing, and nothing more is sent.
fn drop_all_packets(stream: &TcpStream) {
    const DROP_ALL: SockFilter = SockFilter::new(0x06, 0, 0, 0);
    SockRef::from(stream)
        .attach_filter(&[DROP_ALL])
        .expect("a filter needs no privileges");
}

/// A client that vanishes without FIN or RST is noticed only by missing acknowledgements. The timeouts are the
/// kernel's, so the test takes as long as they do.
#[tokio::test]
async fn fault_c26_a_client_that_vanishes_is_given_up() {
    let talking = Script::stream()
        .tok("a", 6_000, Duration::from_millis(20))
        .hang();
    let engine = Engine::answering(move |attempt| match attempt.text() {
        text if text.contains("talking") => talking.clone(),
        text if text.contains("silent") => Script::stream().text("a").hang(),
        _ => Script::new().hang(),
    });
    let world = World::start(engine.await, Setup::new()).await;
    let rows = [
        Request::stream(r#","user":"talking""#),
        Request::stream(r#","user":"silent""#),
        Request::stream(r#","user":"prefill""#),
        Request::plain(r#","user":"whole""#),
    ];
    let mut gone = Vec::new();
    for (n, request) in rows.iter().enumerate() {
        let mut stream = TcpStream::connect(world.proxy())
            .await
            .expect("samewire accepts");
        stream
            .write_all(&request.bytes())
            .await
            .expect("samewire reads");
        until("the request arrives", || world.engine.attempt_count() > n).await;
        if n < 2 {
            let _ = stream.read(&mut [0; 1_000]).await.expect("a head");
        }
        drop_all_packets(&stream);
        gone.push((stream, Instant::now()));
    }
    let engine = &world.engine;
    let closed = || (0..rows.len()).all(|n| engine.closed(n).is_some());
    until_within("the answer is cancelled", Duration::from_secs(80), closed).await;
    for (n, (_stream, left)) in gone.iter().enumerate() {
        let (at, _) = engine.closed(n).expect("just seen");
        let took = at.saturating_duration_since(*left);
        println!("{}: {took:?}", String::from_utf8_lossy(rows[n].sent_body()));
        assert!(
            took > Duration::from_secs(10),
            "the filter must not be what ended it: {took:?}"
        );
        assert!(took < Duration::from_secs(60), "{took:?}");
    }
    for line in world.samewire.finished(rows.len()).await {
        assert!(line.contains(r#""end":"client_closed""#), "{line}");
    }
    assert_eq!(
        engine.attempt_count(),
        rows.len(),
        "no request is sent again for a client that has left"
    );
    world.end().await;
}

/// An engine much faster than its client: the client gets every token, and nothing accumulates.
#[tokio::test]
async fn fault_u47_an_engine_faster_than_its_client() {
    const TOKENS: u64 = 30_000;
    let flood = Step::Flood {
        events: TOKENS,
        size: 0,
    };
    let world = World::start(Script::stream().then(flood).stop(), Setup::new()).await;
    let mut client = Request::stream("").send_narrow(world.proxy()).await;
    client.event_with_head("\"0:").await;
    let (before, most) = (world.samewire.allocated(), AtomicUsize::new(0));
    for n in 1..TOKENS {
        let event = client.event().await.expect("another token");
        assert!(
            event.contains(&format!("\"content\":\"{n}:;\"")),
            "{n}: {event}"
        );
        if n % 5_000 == 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let grown = world.samewire.allocated().saturating_sub(before);
            most.fetch_max(usize::try_from(grown).expect("small"), Ordering::Relaxed);
        }
    }
    client.event_with("[DONE]").await;
    assert_eq!(
        (client.event().await, client.ended()),
        (None, Ended::LastChunk)
    );
    let most = most.into_inner();
    println!("grew by at most {most} bytes");
    assert!(most < 1 << 20, "{most}");
    world.end().await;
}
