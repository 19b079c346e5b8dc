//! TLS to engines: which certificates are trusted, which are not, and connections that are reused.

use crate::canonical::grammar;
use crate::sim::prelude::*;
use crate::sim::tls::{Authority, CertifiedPair, Tunnel, file_key_line};
use crate::sim::{NAME, NameFiles};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

/// Certificate authority, with its certificate in a file.
struct Trusted {
    authority: Authority,
    folder: Folder,
    /// Configuration line that names the file.
    line: String,
}

impl Trusted {
    fn new() -> Self {
        let (authority, folder) = (Authority::new("engines"), Folder::new());
        let line = file_key_line("ca_file", &folder.write("ca.crt", &authority.pem()));
        Self {
            authority,
            folder,
            line,
        }
    }

    fn good(&self) -> CertifiedPair {
        self.authority.sign("localhost", 100)
    }
}

async fn engine() -> Engine {
    Engine::script(Script::answer("a", 3)).await
}

async fn behind(engine: &Engine, pair: &CertifiedPair) -> Tunnel {
    Tunnel::out_of_tls(engine.address, pair.server(None)).await
}

/// Sends one request and checks the client's answer, and that the engine got the request exactly if it was
/// answered. Returns the log lines.
async fn send_once(
    name: &str,
    engine: Engine,
    url: &str,
    lines: &str,
    served: bool,
) -> Vec<String> {
    let world = World::start(engine, Setup::new().upstream_at(url, lines).allow_errors()).await;
    let answer = world.request(&Request::plain("")).await;
    if served {
        assert_eq!(answer.head.status, 200, "{name}: {}", answer.text());
    } else {
        assert_eq!(
            answer.failure(),
            "502 server_error upstream_unreachable",
            "{name}"
        );
        let text = answer.text().to_lowercase();
        for word in ["certificate", "tls", "localhost", "alert"] {
            assert!(!text.contains(word), "{name}: {text}");
        }
    }
    world.samewire.finished(1).await;
    assert_eq!(world.engine.attempt_count(), usize::from(served), "{name}");
    let logs = world.samewire.logs();
    world.end().await;
    logs
}

fn logged(logs: &[String], what: &str) -> bool {
    logs.iter().any(|line| line.contains(what))
}

#[tokio::test]
async fn fault_u05_no_request_goes_to_a_stranger() {
    let trusted = Trusted::new();
    let rows = [
        ("good", trusted.good(), "", None),
        (
            "expired",
            trusted.authority.sign("localhost", -1),
            "",
            Some("xpired"),
        ),
        (
            "wrong name",
            trusted.authority.sign("other.example", 9),
            "",
            Some("not valid for name"),
        ),
        (
            "self-signed",
            CertifiedPair::self_signed("localhost"),
            "",
            Some("certificate"),
        ),
        (
            "unknown authority",
            Authority::new("strangers").sign("localhost", 9),
            "",
            Some("UnknownIssuer: ca_file must name the authority"),
        ),
        (
            "named",
            trusted.authority.sign("other.example", 9),
            "server_name = \"other.example\"\n",
            None,
        ),
        (
            "wrongly named",
            trusted.good(),
            "server_name = \"other.example\"\n",
            Some("not valid for name"),
        ),
    ];
    for (name, pair, more, refused) in rows {
        let engine = engine().await;
        let tunnel = behind(&engine, &pair).await;
        let lines = format!("{}{more}", trusted.line);
        let logs = send_once(name, engine, &tunnel.url(), &lines, refused.is_none()).await;
        if let Some(why) = refused {
            let lines: Vec<_> = logs
                .iter()
                .filter(|line| line.contains(r#""end":"#))
                .collect();
            assert!(
                lines.iter().any(|line| line.contains(why)),
                "{name}: {lines:#?}"
            );
        }
    }
}

/// An engine whose certificate is its own authority, as `openssl req -x509` makes it, is trusted by that file alone.
#[tokio::test]
async fn fault_u05_an_engine_that_is_its_own_authority() {
    let other = Authority::for_host("localhost", 9);
    for (name, host, days, is_named, refused) in [
        ("good", "localhost", 9, true, None),
        ("expired", "localhost", -1, true, Some("xpired")),
        (
            "wrong name",
            "other.example",
            9,
            true,
            Some("not valid for name"),
        ),
        ("unknown", "localhost", 9, false, Some("certificate")),
    ] {
        let own = Authority::for_host(host, days);
        let folder = Folder::new();
        let trusted = if is_named { own.pem() } else { other.pem() };
        let line = file_key_line("ca_file", &folder.write("ca.crt", &trusted));
        let engine = engine().await;
        let tunnel = behind(&engine, &own.own()).await;
        let logs = send_once(name, engine, &tunnel.url(), &line, refused.is_none()).await;
        assert!(
            refused.is_none_or(|why| logged(&logs, why)),
            "{name}: {logs:#?}"
        );
    }
}

/// Starts a server that answers any bytes with these bytes, and then nothing more.
async fn fixed_reply_server(words: &'static [u8]) -> (u16, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let task = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut space = [0; 4096];
            let _ = stream.read(&mut space).await;
            let _ = stream.write_all(words).await;
            let _ = stream.shutdown().await;
        }
    });
    (port, task)
}

#[tokio::test]
async fn fault_u05_whoever_speaks_no_tls_is_no_engine() {
    let trusted = Trusted::new();
    // A server limited to TLS 1.1: once by its alert, once by answering with that version regardless.
    let hello =
        b"\x16\x03\x02\x00\x2a\x02\x00\x00\x26\x03\x02aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\x00\x00\x2f\x00";
    let rows: [(&str, &'static [u8]); 5] = [
        (
            "an alert of an old version",
            b"\x15\x03\x01\x00\x02\x02\x46",
        ),
        ("an old version", hello),
        (
            "HTTP",
            b"HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\n{}",
        ),
        ("garbage", &[0xff; 64]),
        ("nothing", b""),
    ];
    for (name, words) in rows {
        let (port, task) = fixed_reply_server(words).await;
        send_once(
            name,
            engine().await,
            &format!("https://localhost:{port}"),
            &trusted.line,
            false,
        )
        .await;
        task.abort();
    }
    // An engine that speaks only plain HTTP: samewire does not fall back to it.
    let engine = engine().await;
    let url = engine
        .url()
        .replace("http://127.0.0.1", "https://localhost");
    let setup = Setup::new()
        .config("[timeouts]\nhandshake = 0.3")
        .upstream_at(&url, &trusted.line);
    let world = World::start(engine, setup.allow_errors()).await;
    assert_eq!(
        world.request(&Request::plain("")).await.head.status,
        504,
        "it waits for the end of a head"
    );
    assert_eq!(
        (world.engine.attempt_count(), world.engine.probes().len()),
        (0, 0)
    );
    world.end().await;
}

/// A request goes to the second address of a name if the first fails in the handshake: nothing of it was sent there.
#[tokio::test]
async fn fault_u05_another_address_of_the_name_answers() {
    let Some(names) = NameFiles::new() else {
        return;
    };
    names.set_hosts(&[[127, 0, 0, 1].into(), [127, 0, 0, 2].into()]);
    let trusted = Trusted::new();
    let engine = engine().await;
    let tunnel = behind(&engine, &trusted.authority.sign(NAME, 9)).await;
    let port = tunnel.url().rsplit_once(':').unwrap().1.parse().unwrap();
    let Ok(stranger) = TcpListener::bind(SocketAddr::from(([127, 0, 0, 2], port))).await else {
        return;
    };
    let (asked, count) = (Arc::new(AtomicUsize::new(0)), 20);
    let counted = Arc::clone(&asked);
    let refusing = tokio::spawn(async move {
        while stranger.accept().await.is_ok() {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    let lines = format!(
        "{}[timeouts]\npool_idle = 0.001\n[health]\ninterval = 600\n",
        trusted.line
    );
    let setup = Setup::new().upstream_at(&format!("https://{NAME}:{port}"), &lines);
    let world = World::start(engine, setup.name_files(names.folder())).await;
    for _ in 0..count {
        world.request(&Request::plain("")).await.with_status(200);
    }
    assert!(
        (1..count).contains(&asked.load(Ordering::Relaxed)),
        "an address that fails comes last"
    );
    refusing.abort();
    world.end().await;
}

#[tokio::test]
async fn fault_u05_another_engine_answers() {
    let (trusted, other) = (Trusted::new(), engine().await);
    let stranger = behind(&other, &CertifiedPair::self_signed("localhost")).await;
    // Both get requests while nothing is known about them.
    let config = format!(
        "[[upstream]]\nurl = \"{}\"\nweight = 1000\n{}",
        stranger.url(),
        trusted.line
    );
    let setup = Setup::new()
        .config(&config)
        .upstream_keys("weight = 1")
        .allow_errors();
    let world = World::start(engine(), setup).await;
    for _ in 0..5 {
        world.stream("").await.with_status(200);
    }
    assert_eq!(
        (world.engine.attempt_count(), other.attempt_count()),
        (5, 0)
    );
    world.end().await;
}

#[tokio::test]
async fn any_certificate_will_do_only_where_that_is_called_a_danger() {
    let danger = "danger_accept_invalid_certs = true\n";
    for pair in [
        CertifiedPair::self_signed("other.example"),
        Authority::new("a").sign("localhost", -1),
    ] {
        let engine = engine().await;
        let tunnel = behind(&engine, &pair).await;
        let logs = send_once("danger", engine, &tunnel.url(), danger, true).await;
        assert!(logged(&logs, r#""level":"WARN""#) && logged(&logs, "danger_accept_invalid_certs"));
    }
    // Without verification, the connection must still be TLS.
    let (port, task) = fixed_reply_server(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await;
    send_once(
        "HTTP",
        engine().await,
        &format!("https://localhost:{port}"),
        danger,
        false,
    )
    .await;
    task.abort();
}

#[tokio::test]
async fn fault_u04_a_handshake_that_stalls() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!(
        "https://localhost:{}",
        listener.local_addr().unwrap().port()
    );
    let held = tokio::spawn(async move {
        let mut all = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            all.push(stream);
        }
    });
    let trusted = Trusted::new();
    let setup = Setup::new()
        .config("[timeouts]\nhandshake = 0.4")
        .upstream_at(&url, &trusted.line)
        .allow_errors();
    let world = World::start(engine(), setup).await;
    for request in [Request::stream(""), Request::plain("")] {
        let start = Instant::now();
        assert_eq!(
            world.request(&request).await.failure(),
            "504 server_error upstream_timeout"
        );
        assert_took(start, 350);
    }
    held.abort();
    world.end().await;
}

#[tokio::test]
async fn an_engine_that_asks_for_a_certificate() {
    let (trusted, clients) = (Trusted::new(), Authority::new("clients"));
    let (good, wrong) = (
        clients.sign("samewire", 9),
        Authority::new("others").sign("samewire", 9),
    );
    for (name, own, served) in [
        ("good", Some(&good), true),
        ("none", None, false),
        ("wrong", Some(&wrong), false),
    ] {
        let engine = engine().await;
        let tunnel =
            Tunnel::out_of_tls(engine.address, trusted.good().server(Some(&clients))).await;
        let mut lines = trusted.line.clone();
        if let Some(own) = own {
            lines += &file_key_line(
                "client_cert_file",
                &trusted.folder.write("own.crt", &own.certificate),
            );
            lines += &file_key_line(
                "client_key_file",
                &trusted.folder.write("own.key", &own.key),
            );
        }
        send_once(name, engine, &tunnel.url(), &lines, served).await;
    }
}

/// After the handshake, servers send session tickets: bytes to read that are not an answer.
#[tokio::test]
async fn connections_serve_again() {
    let trusted = Trusted::new();
    for (name, server) in [
        ("1.3", trusted.good().server(None)),
        ("1.2", trusted.good().old_server()),
    ] {
        let engine = engine().await;
        let tunnel = Tunnel::out_of_tls(engine.address, server).await;
        let setup = Setup::new()
            .args(&["--threads", "1"])
            .upstream_at(&tunnel.url(), &trusted.line);
        let world = World::start(engine, setup).await;
        for round in 0..10 {
            let request = if round % 2 == 0 {
                Request::stream("")
            } else {
                Request::plain("")
            };
            let answer = world.request(&request).await;
            assert_eq!(answer.head.status, 200, "{name}: {}", answer.text());
        }
        let attempts = world.engine.attempts();
        assert_eq!(attempts.len(), 10);
        let host = format!("localhost:{}", tunnel.address.port());
        assert!(
            attempts
                .iter()
                .all(|attempt| attempt.header("host") == Some(&host))
        );
        let first = attempts[0].connection;
        assert!(
            attempts.iter().all(|attempt| attempt.connection == first),
            "{name}: one for all"
        );
        world.end().await;
    }
}

#[tokio::test]
async fn connections_that_have_ended_do_not() {
    let trusted = Trusted::new();
    let engine = Engine::script(Script::answer("a", 1).fin()).await;
    let tunnel = behind(&engine, &trusted.good()).await;
    let setup = Setup::new()
        .args(&["--threads", "1"])
        .upstream_at(&tunnel.url(), &trusted.line);
    let world = World::start(engine, setup).await;
    for round in 0..10 {
        world.stream("").await.with_status(200);
        assert_eq!(
            world.engine.attempt_count(),
            round + 1,
            "one request for each"
        );
    }
    world.end().await;
}

const WHOLE: &str = r#"{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"a"},"finish_reason":"stop"}]}"#;

/// Starts a server that reads heads, and bodies if `patient`, answers each with these bytes, and updates its TLS
/// keys after each answer. Returns its address and a count of connections that carried a POST.
async fn key_update_server(
    server: Arc<ServerConfig>,
    answer: String,
    patient: bool,
) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!(
        "https://localhost:{}",
        listener.local_addr().unwrap().port()
    );
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, answer) = (TlsAcceptor::from(Arc::clone(&server)), answer.clone());
            let counted = Arc::clone(&counted);
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else {
                    return;
                };
                let (mut inbox, mut posts) = (Vec::new(), 0);
                while let Some(post) = read_request(&mut stream, &mut inbox, patient).await {
                    posts += usize::from(post);
                    counted.fetch_add(usize::from(posts == 1 && post), Ordering::SeqCst);
                    stream.write_all(answer.as_bytes()).await.unwrap();
                    stream.flush().await.unwrap();
                    stream.get_mut().1.refresh_traffic_keys().unwrap();
                    stream.flush().await.unwrap();
                    if !patient && post {
                        std::future::pending::<()>().await;
                    }
                }
            });
        }
    });
    (url, count)
}

/// Reads a request. Returns true if it was a POST, and `None` at the end of the connection.
async fn read_request(
    stream: &mut (impl AsyncRead + Unpin),
    inbox: &mut Vec<u8>,
    patient: bool,
) -> Option<bool> {
    loop {
        let text = String::from_utf8_lossy(inbox).into_owned();
        if let Some((head, _)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "));
            let whole = head.len() + 4 + length.map_or(0, |length| length.parse().unwrap());
            if inbox.len() >= whole || !patient {
                let post = head.starts_with("POST");
                inbox.clear();
                return Some(post);
            }
        }
        if stream.read_buf(inbox).await.unwrap_or(0) == 0 {
            return None;
        }
    }
}

/// Key updates may come at any time: bytes to read that neither end a connection nor are an answer.
#[tokio::test]
async fn connections_whose_keys_change_serve_again() {
    let trusted = Trusted::new();
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{WHOLE}",
        WHOLE.len()
    );
    let (url, count) = key_update_server(trusted.good().server(None), answer, true).await;
    let setup = Setup::new()
        .args(&["--threads", "1", "--set", "parser=off"])
        .upstream_at(&url, &trusted.line)
        .allow_errors();
    let world = World::start(engine(), setup).await;
    for _ in 0..10 {
        world.request(&Request::plain("")).await.with_status(200);
    }
    assert_eq!(count.load(Ordering::SeqCst), 1);
    world.end().await;
}

/// An engine that refuses before it has read the whole request.
#[tokio::test]
async fn an_answer_that_comes_early_is_read() {
    let trusted = Trusted::new();
    let body =
        r#"{"error":{"message":"too long","type":"BadRequestError","param":null,"code":400}}"#;
    let answer = format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let (url, _) = key_update_server(trusted.good().server(None), answer, false).await;
    let world = World::start(
        engine(),
        Setup::new().upstream_at(&url, &trusted.line).allow_errors(),
    )
    .await;
    let user = "x".repeat(8 << 20);
    let answer = world
        .request(&Request::plain(&format!(r#","user":"{user}""#)))
        .await
        .with_status(400);
    assert_eq!(answer.fault().message, "too long");
    world.end().await;
}

/// Requests and answers larger than the buffers of sockets and TLS, in both directions.
#[tokio::test]
async fn large_requests_and_answers() {
    let trusted = Trusted::new();
    let script = Script::stream().then(Step::Flood {
        events: 500,
        size: 10_000,
    });
    let engine = Engine::script(script.stop()).await;
    let tunnel = behind(&engine, &trusted.good()).await;
    let world = World::start(
        engine,
        Setup::new().upstream_at(&tunnel.url(), &trusted.line),
    )
    .await;
    let user = "x".repeat(5 << 20);
    let answer = world
        .stream(&format!(r#","user":"{user}""#))
        .await
        .with_status(200);
    assert_eq!(grammar(answer.text()).len(), 503);
    assert!(world.engine.only().text().contains(&user));
    world.end().await;
}

#[tokio::test]
async fn fault_c24_a_client_that_leaves_ends_the_encrypted_request() {
    let trusted = Trusted::new();
    let engine = Engine::script(Script::stream().text("a").hang()).await;
    let tunnel = behind(&engine, &trusted.good()).await;
    let world = World::start(
        engine,
        Setup::new().upstream_at(&tunnel.url(), &trusted.line),
    )
    .await;
    let client = world.begin_until(&Request::stream(""), "\"a\"").await;
    let left = client.leave(CloseKind::Fin);
    until("the engine sees the close", || {
        world.engine.closed(0).is_some()
    })
    .await;
    let (closed, _) = world.engine.closed(0).unwrap();
    assert!(closed.saturating_duration_since(left) < SOON);
    world.end().await;
}

/// Probes trust the same certificates as requests.
#[tokio::test]
async fn probes_speak_tls_too() {
    let trusted = Trusted::new();
    for (pair, ready) in [
        (trusted.good(), 200),
        (CertifiedPair::self_signed("localhost"), 503),
    ] {
        let engine = engine().await;
        let tunnel = behind(&engine, &pair).await;
        let setup = Setup::new()
            .upstream_at(&tunnel.url(), &trusted.line)
            .allow_errors();
        let world = World::start(engine, setup).await;
        until("a verdict", || {
            let logs = world.samewire.logs();
            logged(&logs, "upstream is ready") || logged(&logs, "it cannot be reached")
        })
        .await;
        assert_eq!(world.samewire.admin("/readyz").await.head.status, ready);
        assert_eq!(world.engine.probes().is_empty(), ready == 503);
        world.end().await;
    }
}
