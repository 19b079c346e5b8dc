//! Addresses at which no connection comes about.

use socket2::{Domain, Socket, Type};
use std::net::SocketAddr;

/// Returns an address that refuses connections, and the socket that keeps its port reserved.
pub fn refusing() -> (String, Socket) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket
        .bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())
        .expect("a free port");
    (url(&socket), socket)
}

/// Returns an address that never completes a connect: its accept queue is full, and the kernel drops new packets.
pub fn unanswered_address() -> (String, Vec<Socket>) {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    listener
        .bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())
        .expect("a free port");
    listener.listen(0).expect("a bound socket");
    let address = listener.local_addr().expect("bound");
    let url = url(&listener);
    let mut held = vec![listener];
    for _ in 0..4 {
        let filler = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        filler.set_nonblocking(true).expect("a socket");
        // In progress, established or refused: in each case the queue stays full.
        let _ = filler.connect(&address);
        held.push(filler);
    }
    (url, held)
}

fn url(socket: &Socket) -> String {
    let address = socket
        .local_addr()
        .expect("bound")
        .as_socket()
        .expect("an IP address");
    format!("http://{address}")
}
