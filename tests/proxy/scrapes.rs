//! Metrics that are read often, slowly, and while clients try everything (faults O20).

use crate::sim::{Client, Engine, Request, Samewire, Script, Setup, World, within};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Reads the metrics a hundred times a second until told to stop; gives how long each time took.
async fn scrape(admin: std::net::SocketAddr, stop: Arc<AtomicBool>) -> Vec<Duration> {
    let mut client = Client::connect(admin).await;
    let mut clock = tokio::time::interval(Duration::from_millis(10));
    let mut took = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        clock.tick().await;
        let start = Instant::now();
        client.send(&Request::get("/metrics").bytes()).await;
        assert_eq!(client.answer().await.head.status, 200);
        took.push(start.elapsed());
    }
    took
}

/// Reads the metrics, a few bytes at a time, until told to stop.
async fn scrape_slowly(admin: std::net::SocketAddr, stop: Arc<AtomicBool>) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(admin).await.unwrap();
    stream.write_all(&Request::get("/metrics").bytes().repeat(50)).await.unwrap();
    let mut few = [0; 16];
    while !stop.load(Ordering::Relaxed) {
        assert!(within("some bytes", stream.read(&mut few)).await.unwrap() > 0);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A client that tries models, paths, keys, methods and ids that nobody knows.
async fn try_everything(samewire: &Samewire, who: usize) {
    let mut client = Client::connect(samewire.proxy).await;
    for n in 0..2500 {
        let odd = format!("invented-{who}-{n}");
        let request = match n % 5 {
            0 => Request::get(&format!("/v1/{odd}")),
            1 => Request::new(&odd.to_uppercase(), "/v1/models"),
            2 => Request::get("/v1/nothing")
                .without("authorization")
                .header("authorization", &format!("Bearer {odd}")),
            3 => Request::chat(format!(r#"{{"model":"{odd}","messages":"{odd}"}}"#)),
            _ => Request::get(&format!("/v1/responses/resp_{odd}")).header("x-request-id", &odd),
        };
        client.send(&request.bytes()).await;
        assert!(client.answer().await.head.status >= 400, "{n}");
    }
}

#[tokio::test]
async fn fault_o20_scraped_a_hundred_times_a_second() {
    let script =
        Script::new().head_sse().role().tok("a", 100, Duration::from_millis(20)).finish("stop").done().end();
    let world = World::start(Engine::script(script).await, Setup::new()).await;
    let (proxy, admin) = (world.samewire.proxy, world.samewire.admin);
    let stop = Arc::new(AtomicBool::new(false));
    let often = tokio::spawn(scrape(admin, Arc::clone(&stop)));
    let slowly = tokio::spawn(scrape_slowly(admin, Arc::clone(&stop)));
    let streaming = tokio::spawn(async move {
        let mut client = Client::connect(proxy).await;
        client.send(&Request::stream("").bytes()).await;
        client.head().await;
        let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
        while client.event().await.is_some() {
            longest = longest.max(last.elapsed());
            last = Instant::now();
        }
        longest
    });
    tokio::join!(try_everything(&world.samewire, 0), try_everything(&world.samewire, 1));
    tokio::join!(try_everything(&world.samewire, 2), try_everything(&world.samewire, 3));
    let longest = streaming.await.expect("the stream comes whole");
    stop.store(true, Ordering::Relaxed);
    let mut took = often.await.expect("every scrape is answered");
    slowly.await.expect("the slow one, too");
    took.sort();
    // Far from what is seen: other tests run at the same time.
    assert!(longest < Duration::from_secs(1), "a token came {longest:?} after the one before");
    assert!(
        took.len() > 20 && took[took.len() / 2] < Duration::from_millis(100),
        "{} times, {:?}",
        took.len(),
        took
    );
    let metrics = world.samewire.metrics().await;
    assert!(!metrics.to_lowercase().contains("invented"), "{metrics}");
    let series: BTreeSet<_> = metrics
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.rsplit_once(' '))
        .collect();
    assert!((50..500).contains(&series.len()), "{} series", series.len());
    world.end().await;
}

/// An engine may name its errors as it likes, and list as many models as it likes.
#[tokio::test]
async fn fault_o20_engines_make_no_labels() {
    let refusing = |n: usize| {
        let code = format!("invented_{n}");
        let body = format!(
            r#"{{"error":{{"message":"a","type":"invalid_request_error","param":null,"code":"{code}"}}}}"#
        );
        Script::new().json("400 Bad Request", &body)
    };
    let engine = Engine::in_turn((0..50).map(refusing).collect()).await;
    let listed: Vec<_> = (0..5000).map(|n| format!(r#"{{"id":"listed-{n}","object":"model"}}"#)).collect();
    engine.set_models(
        Script::new().json("200 OK", &format!(r#"{{"object":"list","data":[{}]}}"#, listed.join(","))),
    );
    let world = World::start(engine, Setup::new().faulty()).await;
    world.ask(&Request::get("/v1/models")).await;
    for n in 0..50 {
        let body =
            format!(r#"{{"model":"listed-{}","messages":[{{"role":"user","content":"a"}}]}}"#, n * 100);
        let answer = world.ask(&Request::chat(body)).await;
        assert!(answer.text().contains(&format!("invented_{n}")), "the client is told: {}", answer.text());
    }
    let metrics = world.samewire.metrics().await;
    assert!(!metrics.contains("invented"), "{metrics}");
    assert!(metrics.contains(r#"outcome="other""#), "{metrics}");
    assert!(metrics.lines().filter(|line| !line.starts_with('#')).count() < 1000, "{metrics}");
    world.end().await;
}
