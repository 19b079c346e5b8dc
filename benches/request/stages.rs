//! Where the instructions of a request go.

use crate::callgrind::ALLOCATES;
use crate::profile::{Counts, Profile};

/// Stages of a request, each with parts of the names of its functions. A stage contains those that it calls.
const STAGES: &[(&str, &[&str])] = &[
    (
        "connection: all of a connection's work",
        &["samewire::server::net::accept::serve_connection::{{closure}}"],
    ),
    (
        "head: read and parsed",
        &["hyper::proto::h1::role::Server as hyper::proto::h1::Http1Transaction>::parse"],
    ),
    (
        "routes: from the router to the answer's head",
        &["<F as axum::handler::Handler<(M,T1,T2),S>>::call"],
    ),
    (
        "admission: keys, limits, body",
        &["samewire::server::request_body::RequestBody::read"],
    ),
    (
        "request: read and checked",
        &[
            "samewire::request::ChatRequest::read_for",
            "samewire::request::ChatRequest::parse",
        ],
    ),
    ("plan: adapted to the engine", &["samewire::plan::plan"]),
    (
        "send: connection, head and body to the engine",
        &["samewire::upstream::client::Client::send"],
    ),
    (
        "answer: head of the engine",
        &["samewire::upstream::http1::ResponseHead::take"],
    ),
    (
        "rewrite: bytes of the engine to canonical bytes",
        &[
            "samewire_core::wire::rewriter::AnswerReader::push",
            "samewire_core::wire::rewriter::FrameReader::read",
        ],
    ),
    (
        "relay: what comes from the engine",
        &["samewire::server::relay::Relay::poll_fill"],
    ),
    (
        "head: of the answer, written",
        &["hyper::proto::h1::role::Server as hyper::proto::h1::Http1Transaction>::encode"],
    ),
    (
        "record: log, metrics and trace",
        &["<samewire::server::record::Record as core::ops::drop::Drop>::drop"],
    ),
    (
        "log: in it",
        &["Layered<L,S> as tracing_core::subscriber::Subscriber>::event"],
    ),
    (
        "drop: of the relay, record and all",
        &["core::ptr::drop_in_place<samewire::server::relay::Relay>"],
    ),
    (
        "allocator: in all of these",
        &[
            "_rjem_malloc",
            "_rjem_sdallocx",
            "_rjem_rallocx",
            "do_rallocx",
        ],
    ),
];

/// Events that are counted by calls rather than by instructions, each with parts of the names of its functions.
const CALLS: &[(&str, &[&str])] = &[
    (
        "clock readings",
        &["std::sys::pal::unix::time::Timespec>::now"],
    ),
    (
        "wake-ups of tasks",
        &["tokio::runtime::task::waker::wake_by_"],
    ),
    (
        "timers set or moved",
        &[
            "tokio::runtime::time::Handle::reregister",
            "TimerEntry::reset",
        ],
    ),
    (
        "polls of the event loop",
        &["mio::poll::Poll::poll", "epoll_wait"],
    ),
];

/// Number of functions that are listed by their own instructions.
const HEAVIEST: usize = 60;

/// Prints the stages, and the functions with the most instructions in themselves.
pub(crate) fn print(profile: &Profile, units: f64) {
    let part = |count: u64| 100.0 * count as f64 / profile.instructions() as f64;
    println!("  {:>12} {:>6} {:>9}  stage", "instructions", "%", "calls");
    for (name, parts) in STAGES {
        let counts = profile.sum(parts);
        let all = counts.with_callees;
        println!(
            "  {:>12.0} {:>6.1} {:>9.2}  {name}",
            all as f64 / units,
            part(all),
            counts.calls as f64 / units
        );
    }
    for (name, parts) in CALLS {
        println!(
            "  {:>12} {:>6} {:>9.2}  {name}",
            "",
            "",
            profile.sum(parts).calls as f64 / units
        );
    }
    let list = |title: &str, key: fn(&Counts) -> u64| {
        println!("  {title:>12} {:>6} {:>9}  function", "%", "calls");
        for (name, counts) in profile.heaviest(HEAVIEST, key) {
            let count = key(&counts);
            let (each, calls) = (count as f64 / units, counts.calls as f64 / units);
            println!(
                "  {each:>12.0} {:>6.1} {calls:>9.2}  {}",
                part(count),
                shortened(name)
            );
        }
    };
    list("own", |counts| counts.own);
    list("with callees", |counts| counts.with_callees);
    print_calls(
        "allocations",
        &profile.callers(|name| ALLOCATES.contains(&name)),
        units,
    );
}

/// Prints who calls the functions whose names contain `name`.
pub(crate) fn print_callers(profile: &Profile, units: f64, name: &str) {
    print_calls(
        "calls",
        &profile.callers(|called| called.contains(name)),
        units,
    );
}

fn print_calls(title: &str, callers: &[(&str, u64)], units: f64) {
    println!("  {title:>12}  caller");
    for (name, count) in callers.iter().take(HEAVIEST) {
        println!("  {:>12.2}  {}", *count as f64 / units, shortened(name));
    }
}

fn shortened(name: &str) -> String {
    name.chars().take(110).collect()
}
