//! Names as a machine of its own would know them: a mount namespace with its own `/etc/hosts`, and a DNS server whose
//! answers a test chooses.

use super::tls::Folder;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// The files that say how names are looked up.
const FILES: [&str; 3] = ["hosts", "resolv.conf", "nsswitch.conf"];

/// The name of the engine.
pub const NAME: &str = "engine.test";

/// What one samewire finds in `/etc`.
pub struct Names {
    folder: Folder,
}

impl Names {
    /// Nobody knows any name, and there is nobody to ask. Nothing where this machine does not allow namespaces; why is said.
    pub fn new() -> Option<Self> {
        let this = Self { folder: Folder::new() };
        this.write("nsswitch.conf", "hosts: files dns\n");
        this.ask("127.0.0.1");
        this.lead_to(&[]);
        let tried = Self::command(this.folder()).arg("true").stderr(Stdio::null()).status();
        if tried.is_ok_and(|status| status.success()) {
            return Some(this);
        }
        eprintln!("skipped: `unshare -rm` with mounts is not allowed here");
        None
    }

    /// Where the files are.
    pub fn folder(&self) -> &Path {
        self.folder.folder()
    }

    /// A command that runs another one with these files.
    pub fn command(folder: &Path) -> Command {
        let mount = |name| format!("mount --bind '{}/{name}' /etc/{name}", folder.display());
        let mounts = FILES.map(mount).join(" && ");
        let mut command = Command::new("unshare");
        command.args(["-rm", "/bin/sh", "-c", &format!("{mounts} && exec \"$0\" \"$@\"")]);
        command
    }

    /// The name leads to these addresses; to none: the DNS server is asked.
    pub fn lead_to(&self, addresses: &[Ipv4Addr]) {
        let line = |address: &Ipv4Addr| format!("{address} {NAME}\n");
        self.write("hosts", &addresses.iter().map(line).collect::<String>());
    }

    /// This server is asked.
    pub fn ask(&self, server: &str) {
        let text = format!("nameserver {server}\noptions timeout:1 attempts:1 ndots:0\n");
        self.write("resolv.conf", &text);
    }

    /// In place: a file that is mounted cannot be swapped.
    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.path(name), text).expect("the folder is writable");
    }
}

/// What a DNS server says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Says {
    /// There is no such name.
    Nothing,
    /// It cannot tell.
    Failure,
    /// The name has no addresses.
    Empty,
    /// Nothing at all.
    Silent,
    /// This address.
    Address(Ipv4Addr),
}

/// A DNS server.
pub struct Dns {
    /// Where it is asked.
    pub address: Ipv4Addr,
    says: Arc<Mutex<Says>>,
    asked: Arc<AtomicUsize>,
}

impl Dns {
    /// At an address of its own; nothing where port 53 is not to be had, and why is said.
    pub fn start(says: Says) -> Option<Self> {
        let process = std::process::id().to_be_bytes();
        let socket = (0..200).find_map(|n| {
            let address = Ipv4Addr::new(127, 53, process[3], n);
            Some((address, UdpSocket::bind(SocketAddr::from((address, 53))).ok()?))
        });
        let Some((address, socket)) = socket else {
            eprintln!("skipped: port 53 cannot be had here");
            return None;
        };
        let this = Self { address, says: Arc::new(Mutex::new(says)), asked: Arc::default() };
        let (says, asked) = (Arc::clone(&this.says), Arc::clone(&this.asked));
        std::thread::spawn(move || {
            let mut space = [0; 512];
            while let Ok((length, from)) = socket.recv_from(&mut space) {
                asked.fetch_add(1, Ordering::SeqCst);
                let says = *says.lock().expect("no thread panics with the lock");
                if let Some(answer) = answer(&space[..length], says) {
                    let _ = socket.send_to(&answer, from);
                }
            }
        });
        Some(this)
    }

    /// From now on it says something else.
    pub fn say(&self, says: Says) {
        *self.says.lock().expect("no thread panics with the lock") = says;
    }

    /// How many questions it got; each lookup is two, for either kind of address.
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

fn answer(question: &[u8], says: Says) -> Option<Vec<u8>> {
    let name = question[12..].iter().position(|length| *length == 0)? + 13;
    let is_a = question.get(name..name + 2)? == [0, 1];
    let (code, address) = match says {
        Says::Silent => return None,
        Says::Nothing => (3, None),
        Says::Failure => (2, None),
        Says::Empty => (0, None),
        Says::Address(address) => (0, Some(address).filter(|_| is_a)),
    };
    let count = u8::from(address.is_some());
    let mut out = [&question[..2], &[0x81, 0x80 | code, 0, 1, 0, count, 0, 0, 0, 0]].concat();
    out.extend_from_slice(&question[12..name + 4]);
    if let Some(address) = address {
        out.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4]);
        out.extend_from_slice(&address.octets());
    }
    Some(out)
}
