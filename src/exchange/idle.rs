//! Time for which a server keeps a connection that nobody uses.
//!
//! A client library cannot show it: its pool hides when the server closes. So one request goes over a plain TCP
//! connection, and what follows its answer is waited for.

use super::Target;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use url::Url;

/// Fate of a connection after an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Idle {
    /// The server closed it after this time without use.
    Closed(Duration),
    /// The server kept it for as long as was waited.
    Kept(Duration),
    /// Observation that failed, with the reason.
    Unknown(String),
}

/// Bytes of an answer after which the observation is given up.
const MOST: usize = 1 << 20;

/// Asks for the list of models and waits at most `limit` for the server to close the unused connection.
pub async fn idle(target: &Target, limit: Duration) -> Idle {
    match observe(target, limit).await {
        Ok(idle) => idle,
        Err(why) => Idle::Unknown(why),
    }
}

async fn observe(target: &Target, limit: Duration) -> Result<Idle, String> {
    let url = Url::parse(target.base()).map_err(|error| error.to_string())?;
    let ("http", Some(host), Some(port)) =
        (url.scheme(), url.host_str(), url.port_or_known_default())
    else {
        return Err("the server speaks TLS, where this is not observed".to_owned());
    };
    // A server that sends byte after byte moves the end only up to here.
    let latest = Instant::now() + 2 * limit;
    let mut end = Instant::now() + limit;
    let address = (host.trim_matches(['[', ']']), port);
    let io = |error: std::io::Error| error.to_string();
    let late = |_| "the server did not answer".to_owned();
    let mut stream = timeout_at(end, TcpStream::connect(address))
        .await
        .map_err(late)?
        .map_err(io)?;
    timeout_at(end, stream.write_all(&request(target, &url, host, port)))
        .await
        .map_err(late)?
        .map_err(io)?;
    let (mut buffer, mut size, mut last) = ([0; 4096], 0, Instant::now());
    loop {
        match timeout_at(end, stream.read(&mut buffer)).await {
            Err(_) if size == 0 => return Err("the server did not answer".to_owned()),
            Err(_) => return Ok(Idle::Kept(limit)),
            Ok(Ok(0) | Err(_)) if size == 0 => {
                return Err("the server closed the connection".to_owned());
            }
            Ok(Ok(0) | Err(_)) => return Ok(Idle::Closed(last.elapsed())),
            Ok(Ok(read)) => size += read,
        }
        if size > MOST {
            return Err("the answer was too large".to_owned());
        }
        last = Instant::now();
        end = latest.min(last + limit);
    }
}

fn request(target: &Target, url: &Url, host: &str, port: u16) -> Vec<u8> {
    let mut head = format!(
        "GET {}/models HTTP/1.1\r\nhost: {host}:{port}\r\n",
        url.path()
    )
    .into_bytes();
    for (name, value) in target.headers() {
        head.extend_from_slice(name.as_str().as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"\r\n");
    head
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    /// Serves one connection on a thread, and returns what became of it.
    fn observed(serve: impl FnOnce(std::net::TcpStream) + Send + 'static, limit: Duration) -> Idle {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || serve(listener.accept().unwrap().0));
        let target = Target::new(&url, None, &["x-a: b".to_owned()]).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let idle = runtime.block_on(idle(&target, limit));
        server.join().unwrap();
        idle
    }

    const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";

    fn answer(stream: &mut std::net::TcpStream) {
        let mut head = [0; 1024];
        let read = stream.read(&mut head).unwrap();
        let head = String::from_utf8_lossy(&head[..read]).into_owned();
        assert!(
            head.starts_with("GET /v1/models HTTP/1.1\r\n") && head.contains("x-a: b\r\n"),
            "{head}"
        );
        stream.write_all(ANSWER).unwrap();
    }

    #[test]
    fn servers_that_close_are_told_from_those_that_keep() {
        let closes = observed(|mut stream| answer(&mut stream), Duration::from_secs(60));
        assert!(
            matches!(closes, Idle::Closed(time) if time < Duration::from_secs(60)),
            "{closes:?}"
        );
        let limit = Duration::from_millis(50);
        let keeps = observed(
            |mut stream| {
                answer(&mut stream);
                // Waits until the client has closed.
                assert_eq!(stream.read(&mut [0]).unwrap(), 0);
            },
            limit,
        );
        assert_eq!(keeps, Idle::Kept(limit));
    }

    #[test]
    fn a_server_that_says_nothing_is_not_judged() {
        let silent = observed(
            |mut stream| drop(stream.read(&mut [0; 1024])),
            Duration::from_secs(60),
        );
        assert!(matches!(silent, Idle::Unknown(_)), "{silent:?}");
        let tls = Target::new("https://127.0.0.1:1", None, &[]).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        assert!(
            matches!(runtime.block_on(idle(&tls, Duration::ZERO)), Idle::Unknown(why) if why.contains("TLS"))
        );
    }
}
