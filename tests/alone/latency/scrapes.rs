//! Metrics are read a hundred times a second, and slowly, after clients have sent all kinds of unknown names:
//! tokens are not delayed.

use super::percentile;
use crate::lock::alone;
use crate::sim::prelude::*;
use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;

/// Number of concurrent streams, and of tokens in each, one every 10 ms.
const STREAMS: usize = 8;
const TOKENS: usize = 150;
/// Number of rounds with scrapes, alternating with as many without.
const ROUNDS: usize = 7;

/// Reads the metrics a hundred times a second until stopped. Returns the duration of each scrape.
async fn scrape(admin: SocketAddr, stop: Arc<AtomicBool>) -> Vec<Duration> {
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

/// Reads the metrics a few bytes at a time until stopped.
async fn scrape_slowly(admin: SocketAddr, stop: Arc<AtomicBool>) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(admin).await.unwrap();
    stream
        .write_all(&Request::get("/metrics").bytes().repeat(50))
        .await
        .unwrap();
    let mut few = [0; 16];
    while !stop.load(Ordering::Relaxed) {
        assert!(within("some bytes", stream.read(&mut few)).await.unwrap() > 0);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Sends requests with unknown models, paths, keys, methods and ids.
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

/// Returns the times between the tokens of one stream.
async fn gaps(proxy: SocketAddr) -> Vec<Duration> {
    let mut client = Request::stream("").begin(proxy).await;
    let (mut last, mut gaps) = (None, Vec::with_capacity(TOKENS));
    while client.event().await.is_some() {
        let now = Instant::now();
        gaps.extend(last.map(|last| now.duration_since(last)));
        last = Some(now);
    }
    gaps
}

/// Returns the 99th percentile of the times between two tokens, over all streams of a round.
async fn latest(proxy: SocketAddr) -> Duration {
    let mut all = Vec::new();
    let streams = (0..STREAMS)
        .map(|_| tokio::spawn(gaps(proxy)))
        .collect::<Vec<_>>();
    for stream in streams {
        all.extend(stream.await.expect("the stream comes whole"));
    }
    assert!(all.len() >= STREAMS * TOKENS);
    percentile(&mut all, 99)
}

#[tokio::test]
async fn fault_o20_scrapes_do_not_delay_tokens() {
    let _alone = alone().await;
    let pause = Duration::from_millis(10);
    let world = World::start(
        Script::stream().tok("a", TOKENS, pause).stop(),
        Setup::new(),
    )
    .await;
    let (proxy, admin) = (world.samewire.proxy, world.samewire.admin);
    tokio::join!(
        try_everything(&world.samewire, 0),
        try_everything(&world.samewire, 1)
    );
    tokio::join!(
        try_everything(&world.samewire, 2),
        try_everything(&world.samewire, 3)
    );
    let (mut with, mut without, mut took) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        without.push(latest(proxy).await);
        let stop = Arc::new(AtomicBool::new(false));
        let often = tokio::spawn(scrape(admin, Arc::clone(&stop)));
        let slowly = tokio::spawn(scrape_slowly(admin, Arc::clone(&stop)));
        with.push(latest(proxy).await);
        stop.store(true, Ordering::Relaxed);
        took.extend(often.await.expect("every scrape is answered"));
        slowly.await.expect("the slow one, too");
    }
    let [least, median, most] = [0, 50, 100].map(|hundredths| percentile(&mut without, hundredths));
    let scraped = percentile(&mut with, 50);
    let rendered = percentile(&mut took, 50);
    println!(
        "the latest hundredth of tokens: {median:?} ({least:?} to {most:?}) without, {scraped:?} with {} scrapes, each {rendered:?}",
        took.len()
    );
    // At most five percent more, plus the machine's own variation under the same load.
    assert!(
        scraped <= median.mul_f64(1.05) + (most - least),
        "{with:?}, without {without:?}"
    );
    assert!(took.len() >= ROUNDS * TOKENS / 2, "{} scrapes", took.len());
    assert!(rendered <= Duration::from_millis(20), "{took:?}");
    let metrics = world.samewire.metrics().await;
    assert!(!metrics.to_lowercase().contains("invented"), "{metrics}");
    let series: BTreeSet<_> = metrics
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.rsplit_once(' ').map(|(series, _)| series))
        .collect();
    assert!(
        (50..=2_000).contains(&series.len()),
        "{} series",
        series.len()
    );
    world.end().await;
}
