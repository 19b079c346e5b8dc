//! samewire under callgrind, controlled from outside.

use crate::profile::Profile;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Functions of the allocator that return memory.
pub(crate) const ALLOCATES: &[&str] = &[
    "_rjem_malloc",
    "_rjem_mallocx",
    "_rjem_calloc",
    "_rjem_rallocx",
    "_rjem_realloc",
];

/// Functions that only pass a call of the allocator on: their cost counts for their callers.
const LIBRARIES: [&str; 4] = ["alloc::*", "<alloc::*", "bytes::*", "<bytes::*"];

/// Settings by which samewire probes the engine once, before the count, with time enough on a busy machine: the number
/// of later probes would depend on how long a run takes.
const PROBED_ONCE: [(&str, &str); 2] = [
    ("SAMEWIRE_HEALTH__INTERVAL", "86400"),
    ("SAMEWIRE_HEALTH__TIMEOUT", "60"),
];

/// Setting by which the allocator collects by bytes instead of by the clock: that made 2 % of a small answer's instructions
/// chance.
const COLLECTED_BY_BYTES: (&str, &str) = ("_RJEM_MALLOC_CONF", "experimental_tcache_gc:false");

/// Name of the main thread's file in the first dump.
const MAIN_THREAD: &str = "out.1-01";

/// Part of the log's line that says that the engine has been probed.
const READY: &str = r#""message":"upstream is ready""#;

/// Running program.
pub(crate) struct Callgrind {
    child: Child,
    address: SocketAddr,
    folder: PathBuf,
}

impl Callgrind {
    /// Starts samewire in front of an engine, and waits until it listens and knows the engine.
    pub(crate) fn start(engine: SocketAddr) -> Result<Self, String> {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("request-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder)
            .map_err(|error| format!("{}: {error}", folder.display()))?;
        let mut child = Command::new("valgrind")
            .args([
                "--tool=callgrind",
                "--compress-strings=no",
                "--compress-pos=no",
                "--separate-threads=yes",
                "--quiet",
            ])
            .args(LIBRARIES.map(|names| format!("--fn-skip={names}")))
            .arg(format!(
                "--callgrind-out-file={}",
                folder.join("out").display()
            ))
            .arg(program())
            .args([
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--admin-listen",
                "127.0.0.1:0",
                "--threads",
                "1",
            ])
            .args([
                "--engine",
                "vllm",
                "--upstream",
                &format!("http://{engine}/v1"),
            ])
            .envs(PROBED_ONCE)
            .envs([COLLECTED_BY_BYTES])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("valgrind: {error} (Debian's package valgrind has it)"))?;
        let mut log = BufReader::new(child.stderr.take().ok_or("no log")?);
        let mut line = String::new();
        let mut listening = None;
        let address = loop {
            line.clear();
            if log
                .read_line(&mut line)
                .map_err(|error| error.to_string())?
                == 0
            {
                return Err("samewire ended before its engine was ready".to_owned());
            }
            listening = listening.or_else(|| proxy_address(&line));
            if let Some(address) = listening
                && line.contains(READY)
            {
                break address;
            }
        };
        // The log goes on; nobody may block on it.
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Ok(Self {
            child,
            address,
            folder,
        })
    }

    /// Address for clients.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Forgets what has been counted so far.
    pub(crate) fn forget(&self) -> Result<(), String> {
        self.command("zero")
    }

    /// Returns what all threads but the main one have counted since: the main one serves nothing, and does by the
    /// clock what it does.
    pub(crate) fn profile(&self) -> Result<Profile, String> {
        self.command("dump")?;
        let failed = |error: std::io::Error| format!("{}: {error}", self.folder.display());
        let mut text = String::new();
        for entry in std::fs::read_dir(&self.folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with("out.1-") && name != MAIN_THREAD {
                text.push_str(&std::fs::read_to_string(&path).map_err(failed)?);
            }
        }
        let profile = Profile::read(&text);
        if profile.instructions() == 0 {
            return Err(format!(
                "{}: callgrind has counted nothing",
                self.folder.display()
            ));
        }
        Ok(profile)
    }

    fn command(&self, word: &str) -> Result<(), String> {
        let output = Command::new("vgdb")
            .arg(format!("--pid={}", self.child.id()))
            .arg(word)
            .output()
            .map_err(|error| format!("vgdb: {error}"))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(format!(
                "vgdb {word}: {}",
                String::from_utf8_lossy(&output.stderr)
            )),
        }
    }
}

impl Drop for Callgrind {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Returns the program to measure: that of the variable SAMEWIRE_BIN, or the one built with this bench.
fn program() -> OsString {
    std::env::var_os("SAMEWIRE_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_samewire").into())
}

/// Returns the clients' address from the line of the log that tells it.
fn proxy_address(line: &str) -> Option<SocketAddr> {
    let rest = line
        .strip_prefix('{')
        .filter(|line| line.contains(r#""listener":"proxy""#))?;
    let address = rest.split("127.0.0.1:").nth(1)?;
    let port: String = address.chars().take_while(char::is_ascii_digit).collect();
    Some(SocketAddr::from(([127, 0, 0, 1], port.parse().ok()?)))
}
