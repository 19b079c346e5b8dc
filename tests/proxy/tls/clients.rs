//! TLS towards clients: invalid handshakes, their timeouts, and certificates that change.

use crate::canonical::grammar;
use crate::sim::IntoEngine;
use crate::sim::prelude::*;
use crate::sim::tls::{Authority, CertifiedPair, Tunnel, connect, file_key_line};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::rustls::ClientConnection;

/// Samewire with a certificate for `localhost`.
struct TlsWorld {
    authority: Authority,
    folder: Folder,
    world: World,
}

impl TlsWorld {
    /// Starts samewire with TLS. `more` holds further keys of `[tls]`, and whatever may follow them.
    async fn start(engine: impl IntoEngine, more: &str) -> Self {
        let (authority, folder) = (Authority::new("tests"), Folder::new());
        let pair = authority.sign("localhost", 300);
        let config = files(&folder, &pair) + more;
        let world = World::start(engine, Setup::new().config(&config).allow_errors()).await;
        Self {
            authority,
            folder,
            world,
        }
    }

    /// Starts a tunnel that adds TLS to plain connections.
    async fn tunnel(&self) -> Tunnel {
        Tunnel::into_tls(self.world.proxy(), self.authority.client(None)).await
    }

    async fn metric(&self, name: &str) -> f64 {
        let metrics = self.world.samewire.metrics_now().await;
        let line = metrics
            .lines()
            .find(|line| line.starts_with(&format!("{name} ")));
        let value = line
            .unwrap_or_else(|| panic!("no {name} in {metrics}"))
            .rsplit(' ')
            .next();
        value.expect("a value").parse().expect("a number")
    }

    async fn becomes(&self, name: &str, value: f64) {
        eventually(&format!("{name} is {value}"), async || {
            self.metric(name).await == value
        })
        .await;
    }

    /// Returns the certificate that new connections get.
    async fn served_certificate(&self) -> Vec<u8> {
        let stream = connect(self.world.proxy(), &self.authority.client(None))
            .await
            .expect("a handshake");
        let (_, session) = stream.get_ref();
        session.peer_certificates().expect("a certificate")[0].to_vec()
    }

    fn logged(&self, level: &str, text: &str) -> usize {
        let level = format!(r#""level":"{level}""#);
        let lines = self.world.samewire.logs();
        lines
            .iter()
            .filter(|line| line.contains(&level) && line.contains(text))
            .count()
    }
}

fn files(folder: &Folder, pair: &CertifiedPair) -> String {
    let certificate = folder.write("tls.crt", &pair.certificate);
    let key = folder.write("tls.key", &pair.key);
    format!(
        "[tls]\n{}{}",
        file_key_line("cert_file", &certificate),
        file_key_line("key_file", &key)
    )
}

async fn engine() -> Engine {
    Engine::script(Script::answer("a", 3)).await
}

/// Reads everything up to the end of the connection. Returns `None` if that takes longer than `limit`.
async fn read_to_close(mut stream: TcpStream, limit: Duration) -> Option<Vec<u8>> {
    let mut words = Vec::new();
    // A reset also counts as an end.
    tokio::time::timeout(limit, stream.read_to_end(&mut words))
        .await
        .ok()
        .map(|_| words)
}

#[tokio::test]
async fn a_client_is_served_over_tls() {
    let secure = TlsWorld::start(engine(), "").await;
    let tunnel = secure.tunnel().await;
    let mut client = Client::connect(tunnel.address).await;
    for request in [
        Request::stream(""),
        Request::plain(""),
        Request::get("/v1/models"),
        Request::stream(""),
    ] {
        client.send(&request.bytes()).await;
        client.answer().await.with_status(200);
    }
    assert_eq!(
        tunnel.handshakes.load(Ordering::SeqCst),
        1,
        "one connection for all"
    );
    // An answer delimited by the close of the connection ends in an orderly way.
    let answer = Request::stream("")
        .version("HTTP/1.0")
        .answer(tunnel.address)
        .await;
    assert_eq!((answer.head.status, answer.ended), (200, Ended::Close));
    assert!(answer.text().ends_with("data: [DONE]\n\n"));
    secure
        .becomes("samewire_tls_handshake_failures_total", 0.0)
        .await;
    secure.world.end().await;
}

#[tokio::test]
async fn fault_c23_whoever_speaks_no_tls_is_sent_away() {
    let secure = TlsWorld::start(engine(), "handshake = 1\n").await;
    let rows: [(&str, &[u8]); 7] = [
        ("words", b"HELO mail.example\r\n"),
        ("a line without end", &[b'A'; 20_000]),
        ("what HTTP is not", b"get / http/1.1\r\n\r\n"),
        ("garbage", &[0xff; 300]),
        ("SSL 2", b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10"),
        ("a record without end", b"\x16\x03\x01\xff\xff\x01"),
        ("an empty hello", b"\x16\x03\x01\x00\x04\x01\x00\x00\x00"),
    ];
    for (name, bytes) in rows {
        let mut stream = TcpStream::connect(secure.world.proxy()).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let words = read_to_close(stream, PATIENCE).await;
        let words = words.unwrap_or_else(|| panic!("{name}: still open"));
        // An alert or nothing, but never HTTP.
        assert!(words.is_empty() || words[0] == 0x15, "{name}: {words:?}");
    }
    secure
        .becomes("samewire_tls_handshake_failures_total", 7.0)
        .await;
    assert_eq!(secure.world.engine.attempt_count(), 0);
    Request::plain("")
        .answer(secure.tunnel().await.address)
        .await
        .with_status(200);
    secure.world.end().await;
}

/// Plain HTTP gets an answer in plain HTTP, whether it arrives whole or in pieces, and occupies no handshake slot.
#[tokio::test]
async fn fault_c23_plain_http_is_told_to_speak_https() {
    let secure = TlsWorld::start(engine(), "handshake = 5\nmax_handshakes = 1\n").await;
    let post = b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{}";
    let rows: [(&str, &[&[u8]], bool); 5] = [
        ("whole", &[post], true),
        (
            "in pieces",
            &[
                b"P",
                b"OST /v1",
                b"/chat/completions HT",
                b"TP/1.1\r",
                b"\nhost: a\r\n\r\n",
            ],
            true,
        ),
        ("HTTP/1.0", &[b"GET / HTTP/1.0\r\n\r\n"], true),
        ("HTTP/2", &[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"], true),
        (
            "HEAD",
            &[b"HEAD /health HTTP/1.1\r\nhost: a\r\n\r\n"],
            false,
        ),
    ];
    for (name, pieces, has_body) in rows {
        let mut stream = TcpStream::connect(secure.world.proxy()).await.unwrap();
        for piece in pieces {
            stream.write_all(piece).await.unwrap();
            tokio::task::yield_now().await;
        }
        let words = read_to_close(stream, PATIENCE).await;
        let words =
            String::from_utf8(words.unwrap_or_else(|| panic!("{name}: still open"))).unwrap();
        let (head, body) = words
            .split_once("\r\n\r\n")
            .unwrap_or_else(|| panic!("{name}: {words:?}"));
        assert!(
            head.starts_with("HTTP/1.1 400 Bad Request\r\n"),
            "{name}: {head}"
        );
        for line in [
            "content-type: application/json",
            "connection: close",
            "x-request-id: ",
        ] {
            assert!(head.contains(line), "{line}: {head}");
        }
        if !has_body {
            assert_eq!(body, "", "{name}");
            continue;
        }
        assert!(
            head.contains(&format!("content-length: {}\r\n", body.len())),
            "{head}\n{body}"
        );
        assert!(
            body.starts_with("{\"error\":{\"message\":\"This port speaks HTTPS"),
            "{name}: {body}"
        );
        assert!(
            body.contains("\"type\":\"invalid_request_error\""),
            "{name}: {body}"
        );
    }
    secure
        .becomes("samewire_tls_handshake_failures_total", 5.0)
        .await;
    // Plain HTTP clients that keep their connection open do not occupy the only handshake slot.
    let mut open = Vec::new();
    for _ in 0..8 {
        let mut stream = TcpStream::connect(secure.world.proxy()).await.unwrap();
        stream.write_all(post).await.unwrap();
        let mut space = [0; 12];
        within("an answer", stream.read_exact(&mut space))
            .await
            .unwrap();
        assert_eq!(&space, b"HTTP/1.1 400");
        open.push(stream);
    }
    let begun = Instant::now();
    connect(secure.world.proxy(), &secure.authority.client(None))
        .await
        .expect("a handshake");
    assert!(
        begun.elapsed() < Duration::from_secs(4),
        "{:?}",
        begun.elapsed()
    );
    drop(open);
    // An incomplete line is closed after the handshake timeout.
    let mut stream = TcpStream::connect(secure.world.proxy()).await.unwrap();
    stream.write_all(b"GET /heal").await.unwrap();
    let begun = Instant::now();
    assert_eq!(read_to_close(stream, PATIENCE).await, Some(Vec::new()));
    let took = begun.elapsed();
    assert!(took > Duration::from_secs(1) && took < PATIENCE, "{took:?}");
    secure
        .becomes("samewire_tls_handshake_failures_total", 14.0)
        .await;
    assert_eq!(secure.world.engine.attempt_count(), 0);
    secure.world.end().await;
}

/// Returns the first message of a handshake.
fn hello(secure: &TlsWorld) -> Vec<u8> {
    let name = "localhost".try_into().unwrap();
    let mut client = ClientConnection::new(secure.authority.client(None), name).unwrap();
    let mut hello = Vec::new();
    client.write_tls(&mut hello).unwrap();
    hello
}

/// Connects clients that are silent from the beginning, within their hello and after it.
async fn silent_clients(secure: &TlsWorld) -> Vec<TcpStream> {
    let hello = hello(secure);
    let mut silent = Vec::new();
    for sent in [0, 1, hello.len() - 1, hello.len()] {
        let mut stream = TcpStream::connect(secure.world.proxy()).await.unwrap();
        stream.write_all(&hello[..sent]).await.unwrap();
        silent.push(stream);
    }
    silent
}

/// Clients that say nothing more hold no place for handshakes.
#[tokio::test]
async fn fault_c23_silent_clients_make_nobody_wait() {
    let secure = TlsWorld::start(engine(), "handshake = 600\nmax_handshakes = 1\n").await;
    let silent = silent_clients(&secure).await;
    for _ in 0..3 {
        let client = secure.authority.client(None);
        within("a handshake", connect(secure.world.proxy(), &client))
            .await
            .expect("a handshake");
    }
    drop(silent);
    secure.world.end().await;
}

#[tokio::test]
async fn fault_c23_a_handshake_that_stalls_ends_in_time() {
    let secure = TlsWorld::start(engine(), "handshake = 1\n").await;
    let begun = Instant::now();
    for stream in silent_clients(&secure).await {
        assert!(read_to_close(stream, PATIENCE).await.is_some());
    }
    assert_took(begun, 800);
    secure
        .becomes("samewire_tls_handshake_failures_total", 4.0)
        .await;
    secure.world.end().await;
}

/// Clients that are silent in their handshake make room when they hold all connections.
#[tokio::test]
async fn fault_c41_silent_handshakes_make_room() {
    let more = "handshake = 60\n[limits]\nconnections = 4\n";
    let secure = TlsWorld::start(engine(), more).await;
    let silent = silent_clients(&secure).await;
    for _ in 0..2 {
        let tunnel = secure.tunnel().await;
        Request::plain("")
            .answer(tunnel.address)
            .await
            .with_status(200);
    }
    secure
        .becomes("samewire_connections_refused_total", 0.0)
        .await;
    drop(silent);
    secure.world.end().await;
}

#[tokio::test]
async fn fault_c23_only_clients_with_a_certificate_of_the_right_authority() {
    let (ours, theirs, folder) = (
        Authority::new("clients"),
        Authority::new("others"),
        Folder::new(),
    );
    let path = folder.write("clients.crt", &ours.pem());
    let secure = TlsWorld::start(engine(), &file_key_line("client_ca_file", &path)).await;
    let (good, wrong, late) = (
        ours.sign("me", 5),
        theirs.sign("me", 5),
        ours.sign("me", -5),
    );
    for (name, own, served) in [
        ("none", None, false),
        ("another authority's", Some(&wrong), false),
        ("expired", Some(&late), false),
        ("good", Some(&good), true),
    ] {
        let config = secure.authority.client(own);
        let mut space = [0; 1];
        // In TLS 1.3 the client's handshake is complete before its certificate is checked.
        let talk = async {
            let mut stream = connect(secure.world.proxy(), &config).await?;
            stream.write_all(&Request::plain("").bytes()).await?;
            stream.read_exact(&mut space).await
        };
        let talked = within(name, talk).await;
        assert_eq!(talked.is_ok(), served, "{name}: {talked:?}");
    }
    assert_eq!(secure.world.engine.attempt_count(), 1);
    secure.world.end().await;
}

#[tokio::test]
async fn fault_c23_a_client_that_ends_tls_early_has_left() {
    let gate = Gate::default();
    let secure = TlsWorld::start(Script::stream().text("a").wait(&gate).stop(), "").await;
    let config = secure.authority.client(None);
    let request = Request::stream("").bytes();
    // No byte of a request, or half of one.
    for part in [0, request.len() / 2] {
        let mut stream = connect(secure.world.proxy(), &config).await.unwrap();
        stream.write_all(&request[..part]).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut rest = Vec::new();
        let _ = within("the end", stream.read_to_end(&mut rest)).await;
        assert!(
            rest.is_empty() || rest.starts_with(b"HTTP/1.1 400"),
            "{}",
            String::from_utf8_lossy(&rest)
        );
    }
    assert_eq!(secure.world.engine.attempt_count(), 0);
    // In the middle of an answer: TLS ends while the TCP connection stays open.
    let mut stream = connect(secure.world.proxy(), &config).await.unwrap();
    stream.write_all(&request).await.unwrap();
    until("the engine answers", || {
        secure.world.engine.attempt_count() == 1
    })
    .await;
    stream.read_exact(&mut [0; 20]).await.unwrap();
    let (tcp, session) = stream.get_mut();
    session.send_close_notify();
    let mut last = Vec::new();
    session.write_tls(&mut last).unwrap();
    let left = Instant::now();
    tcp.write_all(&last).await.unwrap();
    until("the answer is cancelled", || {
        secure.world.engine.closed(0).is_some()
    })
    .await;
    let (closed, _) = secure.world.engine.closed(0).unwrap();
    assert!(closed.saturating_duration_since(left) < SOON);
    gate.open();
    secure.world.end().await;
}

/// Clients that leave an encrypted connection are noticed as soon as others, even after unread bytes.
#[tokio::test]
async fn fault_c26_disconnects_are_seen_through_tls() {
    let secure = TlsWorld::start(Script::stream().text("a").hang(), "").await;
    let tunnel = secure.tunnel().await;
    let mut n = 0;
    for surplus in [0, 1, 9_000, 100_000] {
        for manner in [CloseKind::Fin, CloseKind::Rst] {
            let mut client = Request::stream("").send(tunnel.address).await;
            client.send(&b"X".repeat(surplus)).await;
            client.event_with_head("\"a\"").await;
            let left = client.leave(manner);
            until("the engine sees the close", || {
                secure.world.engine.closed(n).is_some()
            })
            .await;
            let (closed, _) = secure.world.engine.closed(n).unwrap();
            let took = closed.saturating_duration_since(left);
            assert!(took < SOON, "{surplus} {manner:?}: {took:?}");
            n += 1;
        }
    }
    secure.world.end().await;
}

#[tokio::test]
async fn fault_c09_a_reader_that_stops_is_given_up_behind_tls_too() {
    let script = Script::stream()
        .then(Step::Flood {
            events: 20_000,
            size: 2048,
        })
        .hang();
    let secure = TlsWorld::start(script, "[timeouts]\nclient_write_stall = 0.5\n").await;
    let mut stream = connect(secure.world.proxy(), &secure.authority.client(None))
        .await
        .unwrap();
    stream
        .write_all(&Request::stream("").bytes())
        .await
        .unwrap();
    until("the answer is cancelled", || {
        secure.world.engine.closed(0).is_some()
    })
    .await;
    let mut rest = Vec::new();
    assert!(
        within("the end", stream.read_to_end(&mut rest))
            .await
            .is_err(),
        "a cut stream must not end well"
    );
    secure.world.end().await;
}

/// The rest of the answer fits into TLS's own buffer, but not into the socket.
#[tokio::test]
async fn fault_c09_slow_readers_get_everything() {
    let script = Script::stream().then(Step::Flood {
        events: 2_000,
        size: 2048,
    });
    let script = script.stop();
    let secure = TlsWorld::start(script, "").await;
    let tunnel = secure.tunnel().await;
    let mut client = Request::stream("").send_narrow(tunnel.address).await;
    client.head().await;
    crate::clients::leaving::settled(|| secure.world.engine.written(0)).await;
    let rest = String::from_utf8(client.rest().await).expect("UTF-8");
    assert_eq!(grammar(&rest).len(), 2003, "every event, and a good end");
    assert!(rest.ends_with("data: [DONE]\n\n"));
    secure.world.end().await;
}

#[tokio::test]
async fn fault_o24_new_connections_see_the_new_certificate() {
    let gate = Gate::default();
    let secure = TlsWorld::start(Script::stream().text("a").wait(&gate).stop(), "").await;
    let before = secure.served_certificate().await;
    let ends = secure
        .metric("samewire_tls_certificate_expiry_seconds")
        .await;
    let tunnel = secure.tunnel().await;
    let mut client = Request::stream("")
        .begin_until(tunnel.address, "\"a\"")
        .await;
    let next = secure.authority.sign("localhost", 400);
    files(&secure.folder, &next);
    eventually("the new certificate", async || {
        secure.served_certificate().await != before
    })
    .await;
    assert_eq!(secure.served_certificate().await, next.der().to_vec());
    eventually("its end is told", async || {
        let later = secure
            .metric("samewire_tls_certificate_expiry_seconds")
            .await
            - ends;
        (later - 100.0 * 86_400.0).abs() <= 60.0
    })
    .await;
    // Existing connections continue.
    gate.open();
    client.event_with("[DONE]").await;
    assert_eq!(secure.logged("ERROR", "TLS"), 0);
    secure.world.end().await;
}

/// Returns a certificate and its key, made by the authority or of a pair that is good. Without a key, its file is
/// removed.
type Pair = fn(&Authority, &CertifiedPair) -> (String, Option<String>);

/// Replaces the files by a pair that is no good, and then by one that is.
async fn a_bad_pair_and_a_good_one(name: &str, pair: Pair, logged: &str, wrong: &str) {
    let secure = TlsWorld::start(engine(), "").await;
    let before = secure.served_certificate().await;
    let good = secure.authority.sign("localhost", 200);
    let (certificate, key) = pair(&secure.authority, &good);
    match key {
        Some(key) => {
            files(&secure.folder, &CertifiedPair { certificate, key });
        }
        None => std::fs::remove_file(secure.folder.path("tls.key")).unwrap(),
    }
    until(name, || secure.logged("ERROR", logged) == 1).await;
    let lines = secure.world.samewire.logs();
    let line = lines.iter().find(|line| line.contains(logged)).unwrap();
    assert!(line.contains(wrong), "{name}: {line}");
    secure.becomes("samewire_tls_reload_success", 0.0).await;
    assert_eq!(secure.served_certificate().await, before, "{name}");
    // The files are valid again.
    files(&secure.folder, &good);
    secure.becomes("samewire_tls_reload_success", 1.0).await;
    assert_eq!(
        secure.served_certificate().await,
        good.der().to_vec(),
        "{name}"
    );
    assert_eq!(
        Request::plain("")
            .answer(secure.tunnel().await.address)
            .await
            .head
            .status,
        200,
        "{name}"
    );
    secure.world.end().await;
}

/// The rows run at the same time, because each change is noticed only after one or two seconds.
#[tokio::test]
async fn fault_o24_a_bad_pair_changes_nothing() {
    let rows: [(&str, Pair, &str, &str); 7] = [
        (
            "the key of another",
            |authority, good| {
                (
                    good.certificate.clone(),
                    Some(authority.sign("localhost", 200).key),
                )
            },
            "no good",
            "key_file",
        ),
        (
            "no PEM",
            |_, good| ("a certificate".to_owned(), Some(good.key.clone())),
            "no good",
            "cert_file",
        ),
        (
            "empty",
            |_, _| (String::new(), Some(String::new())),
            "no good",
            "cert_file",
        ),
        (
            "an expired one with another key",
            |authority, good| {
                (
                    authority.sign("localhost", -1).certificate,
                    Some(good.key.clone()),
                )
            },
            "no good",
            "key_file",
        ),
        (
            "the key in the place of the certificate",
            |_, good| (good.key.clone(), Some(good.key.clone())),
            "no good",
            "cert_file",
        ),
        (
            "expired",
            |authority, _| {
                let late = authority.sign("localhost", -1);
                (late.certificate, Some(late.key))
            },
            "has expired",
            "cert_file",
        ),
        (
            "a file that is not there",
            |_, good| (good.certificate.clone(), None),
            "cannot be read",
            "key_file",
        ),
    ];
    let all = rows
        .map(|(name, pair, logged, wrong)| a_bad_pair_and_a_good_one(name, pair, logged, wrong));
    futures::future::join_all(all).await;
}

/// Certificates are reloaded when Kubernetes updates a secret: the files are symbolic links through a folder that
/// is itself a link, and that link is replaced.
#[tokio::test]
async fn fault_o24_links_that_lead_elsewhere_are_seen() {
    use std::os::unix::fs::symlink;
    let (authority, folder) = (Authority::new("tests"), Folder::new());
    let pairs = [
        authority.sign("localhost", 100),
        authority.sign("localhost", 100),
    ];
    for (name, pair) in ["one", "two"].into_iter().zip(&pairs) {
        std::fs::create_dir(folder.path(name)).unwrap();
        folder.write(&format!("{name}/tls.crt"), &pair.certificate);
        folder.write(&format!("{name}/tls.key"), &pair.key);
    }
    symlink("one", folder.path("data")).unwrap();
    for name in ["tls.crt", "tls.key"] {
        symlink(format!("data/{name}"), folder.path(name)).unwrap();
    }
    let (certificate, key) = (folder.path("tls.crt"), folder.path("tls.key"));
    let config = format!(
        "[tls]\n{}{}",
        file_key_line("cert_file", &certificate),
        file_key_line("key_file", &key)
    );
    let world = World::start(engine(), Setup::new().config(&config)).await;
    let secure = TlsWorld {
        authority,
        folder,
        world,
    };
    assert_eq!(secure.served_certificate().await, pairs[0].der().to_vec());
    symlink("two", secure.folder.path("data.next")).unwrap();
    std::fs::rename(secure.folder.path("data.next"), secure.folder.path("data")).unwrap();
    eventually("the new certificate", async || {
        secure.served_certificate().await == pairs[1].der().to_vec()
    })
    .await;
    secure.world.end().await;
}

#[tokio::test]
async fn fault_o24_a_certificate_that_ends_soon_is_told_of() {
    let soon = "expires soon";
    let far = async {
        let secure = TlsWorld::start(engine(), "").await;
        files(&secure.folder, &secure.authority.sign("localhost", 15));
        until("it is read", || {
            secure.logged("INFO", "new certificate") == 1
        })
        .await;
        assert_eq!(secure.logged("WARN", soon), 0, "15 days are not soon");
        secure.world.end().await;
    };
    let near = async {
        let secure = TlsWorld::start(engine(), "").await;
        assert_eq!(secure.logged("WARN", soon), 0, "300 days are not soon");
        for (warnings, days) in [(1, 13), (2, 1)] {
            files(&secure.folder, &secure.authority.sign("localhost", days));
            until("the warning", || secure.logged("WARN", soon) == warnings).await;
        }
        secure.world.end().await;
    };
    // At the same time, because each change is noticed only after one or two seconds.
    tokio::join!(far, near);
}

/// Sets the permissions of a file.
fn allow(path: &std::path::Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// The private key of a certificate must be as protected as other secrets, towards clients and towards engines.
#[test]
fn fault_o09_keys_that_everybody_may_read_are_refused() {
    let (folder, authority) = (Folder::new(), Authority::new("tests"));
    let pair = authority.sign("localhost", 10);
    let tls = files(&folder, &pair);
    let client = file_key_line("client_cert_file", &folder.path("tls.crt"))
        + &file_key_line("client_key_file", &folder.path("tls.key"));
    let ca = file_key_line("ca_file", &folder.write("ca.crt", &authority.pem()));
    let (plain, secure) = (
        "[[upstream]]\nurl = \"http://127.0.0.1:1\"\n",
        "[[upstream]]\nurl = \"https://127.0.0.1:1\"\n",
    );
    for (text, key) in [
        (format!("{tls}{plain}"), "tls.key_file"),
        (
            format!("{secure}{ca}{client}"),
            "upstream[0].client_key_file",
        ),
    ] {
        let read = || {
            samewire::config::Config::read(&text, &[])
                .map(|_| ())
                .map_err(|mistakes| mistakes.to_string())
        };
        for mode in [0o644, 0o602, 0o604] {
            allow(&folder.path("tls.key"), mode);
            let told = read().expect_err("everybody may read it");
            let begin = format!(
                "{key}: everybody on this machine can read or change the file (mode {mode:04o}); chmod 0600"
            );
            assert!(told.starts_with(&begin), "{told}");
        }
        for mode in [0o600, 0o440] {
            allow(&folder.path("tls.key"), mode);
            assert_eq!(read(), Ok(()), "{mode:o}");
        }
    }
}

#[tokio::test]
async fn fault_o24_a_key_that_everybody_may_read_changes_nothing() {
    let secure = TlsWorld::start(engine(), "").await;
    let before = secure.served_certificate().await;
    files(&secure.folder, &secure.authority.sign("localhost", 200));
    allow(&secure.folder.path("tls.key"), 0o644);
    until("the line", || {
        secure.logged("ERROR", "everybody on this machine can read") == 1
    })
    .await;
    assert_eq!(secure.served_certificate().await, before);
    secure.becomes("samewire_tls_reload_success", 0.0).await;
    allow(&secure.folder.path("tls.key"), 0o600);
    secure.becomes("samewire_tls_reload_success", 1.0).await;
    assert_ne!(secure.served_certificate().await, before);
    secure.world.end().await;
}

/// TLS does not identify clients, so API keys are still required.
#[test]
fn tls_replaces_no_keys() {
    let (folder, authority) = (Folder::new(), Authority::new("tests"));
    let text = format!(
        "listen = \"0.0.0.0:1\"\n{}[[upstream]]\nurl = \"http://127.0.0.1:1\"\n",
        files(&folder, &authority.sign("localhost", 10))
    );
    let mistakes = samewire::config::Config::read(&text, &[])
        .map(|_| ())
        .expect_err("no keys");
    assert!(
        mistakes.to_string().contains("no keys are checked"),
        "{mistakes}"
    );
}
