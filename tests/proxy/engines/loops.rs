//! Upstreams that lead back to samewire (faults U55).

use crate::sim::prelude::*;
use tokio::net::{TcpListener, TcpStream};

/// Load balancer whose target can be changed after clients have connected.
struct Balancer {
    listener: TcpListener,
    url: String,
}

impl Balancer {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        Self { listener, url }
    }

    fn forward_to(self, address: SocketAddr) {
        tokio::spawn(async move {
            loop {
                let Ok((mut stream, _)) = self.listener.accept().await else {
                    return;
                };
                tokio::spawn(async move {
                    if let Ok(mut there) = TcpStream::connect(address).await {
                        let _ = tokio::io::copy_bidirectional(&mut stream, &mut there).await;
                    }
                });
            }
        });
    }
}

fn setup(url: &str) -> Setup {
    Setup::new()
        .args(&["--engine", "vllm"])
        .upstream(url)
        .allow_errors()
}

async fn is_refused(samewire: &Samewire) {
    for request in [Request::stream(""), Request::plain("")] {
        let answer = request.answer(samewire.proxy).await;
        assert_eq!(
            answer.failure(),
            "508 server_error upstream_loop",
            "{}",
            answer.text()
        );
    }
}

#[tokio::test]
async fn fault_u55_a_balancer_that_leads_back() {
    let balancer = Balancer::new().await;
    let samewire = Samewire::start(&setup(&balancer.url)).await;
    balancer.forward_to(samewire.proxy);
    until("its probes find it", || {
        samewire
            .logs()
            .iter()
            .any(|line| line.contains("it leads to samewire itself"))
    })
    .await;
    is_refused(&samewire).await;
    // Each request came back once and went no further. Probes come back, too.
    let lines = samewire.request_lines();
    let asked = lines
        .iter()
        .filter(|line| line.contains("\"route\":\"chat\""))
        .count();
    assert!(asked <= 4, "{lines:?}");
}

#[tokio::test]
async fn fault_u55_two_in_a_ring() {
    let balancer = Balancer::new().await;
    let first = Samewire::start(&setup(&balancer.url)).await;
    let second = Samewire::start(&setup(&format!("http://{}", first.proxy))).await;
    balancer.forward_to(second.proxy);
    is_refused(&first).await;
    is_refused(&second).await;
}

/// Two samewires in a row are not a loop.
#[tokio::test]
async fn one_behind_another_serves() {
    let engine = Engine::script(Script::answer("a", 1)).await;
    let inner = Samewire::start(&setup(&engine.url())).await;
    let outer = Samewire::start(&setup(&format!("http://{}", inner.proxy))).await;
    Request::stream("")
        .answer(outer.proxy)
        .await
        .with_status(200);
    let hops = engine.attempts()[0]
        .header("x-samewire-hop")
        .expect("the way")
        .to_owned();
    assert_eq!(hops.split(',').count(), 2, "{hops}");
    // A forged header does not count as a loop.
    Request::stream("")
        .header("x-samewire-hop", "here, there")
        .answer(outer.proxy)
        .await
        .with_status(200);
}
