//! Error responses on connections that no HTTP library serves; the connection closes with the response.

use super::connection::LINGER_BYTES;
use crate::server::headers::{self, ErrorResponse};
use crate::server::ids::IdSource;
use crate::wire::fault::Failure;
use std::io;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Writes an error as HTTP/1.1 and closes the connection. `has_body` is false for an answer to a `HEAD`.
///
/// Some of a request that is still arriving is read: otherwise a TCP reset could discard the response. Fails if
/// the connection breaks.
pub(in crate::server) async fn answer(
    mut stream: TcpStream,
    failure: &Failure,
    has_body: bool,
) -> io::Result<()> {
    let chance = IdSource::draw().map_err(io::Error::other)?;
    let mut response = ErrorResponse::plain(failure, &chance.request_id());
    headers::close(&mut response);
    let (status, length) = (response.status(), response.body().len());
    let mut out = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n");
    for (name, value) in response.headers() {
        out += &format!("{name}: {}\r\n", value.to_str().unwrap_or_default());
    }
    out += "\r\n";
    let mut out = out.into_bytes();
    if has_body {
        out.extend_from_slice(response.body());
    }
    stream.write_all(&out).await?;
    stream.shutdown().await?;
    let (mut space, mut left) = ([0; 4096], LINGER_BYTES);
    while left > 0 {
        match stream.read(&mut space).await? {
            0 => break,
            read => left = left.saturating_sub(read),
        }
    }
    Ok(())
}
