//! Name resolution as on a separate machine: a mount namespace with its own `/etc/hosts`, and a DNS server whose
//! answers a test chooses.

use super::Folder;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Files in `/etc` that control how names are resolved.
const FILES: [&str; 3] = ["hosts", "resolv.conf", "nsswitch.conf"];

/// Host name of the engine.
pub const NAME: &str = "engine.test";

/// Name-resolution files that one samewire process sees in `/etc`.
pub struct NameFiles {
    folder: Folder,
}

impl NameFiles {
    /// Creates files by which no name resolves and no DNS server answers. Returns `None` and prints a note if this
    /// machine does not allow mount namespaces.
    pub fn new() -> Option<Self> {
        let this = Self {
            folder: Folder::new(),
        };
        this.write("nsswitch.conf", "hosts: files dns\n");
        this.set_dns_server("127.0.0.1");
        this.set_hosts(&[]);
        let tried = Self::command(this.folder())
            .arg("true")
            .stderr(Stdio::null())
            .status();
        if tried.is_ok_and(|status| status.success()) {
            return Some(this);
        }
        eprintln!("skipped: `unshare -rm` with mounts is not allowed here");
        None
    }

    /// Folder of the files.
    pub fn folder(&self) -> &Path {
        self.folder.folder()
    }

    /// Returns a command that runs another command with these files mounted over those in `/etc`.
    pub fn command(folder: &Path) -> Command {
        let mount = |name| format!("mount --bind '{}/{name}' /etc/{name}", folder.display());
        let mounts = FILES.map(mount).join(" && ");
        let mut command = Command::new("unshare");
        command.args([
            "-rm",
            "/bin/sh",
            "-c",
            &format!("{mounts} && exec \"$0\" \"$@\""),
        ]);
        command
    }

    /// Makes the engine's name resolve to these addresses. With none, the DNS server is queried.
    pub fn set_hosts(&self, addresses: &[Ipv4Addr]) {
        let line = |address: &Ipv4Addr| format!("{address} {NAME}\n");
        self.write("hosts", &addresses.iter().map(line).collect::<String>());
    }

    /// Sets the DNS server.
    pub fn set_dns_server(&self, server: &str) {
        let text = format!("nameserver {server}\noptions timeout:1 attempts:1 ndots:0\n");
        self.write("resolv.conf", &text);
    }

    /// Overwrites a file in place, because a bind-mounted file cannot be replaced by a rename.
    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.path(name), text).expect("the folder is writable");
    }
}

/// Reply of the DNS server, the same for every question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DnsReply {
    /// NXDOMAIN: the name does not exist.
    Nothing,
    /// SERVFAIL: the server could not resolve the name.
    Failure,
    /// Success with no address in it.
    Empty,
    /// Silence, so that the lookup times out.
    Silent,
    /// Success with this IPv4 address.
    Address(Ipv4Addr),
}

/// DNS server on loopback that gives every question the same reply.
pub struct Dns {
    /// Address on which the server listens, at port 53.
    pub address: Ipv4Addr,
    reply: Arc<Mutex<DnsReply>>,
    questions: Arc<AtomicUsize>,
}

impl Dns {
    /// Starts a server on its own loopback address. Returns `None` and prints a note if port 53 is not
    /// available.
    pub fn start(says: DnsReply) -> Option<Self> {
        let process = std::process::id().to_be_bytes();
        let socket = (0..200).find_map(|n| {
            let address = Ipv4Addr::new(127, 53, process[3], n);
            Some((
                address,
                UdpSocket::bind(SocketAddr::from((address, 53))).ok()?,
            ))
        });
        let Some((address, socket)) = socket else {
            eprintln!("skipped: port 53 cannot be had here");
            return None;
        };
        let this = Self {
            address,
            reply: Arc::new(Mutex::new(says)),
            questions: Arc::default(),
        };
        let (says, questions) = (Arc::clone(&this.reply), Arc::clone(&this.questions));
        std::thread::spawn(move || {
            let mut space = [0; 512];
            while let Ok((length, from)) = socket.recv_from(&mut space) {
                questions.fetch_add(1, Ordering::SeqCst);
                let says = *says.lock().expect("no thread panics with the lock");
                if let Some(answer) = answer(&space[..length], says) {
                    let _ = socket.send_to(&answer, from);
                }
            }
        });
        Some(this)
    }

    /// Changes the reply from now on.
    pub fn set_reply(&self, says: DnsReply) {
        *self.reply.lock().expect("no thread panics with the lock") = says;
    }

    /// Number of questions received. Each lookup sends two, one for IPv4 and one for IPv6.
    pub fn question_count(&self) -> usize {
        self.questions.load(Ordering::SeqCst)
    }
}

fn answer(question: &[u8], says: DnsReply) -> Option<Vec<u8>> {
    let name = question[12..].iter().position(|length| *length == 0)? + 13;
    let is_a = question.get(name..name + 2)? == [0, 1];
    let (code, address) = match says {
        DnsReply::Silent => return None,
        DnsReply::Nothing => (3, None),
        DnsReply::Failure => (2, None),
        DnsReply::Empty => (0, None),
        DnsReply::Address(address) => (0, Some(address).filter(|_| is_a)),
    };
    let count = u8::from(address.is_some());
    let mut out = [
        &question[..2],
        &[0x81, 0x80 | code, 0, 1, 0, count, 0, 0, 0, 0],
    ]
    .concat();
    out.extend_from_slice(&question[12..name + 4]);
    if let Some(address) = address {
        out.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4]);
        out.extend_from_slice(&address.octets());
    }
    Some(out)
}
