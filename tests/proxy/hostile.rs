//! What one request may cost, whatever it is (property P15): its body, as much as an answer may have, and a mebibyte.

use crate::sim::{Client, Engine, Request, Script, Setup, Step, World};
use std::fmt::Write as _;

const BODY: u64 = 32 << 20;
/// `max_answer_bytes` here.
const ANSWER: u64 = 8 << 20;
const MIB: u64 = 1 << 20;
/// Pages that the allocator keeps, threads that had not served before, buffers of sockets.
const MARGIN: u64 = 8 << 20;

/// The largest that it has been, and from now on.
fn peak(world: &World, again: bool) -> u64 {
    let folder = format!("/proc/{}", world.samewire.pid());
    if again {
        std::fs::write(format!("{folder}/clear_refs"), "5").expect("its own user may");
    }
    let status = std::fs::read_to_string(format!("{folder}/status")).expect("it lives");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).expect("a number") * 1024
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

/// Requests of the largest size allowed, each with as much as there can be of something.
fn bodies() -> Vec<(&'static str, String)> {
    let chat = r#"{"model":"m","messages":[{"role":"user","content":"x"}],"#;
    vec![
        ("text", filled(r#"{"model":"m","messages":[{"role":"user","content":""#, "text ", r#""}]}"#)),
        ("escapes", filled(r#"{"model":"m","messages":[{"role":"user","content":""#, r"\u00e9", r#""}]}"#)),
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
        ("stops", filled(&format!(r#"{chat}"stop":["#), r#""","#, r#"""]}"#)),
        ("tools", filled(&format!(r#"{chat}"tools":["#), "{},", "{}]}")),
        ("bias", filled(&format!(r#"{chat}"logit_bias":{{"#), r#""1":1,"#, r#""2":2}}"#)),
        ("spaces", filled(chat, " ", r#""n":1}"#)),
        ("one number", filled(&format!(r#"{chat}"seed":"#), "1", "}")),
    ]
}

/// Responses requests with as much as there can be of what their answers repeat.
fn repeated() -> Vec<(&'static str, String)> {
    let start = r#"{"model":"m","input":"x","instructions":""#;
    let tool = r#"{"model":"m","input":"x","tools":[{"type":"function","name":"f","description":""#;
    vec![
        ("instructions", filled(start, "text ", "\"}")),
        ("tools", filled(tool, "text ", r#"","parameters":{}}]}"#)),
    ]
}

#[tokio::test]
async fn no_request_takes_more_than_its_body_and_an_answer() {
    let setup = Setup::new().config(&format!("[limits]\nmax_answer_bytes = {ANSWER}"));
    let world = World::start(Engine::script(Script::answer("a", 2)).await, setup.faulty()).await;
    // What is patched is written anew, once. A Responses request is there as it came, as chat, and as what is stored of it;
    // its answer repeats some of it.
    let text = |name: &str| ["text", "depth", "spaces", "one number"].contains(&name);
    let responses = bodies().into_iter().filter(|(name, _)| text(name));
    let responses = responses.map(|(name, body)| (name, body.replacen("messages", "input", 1)));
    let chats = bodies().into_iter().map(|(name, body)| ("/v1/chat/completions", 2, name, body));
    let inputs = responses.map(|(name, body)| ("/v1/responses", 3, name, body));
    let repeated = repeated().into_iter().map(|(name, body)| ("/v1/responses", 5, name, body));
    for (route, times, name, body) in chats.chain(inputs).chain(repeated) {
        let (before, length) = (world.samewire.rss(), body.len() as u64);
        peak(&world, true);
        let mut client = Client::connect(world.proxy()).await;
        // It may be refused before its end.
        client.try_send(&Request::post(route, body).bytes()).await;
        let status = client.try_answer().await.map(|answer| answer.head.status);
        let grown = peak(&world, false).saturating_sub(before);
        println!("{route}, {name}: {status:?}, {:.1} times its body", grown as f64 / length as f64);
        let most = times * length + ANSWER + MIB + MARGIN;
        assert!(grown <= most, "{route}, {name}: {grown} for {length}");
    }
    world.end().await;
}

#[tokio::test]
async fn no_answer_takes_more_than_is_allowed() {
    let setup = Setup::new().config(&format!("[limits]\nmax_answer_bytes = {ANSWER}"));
    let flood = Script::new().head_sse().role().then(Step::Flood { events: 4_000, size: 16 << 10 });
    let endless = Script::new()
        .head_sse()
        .raw(format!("{:x}\r\ndata: ", 1 << 30))
        .then(Step::Flood { events: 4_000, size: 16 << 10 });
    let whole = Script::new()
        .raw(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99999999\r\n\r\n{\"id\":\"",
        )
        .then(Step::Flood { events: 4_000, size: 16 << 10 });
    let engine = Engine::in_turn(vec![Script::answer("a", 1), flood.clone(), flood, endless, whole]).await;
    let world = World::start(engine, setup.faulty()).await;
    world.ask(&Request::stream("")).await;
    let responses = crate::responses::prompt("m", r#","stream":true"#);
    // What a response has said is in memory while its end, which says it again, is made.
    for (request, times) in
        [(Request::plain(""), 1), (responses, 4), (Request::stream(""), 1), (Request::plain(""), 1)]
    {
        let before = world.samewire.rss();
        peak(&world, true);
        let answer = world.ask(&request).await;
        let grown = peak(&world, false).saturating_sub(before);
        println!("{}: {}, {grown} bytes", request.path(), answer.head.status);
        assert!(grown <= times * ANSWER + MIB + MARGIN, "{grown}");
    }
    world.end().await;
}
