//! The worked examples of the Messages format through the whole proxy, with the status and headers that only HTTP has.

use crate::messages::{fault, post, sent};
use crate::sim::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;

/// Script of the engine's next answer; the requests of these tests are sent one after the other.
type Next = Arc<Mutex<Script>>;

/// Worked example, as read from its file.
struct Vector(Value);

impl Vector {
    fn all() -> Vec<Self> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/vectors");
        let paths = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let mut paths: Vec<_> = paths
            .filter(|path| {
                path.file_name()
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .starts_with("msg-")
            })
            .collect();
        paths.sort();
        paths
            .iter()
            .map(|path| {
                Self(serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap())
            })
            .collect()
    }

    fn named(start: &str) -> Self {
        Self::all()
            .into_iter()
            .find(|vector| vector.text("name").starts_with(start))
            .unwrap()
    }

    fn text(&self, key: &str) -> &str {
        self.0[key].as_str().unwrap_or_default()
    }

    /// Returns what vectors must share to be played by one samewire.
    fn world(&self) -> (String, String, u64) {
        let context = self.0["upstream_context"].as_u64().unwrap_or(0);
        (
            self.text("engine").to_owned(),
            self.text("upstream_api").to_owned(),
            context,
        )
    }

    /// Returns the engine's answer, with this body.
    fn script(&self, body: &str) -> Script {
        let headers = self.0["upstream_headers"].as_object().unwrap().iter();
        let lines: String = headers
            .map(|(name, value)| format!("{name}: {}\r\n", value.as_str().unwrap()))
            .collect();
        let status = &self.0["upstream_status"];
        let head = format!("HTTP/1.1 {status} X\r\n{lines}transfer-encoding: chunked\r\n\r\n");
        Script::new()
            .raw(head)
            .chunk(body)
            .end()
            .close(CloseKind::Fin)
    }

    /// Returns the expected output for the client: the text of a stream, or the text of an object.
    fn expected(&self) -> String {
        match self.0["expected"].as_array() {
            Some(lines) => lines
                .iter()
                .map(|line| format!("{}\n", line.as_str().unwrap()))
                .collect(),
            None => self.0["expected_body"].to_string(),
        }
    }
}

/// Replaces what differs from run to run: signatures of samewire's own, and the id of the request.
fn settled(text: &str, request_id: &str) -> String {
    let mut pieces = text.split(r#""signature":"swt1."#);
    let first = pieces.next().unwrap().to_owned();
    let behind = |piece: &str| piece.split_once('"').unwrap().1.to_owned();
    let text = pieces.fold(first, |all, piece| {
        all + r#""signature":"sealed""# + &behind(piece)
    });
    text.replace(
        &format!(r#""request_id":"{request_id}""#),
        r#""request_id":null"#,
    )
}

/// Checks an answer against the vector.
fn check(vector: &Vector, answer: &Answer) -> Result<(), String> {
    let request_id = answer
        .head
        .header("request-id")
        .expect("every answer has an id");
    let (got, expected) = (
        settled(answer.text(), request_id),
        settled(&vector.expected(), ""),
    );
    let status = vector.0["expected_status"].as_u64().unwrap();
    let is_equal = match vector.0["expected"].is_array() {
        true => got == expected,
        false => {
            serde_json::from_str::<Value>(&got).unwrap()
                == serde_json::from_str::<Value>(&expected).unwrap()
        }
    };
    fail_if!(
        u64::from(answer.head.status) != status || !is_equal,
        "{status} {expected}\ngot {} {got}",
        answer.head.status
    );
    if status >= 400 {
        fault(answer);
    }
    for (name, value) in vector.0["expected_headers"]
        .as_object()
        .into_iter()
        .flatten()
    {
        fail_if!(
            answer.head.header(name) != value.as_str(),
            "{name}: {value}, got {:?}",
            answer.head.header(name)
        );
    }
    Ok(())
}

/// Starts samewire in front of an engine that plays the next answer.
async fn world((engine, api, context): &(String, String, u64)) -> (World, Next) {
    let next = Next::default();
    let script = Arc::clone(&next);
    let played = Engine::answering(move |_| script.lock().unwrap().clone()).await;
    if *context > 0 {
        let list = json!({"object": "list", "data": [{"id": "openai/gpt-oss-120b", "object": "model", "created": 1, "owned_by": engine, "max_model_len": context}]});
        played.set_models(Script::ok(list));
    }
    let setup = Setup::new().set("engine_errors=pass").allow_errors();
    let mode = if api == "messages" { "native" } else { "chat" };
    let setup = setup.upstream_keys(&format!("messages = \"{mode}\""));
    let world = World::start_as(played, engine, setup).await;
    world.wait_until_up().await;
    (world, next)
}

/// Plays one vector, with these bytes of the engine.
async fn play(vector: &Vector, world: &World, next: &Next, script: Script) -> Result<(), String> {
    let n = world.engine.attempt_count();
    *next.lock().unwrap() = script;
    check(
        vector,
        &world.request(&post(vector.0["request"].to_string())).await,
    )?;
    if vector.0["engine_request"].is_null() {
        return if world.engine.attempt_count() == n {
            Ok(())
        } else {
            Err("it reached the engine".to_owned())
        };
    }
    let got = sent(&world.engine, n);
    // Signatures of the examples are not of this process's keys; `replay` has such histories.
    let is_readable = vector.0["engine_request_seal"].is_null();
    fail_if!(
        is_readable && got != vector.0["engine_request"],
        "the engine got {got}, not {}",
        vector.0["engine_request"]
    );
    Ok(())
}

#[tokio::test]
async fn every_example_through_the_proxy() {
    let mut groups: BTreeMap<_, Vec<Vector>> = BTreeMap::new();
    for vector in Vector::all() {
        groups.entry(vector.world()).or_default().push(vector);
    }
    let (mut count, mut wrong) = (0, Vec::new());
    for (key, vectors) in groups {
        let (world, next) = world(&key).await;
        for vector in vectors {
            count += 1;
            let mut scripts = vec![("", vector.script(vector.text("input")))];
            if vector.0["idempotent"] == json!(true) {
                scripts.push((" again", vector.script(&vector.expected())));
            }
            for (what, script) in scripts {
                let played = play(&vector, &world, &next, script).await;
                wrong.extend(
                    played
                        .err()
                        .map(|why| format!("{}{what}: {why}", vector.text("name"))),
                );
            }
        }
        world.end().await;
    }
    assert!(count >= 37, "only {count} examples");
    assert!(
        wrong.is_empty(),
        "{} of {count} differ:\n{}",
        wrong.len(),
        wrong.join("\n\n")
    );
}

/// The same answer of both kinds of engine, however it is cut, is the same bytes.
#[tokio::test]
async fn fault_u25_both_shapes_give_the_same_bytes_however_they_are_cut() {
    let (one, other) = (Vector::named("msg-040"), Vector::named("msg-041"));
    assert_eq!(one.expected(), other.expected());
    for vector in [one, other] {
        let (world, next) = world(&vector.world()).await;
        for every in [1, 2, 7, 64, 1000] {
            let played = play(
                &vector,
                &world,
                &next,
                vector.script(vector.text("input")).split(every),
            )
            .await;
            assert_eq!(
                played,
                Ok(()),
                "{} cut after {every} bytes",
                vector.text("name")
            );
        }
        world.end().await;
    }
}
