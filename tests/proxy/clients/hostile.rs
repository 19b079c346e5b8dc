//! Upper bound of the memory for any single request (property P15): its body, the largest allowed answer, and a
//! mebibyte.

use crate::sim::prelude::*;
use std::fmt::Write as _;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

/// Size of the bodies. Without optimisation, reading the largest that is allowed takes too long.
const BODY: u64 = if cfg!(debug_assertions) {
    16 << 20
} else {
    32 << 20
};
/// `max_answer_bytes` in these tests.
const ANSWER: u64 = 8 << 20;
const MIB: u64 = 1 << 20;
/// Allowance for pages kept by the allocator, threads that had not served before, and socket buffers.
const MARGIN: u64 = 8 << 20;

/// Returns the peak of resident memory. With `again`, the peak is reset first.
fn peak(world: &World, again: bool) -> u64 {
    let folder = format!("/proc/{}", world.samewire.pid());
    if again {
        std::fs::write(format!("{folder}/clear_refs"), "5").expect("its own user may");
    }
    let status = std::fs::read_to_string(format!("{folder}/status")).expect("it lives");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .expect("a peak");
    line.split_whitespace()
        .next()
        .and_then(|kib| kib.parse::<u64>().ok())
        .expect("a number")
        * 1024
}

fn filled(start: &str, piece: &str, end: &str) -> String {
    let count = (BODY as usize - start.len() - end.len()) / piece.len();
    let mut body = String::with_capacity(BODY as usize);
    body.push_str(start);
    for _ in 0..count {
        body.push_str(piece);
    }
    let _ = write!(body, "{end}");
    body
}

/// Returns requests of this size, each with as much as possible of one thing.
fn bodies() -> Vec<(&'static str, String)> {
    let chat = r#"{"model":"m","messages":[{"role":"user","content":"x"}],"#;
    vec![
        (
            "text",
            filled(
                r#"{"model":"m","messages":[{"role":"user","content":""#,
                "text ",
                r#""}]}"#,
            ),
        ),
        (
            "escapes",
            filled(
                r#"{"model":"m","messages":[{"role":"user","content":""#,
                r"\u00e9",
                r#""}]}"#,
            ),
        ),
        (
            "messages",
            filled(
                r#"{"model":"m","messages":["#,
                r#"{"role":"user","content":""},"#,
                r#"{"role":"user","content":"x"}]}"#,
            ),
        ),
        ("depth", filled(chat, "[", "")),
        ("members", filled(chat, r#""a":0,"#, r#""b":1}"#)),
        ("numbers", filled(&format!(r#"{chat}"x":["#), "1,", "1]}")),
        (
            "stops",
            filled(&format!(r#"{chat}"stop":["#), r#""","#, r#"""]}"#),
        ),
        (
            "tools",
            filled(&format!(r#"{chat}"tools":["#), "{},", "{}]}"),
        ),
        (
            "bias",
            filled(
                &format!(r#"{chat}"logit_bias":{{"#),
                r#""1":1,"#,
                r#""2":2}}"#,
            ),
        ),
        ("spaces", filled(chat, " ", r#""n":1}"#)),
        ("one number", filled(&format!(r#"{chat}"seed":"#), "1", "}")),
    ]
}

/// Returns Responses requests with as much as possible of what their answers repeat.
fn repeated() -> Vec<(&'static str, String)> {
    let start = r#"{"model":"m","input":"x","instructions":""#;
    let tool = r#"{"model":"m","input":"x","tools":[{"type":"function","name":"f","description":""#;
    vec![
        ("instructions", filled(start, "text ", "\"}")),
        ("tools", filled(tool, "text ", r#"","parameters":{}}]}"#)),
    ]
}

/// Returns bodies of small elements only, for every part of a request that is parsed element by element or
/// rewritten.
fn small_things() -> Vec<(&'static str, &'static str, String)> {
    const CHAT: &str = "/v1/chat/completions";
    let stream = r#"{"model":"m","stream":true,"#;
    let user = format!(r#"{stream}"messages":[{{"role":"user","content":["#);
    let said = format!(r#"{stream}"messages":[{{"role":"user","content":"x"}}],"#);
    let long = "a".repeat(40_000);
    let message = format!(
        r#"{{"role":"user","content":[{{"type":"text","text":"{}"}}]}},"#,
        "a".repeat(3_400)
    );
    let members = format!(
        r#"{{"role":"user","content":[],{}"z":0}},"#,
        r#""a":0,"#.repeat(4_000)
    );
    let wide = format!(
        r#"{{"type":"function","function":{{"name":"f","parameters":{{"properties":{{{}"#,
        { format!(r#"{}"z":{{}}}}}}}}}},"#, r#""a":{},"#.repeat(5_000)) }
    );
    let tool =
        format!(r#"{{"type":"function","function":{{"name":"f","description":"{long}"}}}},"#);
    let end_of_list = r#"0]}"#;
    let chat = |name, start: &str, piece: &str, end| (CHAT, name, filled(start, piece, end));
    vec![
        chat(
            "parts",
            &user,
            r#"{"type":"text","text":"a"},"#,
            r#"{"type":"text","text":"a"}]}]}"#,
        ),
        chat(
            "parts of a tool's text",
            &user.replace("\"user\"", "\"tool\""),
            r#"{"type":"text","text":"a"},"#,
            r#"{"type":"text","text":"a"}]}]}"#,
        ),
        chat(
            "parts of other names",
            &user,
            r#"{"type":"input_text","text":"a"},"#,
            r#"{"type":"x","text":"a"}]}]}"#,
        ),
        chat(
            "addresses",
            &user,
            r#"{"image_url":"http://a.b/"},"#,
            r#"{"image_url":"http://a.b/"}]}]}"#,
        ),
        chat(
            "addresses that are spelled otherwise",
            &user,
            r#"{"image_url":"http://a.b"},"#,
            r#"{"image_url":"http://a.b"}]}]}"#,
        ),
        chat("empty parts", &user, "{},", "{}]}]}"),
        chat(
            "messages of parts",
            &format!(r#"{stream}"messages":["#),
            &message,
            r#"{"role":"user","content":"x"}]}"#,
        ),
        chat(
            "members of messages",
            &format!(r#"{stream}"messages":["#),
            &members,
            r#"{"role":"user","content":"x"}]}"#,
        ),
        chat(
            "calls",
            &format!(r#"{stream}"messages":[{{"role":"assistant","tool_calls":["#),
            r#"{"function":{"arguments":""}},"#,
            r#"{"function":{"arguments":""}}]},{"role":"user","content":"x"}]}"#,
        ),
        chat(
            "long tools",
            &format!("{said}\"tools\":["),
            &tool,
            r#"{"type":"function"}]}"#,
        ),
        chat(
            "wide tools",
            &format!("{said}\"tools\":["),
            &wide,
            r#"{"type":"function"}]}"#,
        ),
        chat(
            "functions",
            &format!("{said}\"functions\":["),
            r#"{"name":"f"},"#,
            r#"{"name":"f"}]}"#,
        ),
        chat("a long key", &format!("{said}\""), "k", r#"":1}"#),
        chat(
            "nests",
            &format!("{said}\"x\":["),
            &format!("{}{},", "[".repeat(120), "]".repeat(120)),
            end_of_list,
        ),
        chat(
            "members of a schema",
            &format!(r#"{said}"response_format":{{"#),
            r#""a":0,"#,
            r#""b":1}}"#,
        ),
        chat(
            "an effort",
            &format!(r#"{said}"reasoning":{{"effort":""#),
            "high",
            "\"}}",
        ),
        (
            "/v1/completions",
            "tokens",
            filled(&format!(r#"{stream}"prompt":["#), "1,", "1]}"),
        ),
        (
            "/v1/completions",
            "prompts",
            filled(&format!(r#"{stream}"prompt":["#), r#""","#, r#"""]}"#),
        ),
    ]
}

/// Sends this body to a fresh samewire, so that memory of other requests does not count. Returns the status and the
/// growth of memory at its peak.
async fn grown_by(engine: &str, route: &str, body: String) -> (Option<u16>, u64) {
    let setup = Setup::new().config(&format!("[limits]\nmax_answer_bytes = {ANSWER}"));
    let world = World::start_as(
        Engine::script(Script::answer("a", 2)),
        engine,
        setup.allow_errors(),
    )
    .await;
    // A first request, so that memory allocated once is not counted.
    world.stream("").await;
    let before = peak(&world, true);
    // Without optimisation and beside other tests, reading such a body takes many seconds.
    let mut client = Client::connect(world.proxy())
        .await
        .with_patience(8 * PATIENCE);
    // The request may be refused before its end.
    client.try_send(&Request::post(route, body).bytes()).await;
    let status = client.try_answer().await.map(|answer| answer.head.status);
    let grown = peak(&world, false).saturating_sub(before);
    world.end().await;
    (status, grown)
}

#[tokio::test]
async fn no_request_takes_more_than_its_body_and_an_answer() {
    // A body that is changed is copied once. A Responses request is in memory as received, as chat, and as stored;
    // its response repeats some of it, and is sent and stored at once.
    let text = |name: &str| ["text", "depth", "spaces", "one number"].contains(&name);
    let responses = bodies().into_iter().filter(|(name, _)| text(name));
    let responses = responses.map(|(name, body)| (name, body.replacen("messages", "input", 1)));
    let chats = bodies()
        .into_iter()
        .map(|(name, body)| ("/v1/chat/completions", 2, name, body));
    let inputs = responses.map(|(name, body)| ("/v1/responses", 3, name, body));
    let repeated = repeated()
        .into_iter()
        .map(|(name, body)| ("/v1/responses", 6, name, body));
    for (route, times, name, body) in chats.chain(inputs).chain(repeated) {
        let length = body.len() as u64;
        let (status, grown) = grown_by("vllm", route, body).await;
        println!(
            "{route}, {name}: {status:?}, {:.1} times its body",
            grown as f64 / length as f64
        );
        let most = times * length + ANSWER + MIB + MARGIN;
        assert!(grown <= most, "{route}, {name}: {grown} for {length}");
    }
}

/// A parsed request takes no more memory than its text, however many elements it has, and for every engine.
#[tokio::test]
async fn a_request_of_small_things_takes_its_body_twice() {
    for engine in ["vllm", "generic"] {
        for (route, name, body) in small_things() {
            let length = body.len() as u64;
            let (status, grown) = grown_by(engine, route, body).await;
            println!(
                "{engine}, {name}: {status:?}, {:.2} times its body",
                grown as f64 / length as f64
            );
            assert!(
                grown <= 2 * length + MARGIN,
                "{engine}, {name}: {grown} for {length}"
            );
        }
    }
}

#[tokio::test]
async fn fault_c46_a_message_has_an_end_of_its_parts() {
    let world = World::start(Script::answer("a", 2), Setup::new()).await;
    for (count, is_refused) in [(1 << 16, false), ((1 << 16) + 1, true), (300_000, true)] {
        let parts = vec![r#"{"type":"text","text":"a"}"#; count].join(",");
        let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":[{parts}]}}]}}"#);
        let answer = world.chat(body).await;
        assert_eq!(
            answer.head.status,
            if is_refused { 400 } else { 200 },
            "{count}: {}",
            answer.text()
        );
        if is_refused {
            assert_eq!(answer.fault().param.as_deref(), Some("messages[0].content"));
        }
    }
    world.end_after(1).await;
}

#[tokio::test]
async fn no_answer_takes_more_than_is_allowed() {
    let flood = Script::stream().then(Step::Flood {
        events: 4_000,
        size: 16 << 10,
    });
    let endless = Script::new()
        .head_sse()
        .raw(format!("{:x}\r\ndata: ", 1 << 30))
        .then(Step::Flood {
            events: 4_000,
            size: 16 << 10,
        });
    let whole = Script::new()
        .raw(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99999999\r\n\r\n{\"id\":\"",
        )
        .then(Step::Flood { events: 4_000, size: 16 << 10 });
    let responses = crate::responses::over_chat::prompt("m", r#","stream":true"#);
    // The text of a response stays in memory while its last events, which repeat it, are made.
    for (script, request, times) in [
        (flood.clone(), Request::plain(""), 1),
        (flood, responses, 4),
        (endless, Request::stream(""), 1),
        (whole, Request::plain(""), 1),
    ] {
        let setup = Setup::new().config(&format!("[limits]\nmax_answer_bytes = {ANSWER}"));
        let engine = Engine::in_turn(vec![Script::answer("a", 1), script]).await;
        let world = World::start(engine, setup.allow_errors()).await;
        world.stream("").await;
        let before = peak(&world, true);
        let answer = world.request(&request).await;
        let grown = peak(&world, false).saturating_sub(before);
        println!("{}: {}, {grown} bytes", request.path(), answer.head.status);
        assert!(grown <= times * ANSWER + MIB + MARGIN, "{grown}");
        world.end().await;
    }
}

/// Sends half of a body of this size, then leaves once all other clients have done the same.
async fn leave_behind_half_a_body(to: SocketAddr, size: usize, all: Arc<Barrier>) {
    let request = Request::chat("")
        .without("content-length")
        .header("content-length", &size.to_string());
    let mut client = Client::connect(to).await;
    // The request may be refused before that: the memory for bodies is limited.
    client
        .try_send(
            &[
                request.head_bytes(),
                b"{\"a\":\"".to_vec(),
                vec![b'x'; size / 2],
            ]
            .concat(),
        )
        .await;
    all.wait().await;
    client.leave(CloseKind::Rst);
}

#[tokio::test]
async fn floods_of_half_bodies_leave_no_memory_behind() {
    const LEFT: u64 = 24 << 20;
    let world = World::start(Script::answer("a", 2), Setup::new().allow_errors()).await;
    world.stream("").await;
    let before = world.samewire.allocated();
    for (size, clients) in [
        (60_000, 150),
        (300_000, 150),
        (1_000_000, 150),
        (4_000_000, 60),
        (200_000, 150),
        (2_000_000, 60),
    ] {
        for _ in 0..3 {
            let all = Arc::new(Barrier::new(clients));
            let mut flood = JoinSet::new();
            for _ in 0..clients {
                flood.spawn(leave_behind_half_a_body(
                    world.proxy(),
                    size,
                    Arc::clone(&all),
                ));
            }
            flood.join_all().await;
        }
    }
    let (after, start) = (world.samewire.allocated(), Instant::now());
    until_within("the memory is given back", 2 * PATIENCE, || {
        world.samewire.allocated() < before + LEFT
    })
    .await;
    println!(
        "{before} bytes before, {after} after, {} {:?} later",
        world.samewire.allocated(),
        start.elapsed()
    );
    world.end().await;
}
