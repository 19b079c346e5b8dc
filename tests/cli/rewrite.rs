//! `samewire rewrite` as users run it: the built binary in a pipe, over every worked example and every capture.

use crate::cases::{self, Case, captures, fixtures, message_vectors, vectors};
use crate::folder::Folder;
use samewire::engine::named;
use samewire::wire::{Api, Ending};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Limit of every single wait.
const PATIENCE: Duration = Duration::from_secs(15);

fn rewrite(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_samewire"));
    command.arg("rewrite").args(arguments);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Result of a run: exit code, stdout, stderr.
type Ran = (i32, String, String);

/// Writes `input` to the command and waits for its end.
fn run(command: &mut Command, input: &[u8]) -> Ran {
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // The command may end without having read everything.
    let writing = std::thread::spawn(move || _ = stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    writing.join().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

/// Rewrites an answer, which must succeed. Returns stdout and stderr.
fn rewritten(arguments: &[&str], input: impl AsRef<[u8]>) -> (String, String) {
    let (code, out, told) = run(&mut rewrite(arguments), input.as_ref());
    assert_eq!(code, 0, "{out} {told}");
    (out, told)
}

/// Returns options as `--set` arguments; nested names are joined by dots.
fn assignments(prefix: &str, options: &Value) -> Vec<String> {
    let one = |(key, value): (&String, &Value)| match value {
        Value::Object(_) => assignments(&format!("{prefix}{key}."), value),
        Value::String(text) => vec![format!("--set={prefix}{key}={text}")],
        value => vec![format!("--set={prefix}{key}={value}")],
    };
    options.as_object().unwrap().iter().flat_map(one).collect()
}

fn run_case(case: &Case, folder: &Folder) -> Ran {
    let request = folder.file("request.json", &case.request.to_string());
    let engine = named(&case.engine).map_or("auto", |engine| engine.name);
    let (now, status) = (case.now.to_string(), case.status.to_string());
    let api = if case.api == Api::Chat {
        "chat"
    } else {
        "completions"
    };
    let eof = if case.ending == Ending::Reset {
        "reset"
    } else {
        "clean"
    };
    let mut command = rewrite(&[
        "--request",
        &request,
        "--engine",
        engine,
        "--status",
        &status,
        "--eof",
        eof,
    ]);
    command.args(["--api", api, "--to", api, "--now", &now, "--ids", "counter"]);
    command.args(assignments("", &case.options));
    run(&mut command, &case.input)
}

/// Returns JSON text without white space outside strings.
fn compact(json: &str) -> String {
    let (mut string, mut escaped) = (false, false);
    let kept = |letter: &char| {
        let kept = string || !letter.is_whitespace();
        string ^= *letter == '"' && !escaped;
        escaped = *letter == '\\' && !escaped;
        kept
    };
    json.chars().filter(kept).collect()
}

/// Returns the status and body that a vector expects, with the key order kept.
fn expected(name: &str, vector: &Value) -> (u64, String) {
    #[derive(serde::Deserialize)]
    struct Whole<'a> {
        #[serde(borrow)]
        expected_body: Option<&'a serde_json::value::RawValue>,
    }
    let text =
        std::fs::read_to_string(fixtures().join("vectors").join(format!("{name}.json"))).unwrap();
    let whole: Whole<'_> = serde_json::from_str(&text).unwrap();
    let body = match vector["expected"].as_array() {
        Some(lines) => lines
            .iter()
            .map(|line| format!("{}\n", line.as_str().unwrap()))
            .collect(),
        None => compact(whole.expected_body.unwrap().get()),
    };
    (vector["expected_status"].as_u64().unwrap(), body)
}

#[test]
fn every_vector_byte_for_byte() {
    let folder = Folder::new();
    let mut wrong = Vec::new();
    let vectors = vectors();
    for (case, vector) in &vectors {
        let (status, body) = expected(&case.name, vector);
        let is_error = status != 200 || body.contains("event: error\n");
        let (code, got, told) = run_case(case, &folder);
        if got != body || code != i32::from(is_error) || !told.is_empty() {
            wrong.push(format!(
                "{}: exit code {code} {told}\n  expected {body}\n  got      {got}",
                case.name
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} differ:\n{}",
        wrong.len(),
        vectors.len(),
        wrong.join("\n")
    );
}

#[test]
fn every_capture_as_kept() {
    let folder = Folder::new();
    let mut wrong = Vec::new();
    // One request to an engine had two choices, which samewire never sends: one answer holds one choice.
    // Embeddings are no API of the command.
    let is_asked = |fixture: &cases::Fixture| {
        let name = &fixture.case.name;
        name != "transformers/n2-one" && !name.ends_with("/error-no-embeddings-rust")
    };
    for fixture in captures().into_iter().filter(is_asked) {
        let read = |name: &&str| std::fs::read_to_string(fixture.folder.join(name)).ok();
        let kept = [
            "chat.sse",
            "chat.json",
            "completions.sse",
            "completions.json",
        ]
        .iter()
        .find_map(read);
        let error = || {
            read(&"error.json")
                .unwrap()
                .split_once('\n')
                .unwrap()
                .1
                .trim_end()
                .to_owned()
        };
        let kept = kept.unwrap_or_else(error);
        // The kept text has the engine's own words.
        let options = serde_json::json!({"engine_errors": "pass"});
        let (_, got, told) = run_case(
            &Case {
                options,
                ..fixture.case.clone()
            },
            &folder,
        );
        if got != kept {
            wrong.push(format!(
                "{}: {told}\n  kept {kept}\n  got  {got}",
                fixture.case.name
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

fn text_of(path: &str) -> String {
    std::fs::read_to_string(fixtures().join(path)).unwrap()
}

fn path_of(path: &str) -> String {
    fixtures().join(path).to_str().unwrap().to_owned()
}

#[test]
fn what_the_bytes_are_is_seen() {
    for (input, api) in [
        ("vllm/text/upstream.sse", "chat.completion.chunk"),
        ("vllm/text-whole/upstream.json", "\"chat.completion\""),
        ("vllm/completions/upstream.sse", "text_completion"),
        ("vllm/completions-whole/upstream.json", "text_completion"),
    ] {
        let (got, _) = rewritten(&[], text_of(input));
        assert!(got.contains(api), "{input}: {got}");
        assert_eq!(
            got.starts_with('{'),
            input.ends_with(".json"),
            "{input}: events give events: {got}"
        );
    }
    // The path of a recorded exchange selects the API, and its body the options.
    let request = path_of("sglang/completions-usage/request.json");
    let (code, got, _) = run(
        &mut rewrite(&["--request", &request]),
        text_of("sglang/completions-usage/upstream.sse").as_bytes(),
    );
    assert_eq!(
        (code, got),
        (0, text_of("sglang/completions-usage/completions.sse"))
    );
}

#[test]
fn without_a_request_it_was_a_plain_one() {
    let (code, got, _) = run(
        &mut rewrite(&[]),
        text_of("vllm/reasoning/upstream.sse").as_bytes(),
    );
    assert_eq!((code, got), (0, text_of("vllm/reasoning/chat.sse")));
    let usage = text_of("vllm/text-usage/upstream.sse");
    let (_, without, _) = run(&mut rewrite(&[]), usage.as_bytes());
    assert!(!without.contains("usage"), "{without}");
    let (_, with, _) = run(
        &mut rewrite(&["--set", "force_usage=true"]),
        usage.as_bytes(),
    );
    assert_eq!(with, text_of("vllm/text-usage/chat.sse"));
    let unparsed = r#"data: {"id":"1","choices":[{"index":0,"delta":{"content":"<think>a</think>b"},"finish_reason":"stop"}]}"#;
    let input = format!("{unparsed}\n\ndata: [DONE]\n\n");
    let (_, parsed, _) = run(&mut rewrite(&["--set", "parser=qwen3"]), input.as_bytes());
    assert!(
        parsed.contains(r#"{"reasoning_content":"a","reasoning":"a"}"#)
            && parsed.contains(r#"{"content":"b"}"#),
        "{parsed}"
    );
}

/// The text of an engine's error is that which clients of `serve` read.
#[test]
fn errors_have_the_text_that_clients_read() {
    let input = r#"{"error":{"message":"Bad file /opt/vllm/worker.py of /models/m","code":500}}"#;
    let folder = Folder::new();
    let request = folder.file("request.json", r#"{"model":"/models/m","messages":[]}"#);
    let masked = format!(
        "internal error. The engine's own message is in the log, under request id req_{:032x}.",
        1
    );
    for (policy, expected) in [
        ("auto", "Bad file … of /models/m"),
        ("pass", "Bad file /opt/vllm/worker.py of /models/m"),
        ("redact_4xx", masked.as_str()),
    ] {
        let set = format!("engine_errors={policy}");
        let mut command = rewrite(&[
            "--status",
            "500",
            "--request",
            &request,
            "--ids",
            "counter",
            "--set",
            &set,
        ]);
        let (code, out, told) = run(&mut command, input.as_bytes());
        assert_eq!(code, 1, "{out} {told}");
        assert!(out.contains(expected), "{policy}: {out}");
        let stream = format!("data: {input}\n\n");
        let mut command = rewrite(&["--request", &request, "--ids", "counter", "--set", &set]);
        let (_, out, told) = run(&mut command, stream.as_bytes());
        assert!(out.contains(expected), "{policy}: {out} {told}");
    }
}

#[test]
fn drawn_ids_differ_and_counted_ones_do_not() {
    let input = r#"{"object":"chat.completion","choices":[{"index":0,"message":{"content":"a"},"finish_reason":"stop"}]}"#;
    let id = |arguments: &[&str]| {
        let (got, _) = rewritten(arguments, input);
        serde_json::from_str::<Value>(&got).unwrap()
    };
    let counted = id(&["--ids", "counter", "--now", "7"]);
    assert_eq!(counted["id"], format!("chatcmpl-{:032x}", 1));
    assert_eq!(counted["created"], 7);
    let drawn = [id(&[]), id(&["--ids", "random"])];
    assert_ne!(drawn[0]["id"], drawn[1]["id"]);
    assert!(drawn[0]["created"].as_u64().unwrap() > 1_700_000_000);
}

#[test]
fn exit_codes_of_answers() {
    let stream = text_of("vllm/text/upstream.sse");
    let half = &stream[..stream.len() / 2];
    for (arguments, input, code, expected) in [
        (&["--eof", "reset"][..], half, 1, "upstream_incomplete"),
        (&[][..], half, 1, "event: error\n"),
        (&[][..], "", 1, "upstream_invalid_response"),
        (&[][..], "   \n ", 1, "upstream_invalid_response"),
        (&[][..], "<html>", 1, "upstream_invalid_response"),
        (&["--status", "204"][..], "", 1, "upstream_invalid_response"),
        (
            &["--status", "500"][..],
            "oh",
            1,
            "upstream_invalid_response",
        ),
        (
            &["--status", "429"][..],
            r#"{"error":"slow down"}"#,
            1,
            r#"{"error":{"message":"slow down","type":"#,
        ),
        (&[][..], "{\"object\":", 1, "upstream_invalid_response"),
        (
            &["--eof", "reset"][..],
            r#"{"object":"chat.completion"}"#,
            1,
            "upstream_incomplete",
        ),
        (&["--eof", "reset"][..], &stream, 0, "data: [DONE]\n\n"),
    ] {
        let (got, out, told) = run(&mut rewrite(arguments), input.as_bytes());
        assert_eq!(got, code, "{arguments:?} {input}: {out} {told}");
        assert!(out.contains(expected), "{arguments:?} {input}: {out}");
    }
}

/// A recorded answer is rewritten even if samewire would refuse its request.
#[test]
fn a_request_that_would_be_refused_is_left_out_in_part() {
    let folder = Folder::new();
    let stream = text_of("vllm/text/upstream.sse");
    let asked = |members: &str| {
        let request = folder.file(
            "request.json",
            &format!(r#"{{"model":"m",{members}"stream":true}}"#),
        );
        run(
            &mut rewrite(&["--request", &request, "--now", "5"]),
            stream.as_bytes(),
        )
    };
    let plain = asked("");
    assert_eq!((plain.0, plain.2.as_str()), (0, ""));
    let (code, out, told) = asked(r#""messages":[],"n":"x","logprobs":7,"#);
    assert_eq!((code, out), (0, plain.1), "{told}");
    for key in ["messages", "n", "logprobs"] {
        assert!(told.contains(&format!("Read without '{key}'.")), "{told}");
    }
    let request = folder.file(
        "responses.json",
        r#"{"model":"m","input":[{"type":"nothing"}],"stream":true}"#,
    );
    let (out, told) = rewritten(&["--request", &request], stream);
    assert!(
        out.contains("response.completed") && told.contains("Read without 'input'."),
        "{told}"
    );
}

/// Recordings that were filtered line by line have lost their blank lines, and are still recognised.
#[test]
fn events_line_by_line_are_recognised() {
    for name in ["vllm/text", "vllm/completions", "vllm/responses-text"] {
        let path = fixtures().join(name);
        if !path.join("upstream.sse").exists() {
            continue;
        }
        let stream = text_of(&format!("{name}/upstream.sse"));
        let whole = run(&mut rewrite(&["--now", "5"]), stream.as_bytes());
        assert_eq!((whole.0, whole.2.as_str()), (0, ""), "{name}");
        let jammed: String = stream
            .lines()
            .filter(|line| !line.is_empty())
            .map(|line| line.to_owned() + "\n")
            .collect();
        let (code, out, told) = run(&mut rewrite(&["--now", "5"]), jammed.as_bytes());
        assert_eq!((code, out), (0, whole.1), "{name}: {told}");
        assert_eq!(
            told.matches("no blank lines between the events").count(),
            1,
            "{name}: {told}"
        );
    }
}

#[test]
fn input_that_is_no_answer_is_told() {
    for (input, expected) in [
        ("", "The input is empty"),
        (" \n", "The input is empty"),
        ("curl: (7) Failed to connect", "neither server-sent events"),
        ("<html></html>", "neither server-sent events"),
        ("error: nothing\n", "neither server-sent events"),
    ] {
        let (code, out, told) = run(&mut rewrite(&[]), input.as_bytes());
        assert_eq!(code, 1, "{input}: {out} {told}");
        assert!(told.contains(expected), "{input}: {told}");
        assert!(
            out.starts_with("{\"error\":{") && out.ends_with("}\n"),
            "{input}: {out:?}"
        );
    }
}

#[test]
fn wrong_usage_is_told() {
    let folder = Folder::new();
    let file = |name: &str, text: &str| folder.file(name, text);
    let (broken, number) = (file("broken.json", "{\"model\":"), file("number.json", "7"));
    let tag = file("tag.json", r#"{"thinking_unset":"<thinks>"}"#);
    let responses = file("responses.json", r#"{"input":"a"}"#);
    let missing = folder.path("missing.json").to_str().unwrap().to_owned();
    let stream = text_of("vllm/text/upstream.sse");
    let completion = text_of("vllm/completions/upstream.sse");
    let response = "data: {\"type\":\"response.created\",\"response\":{}}\n\n";
    for (arguments, input, code, expected) in [
        (&["--request", "-"][..], "", 2, "must be in a file"),
        (
            &["--request", &missing],
            "",
            3,
            "missing.json: No such file",
        ),
        (
            &["--request", &broken],
            &stream,
            2,
            "broken.json: it is not a request",
        ),
        (
            &["--request", &number],
            &stream,
            2,
            "number.json: it is not a request",
        ),
        (
            &["--request", &responses, "--to", "chat"],
            &stream,
            2,
            "the request is one of Responses",
        ),
        (
            &["--to", "responses"],
            &completion,
            2,
            "Only an answer of Chat Completions",
        ),
        (&["--to", "completions"], &stream, 2, "--to"),
        (&["--to", "chat"], response, 2, "--to"),
        (&["--set", "reasoning_field=x"], "", 2, "reasoning_field"),
        (&["--set", "nonsense"], "", 2, "OPTION=VALUE"),
        (&["--facts", &missing], "", 3, "--facts"),
        (&["--facts", &number], "", 2, "number.json: invalid type"),
        (
            &["--facts", &tag],
            "",
            2,
            "thinking_unset: no model's reasoning begins with \"<thinks>\"",
        ),
        (
            &["--engine", "pony"],
            "",
            2,
            "possible values: auto, vllm, sglang, llamacpp",
        ),
        (&["--status", "99"], "", 2, "99"),
        (&["--eof", "maybe"], "", 2, "clean, reset"),
        (&["file.sse"], "", 2, "unexpected argument"),
    ] {
        let (got, out, told) = run(&mut rewrite(arguments), input.as_bytes());
        assert_eq!((got, out.as_str()), (code, ""), "{arguments:?}: {told}");
        assert!(told.contains(expected), "{arguments:?}: {told}");
    }
}

/// Text without a start tag is reasoning if the prompt of the model ends with one.
#[test]
fn facts_about_the_template_decide() {
    let folder = Folder::new();
    let chunk = |delta: &str, finish: &str| {
        format!(
            "data: {{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{finish}}}]}}\n\n"
        )
    };
    let input = [
        chunk("{\"content\":\"Two.</think>2\"}", "null"),
        chunk("{}", "\"stop\""),
        "data: [DONE]\n\n".to_owned(),
    ]
    .concat();
    let request = |model: &str| {
        let name = format!("{model}.json");
        folder.file(
            &name,
            &format!(r#"{{"model":"{model}","messages":[],"stream":true}}"#),
        )
    };
    let opened = r#"{"thinking_unset":"<think>"}"#;
    for (facts, model, rule) in [
        (opened, "served", Some("think ")),
        (r#"{"thinking_unset":""}"#, "deepseek-r1", None),
        (opened, "deepseek-r1", Some("think ")),
        ("{}", "deepseek-r1", Some("think_by_name ")),
        ("{}", "served", None),
    ] {
        let (file, request) = (folder.file("facts.json", facts), request(model));
        let arguments = [
            "--explain",
            "--set",
            "parser=auto",
            "--facts",
            &file,
            "--request",
            &request,
        ];
        let (out, told) = rewritten(&arguments, &input);
        let is_reasoning = out.contains("\"reasoning\":\"Two.\"");
        assert_eq!(is_reasoning, rule.is_some(), "{facts} {model}: {out}");
        let counted = ["think ", "think_by_name "]
            .into_iter()
            .find(|rule| told.contains(rule));
        assert_eq!(counted, rule, "{facts} {model}: {told}");
    }
}

/// A whole chat answer is converted for a Responses request, as in the worked example.
#[test]
fn whole_chat_answer_becomes_a_response() {
    let name = "json-010-responses-from-chat";
    let text = std::fs::read_to_string(fixtures().join(format!("vectors/{name}.json"))).unwrap();
    let vector: Value = serde_json::from_str(&text).unwrap();
    let folder = Folder::new();
    let request = folder.file("request.json", &vector["request"].to_string());
    let now = vector["options"]["test_now"].to_string();
    let mut command = rewrite(&["--api", "chat", "--to", "responses", "--request", &request]);
    command.args([
        "--engine",
        "vllm",
        "--ids",
        "counter",
        "--now",
        &now,
        "--set",
        "responses_reasoning=content",
    ]);
    let (code, out, told) = run(&mut command, vector["input"].as_str().unwrap().as_bytes());
    assert_eq!((code, out), (0, expected(name, &vector).1), "{told}");
    let (code, out, _) = run(
        &mut rewrite(&["--to", "responses", "--status", "503"]),
        br#"{"message":"full"}"#,
    );
    assert_eq!(code, 1);
    assert!(out.contains("server_is_overloaded"), "{out}");
}

/// Every worked example for Messages. There are no keys here, so samewire's own signatures are missing.
#[test]
fn messages_byte_for_byte() {
    let folder = Folder::new();
    let vectors: Vec<_> = message_vectors()
        .into_iter()
        .filter(|(case, _)| case.status == 200)
        .collect();
    for (case, vector) in &vectors {
        let request = folder.file("request.json", &case.request.to_string());
        let (api, eof) = (
            if case.upstream == Api::Chat {
                "chat"
            } else {
                "messages"
            },
            if case.ending == Ending::Reset {
                "reset"
            } else {
                "clean"
            },
        );
        let now = case.now.to_string();
        let mut command = rewrite(&[
            "--request",
            &request,
            "--engine",
            &case.engine,
            "--eof",
            eof,
        ]);
        command.args([
            "--api", api, "--to", "messages", "--now", &now, "--ids", "counter",
        ]);
        command.args(assignments("", &case.options));
        let (status, body) = expected(&case.name, vector);
        let (code, got, told) = run(&mut command, &case.input);
        let is_error = status != 200 || body.contains("event: error\n");
        assert_eq!(code, i32::from(is_error), "{}: {told}", case.name);
        if status == 200 {
            let body = if case.upstream == Api::Chat {
                without_signatures(&body)
            } else {
                body
            };
            let request_id = format!("\"request_id\":\"req_{:032x}\"", 1);
            let body = body.replace("\"request_id\":null", &request_id);
            assert_eq!(got, body, "{}", case.name);
        } else {
            assert!(
                got.starts_with(r#"{"type":"error","error":{"type":""#),
                "{}: {got}",
                case.name
            );
        }
    }
    assert!(vectors.len() > 25, "{}", vectors.len());
}

/// Returns a message without the signatures of the worked examples.
fn without_signatures(body: &str) -> String {
    let frames = body
        .split_inclusive("\n\n")
        .filter(|frame| !frame.contains("signature_delta"));
    let mut pieces = frames.collect::<String>();
    while let Some(at) = pieces.find("swt1.test.") {
        let end = pieces[at..].find('"').unwrap();
        pieces.replace_range(at..at + end, "");
    }
    pieces
}

/// `rewrite` says why an answer cannot become a message.
#[test]
fn only_chat_becomes_a_message() {
    let completion = text_of("vllm/completions/upstream.sse");
    let (code, out, told) = run(&mut rewrite(&["--to", "messages"]), completion.as_bytes());
    assert_eq!((code, out.as_str()), (2, ""), "{told}");
    assert!(
        told.contains("Only an answer of Chat Completions can become one of Messages"),
        "{told}"
    );
    let native =
        "data: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"model\":\"m\"}}\n\n";
    let (code, out, told) = run(&mut rewrite(&[]), native.as_bytes());
    assert_eq!(code, 1, "{told}");
    assert!(
        out.contains(r#"{"type":"error","error":{"type":"api_error""#),
        "{out}"
    );
}

/// The last chunk of vLLM with `continuous_usage_stats` has text, the finish, and a count of both: the count is
/// sent once.
#[test]
fn a_count_on_frames_is_told_once() {
    let folder = Folder::new();
    let asked = r#"{"model": "m", "prompt": "p", "messages": [], "stream": true,
        "stream_options": {"include_usage": true, "continuous_usage_stats": true}}"#;
    let request = folder.file("request.json", asked);
    let choice = |api: &str, text: &str, finish: &str| match api {
        "chat" => format!(r#""delta":{{"content":"{text}"}},"finish_reason":{finish}"#),
        _ => format!(r#""text":"{text}","finish_reason":{finish}"#),
    };
    for api in ["chat", "completions"] {
        let usage = |count| {
            format!(
                r#""usage":{{"prompt_tokens":5,"completion_tokens":{count},"total_tokens":{}}}"#,
                5 + count
            )
        };
        let mut input = String::new();
        for (count, text, finish) in [
            (1, "one ", "null"),
            (2, "two ", "null"),
            (3, "three", "\"length\""),
        ] {
            let (choice, usage) = (choice(api, text, finish), usage(count));
            input += &format!(
                "data: {{\"id\":\"a\",\"choices\":[{{\"index\":0,{choice}}}],{usage}}}\n\n"
            );
        }
        input += &format!(
            "data: {{\"id\":\"a\",\"choices\":[],{}}}\n\ndata: [DONE]\n\n",
            usage(3)
        );
        let told = |option: &str| {
            let arguments = ["--api", api, "--request", &request, "--set", option];
            let (output, _) = rewritten(&arguments, &input);
            let frames = output
                .split("\n\n")
                .filter_map(|frame| frame.strip_prefix("data: {"));
            let frames =
                frames.map(|frame| serde_json::from_str::<Value>(&format!("{{{frame}")).unwrap());
            frames.collect::<Vec<_>>()
        };
        let text = |frame: &Value| {
            let choice = &frame["choices"][0];
            let said = choice["delta"]["content"]
                .as_str()
                .or_else(|| choice["text"].as_str());
            said.unwrap_or("").to_owned()
        };
        let frames = told("continuous_usage=pass");
        assert_eq!(frames.iter().map(text).collect::<String>(), "one two three");
        let (last, before) = frames.split_last().unwrap();
        assert_eq!(
            (&last["choices"], &last["usage"]["completion_tokens"]),
            (&Value::Array(vec![]), &3.into())
        );
        let counts: Vec<_> = before
            .iter()
            .filter(|frame| !text(frame).is_empty())
            .collect();
        let counts: Vec<_> = counts
            .iter()
            .map(|frame| frame["usage"]["completion_tokens"].as_u64())
            .collect();
        assert_eq!(counts, [Some(1), Some(2), Some(3)], "{api}");
        let finish = before.last().unwrap();
        assert_eq!(
            (
                text(finish).as_str(),
                &finish["choices"][0]["finish_reason"]
            ),
            ("three", &"length".into())
        );
        // Without counts the finish has its own frame, without text.
        let frames = told("continuous_usage=strip");
        let finish = &frames[frames.len() - 2];
        assert_eq!(
            (
                text(finish).as_str(),
                &finish["choices"][0]["finish_reason"]
            ),
            ("", &"length".into())
        );
        assert!(finish["usage"].is_null());
    }
}

#[test]
fn unreadable_input_is_the_environments_fault() {
    let mut command = rewrite(&[]);
    command.stdin(std::fs::File::open(fixtures()).unwrap());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("standard input: "));
}

/// Each change is explained by a line with the value before and after; the answer is the same as without
/// explanations.
#[test]
fn what_is_changed_is_explained() {
    let folder = Folder::new();
    let request = folder.file(
        "request.json",
        r#"{"model":"m","messages":[{"role":"user","content":"a"}],"stream":true,"tools":[]}"#,
    );
    for (engine, version, input, expected) in [
        (
            "vllm",
            "0.21.0",
            "vllm/text-length/upstream.sse",
            &[
                "request  empty_tools  an empty list of tools was left out\n",
                "request  null_fields  dropped: tools []\n",
                "frame 1  role_content  dropped: content \"\"\n",
                "frames 2-5 (4 times)  null_fields  dropped: null fields token_ids\n",
                "frame 6  finish_merged  moved to frames of their own: content \"First\", finish_reason \"length\"\n",
                "frame 7  fingerprint  dropped: system_fingerprint\n",
                "engine  vllm 0.21.0, as --engine says: frame 7 has \"system_fingerprint\":\"vllm-\n",
                "summary  the answer is complete: 8 frames in, 8 out, ",
                "no text was lost; finish_reason length\n",
            ][..],
        ),
        (
            "sglang",
            "0.5.12",
            "sglang/text/upstream.sse",
            &[
                "  id  id \"3ebe143278224ad0976fa20b2ae08d13\" → \"chatcmpl-3ebe143278224ad0976fa20b2ae08d1…\"\n",
                "frame 10  stop_details  dropped: matched_stop 32002\n",
            ],
        ),
        (
            "auto",
            "1.0.0",
            "vllm/text-whole/upstream.json",
            &[
                "answer  fingerprint  dropped: system_fingerprint\n",
                "engine  vllm 0.21.0: its answer has \"system_fingerprint\":\"vllm-\n",
                "summary  the answer is complete: one object in, 4 frames out, ",
            ],
        ),
        (
            "vllm",
            "0.21.0",
            "vllm/reasoning/upstream.sse",
            &["  reasoning_name  reasoning → reasoning_content, reasoning\n"],
        ),
        (
            "vllm",
            "0.21.0",
            "sglang/text/upstream.sse",
            &[
                "engine  vllm 0.21.0, as --engine says, but the answer looks like one of sglang: frame 1 has ",
            ],
        ),
    ] {
        let input = text_of(input);
        let plain = [
            "--engine",
            engine,
            "--engine-version",
            version,
            "--request",
            &request,
            "--set",
            "parser=off",
        ];
        let (code, out, told) = run(&mut rewrite(&plain), input.as_bytes());
        assert_eq!((code, told.as_str()), (0, ""));
        let explained = run(rewrite(&plain).arg("--explain"), input.as_bytes());
        assert_eq!((explained.0, explained.1), (0, out));
        for line in expected {
            assert!(explained.2.contains(line), "{line}: {}", explained.2);
        }
        let lines: Vec<_> = explained.2.lines().collect();
        let (summary, changes) = lines.split_last().unwrap();
        assert!(summary.starts_with("summary  "), "{}", explained.2);
        for line in &changes[..changes.len() - 1] {
            assert_eq!(line.split("  ").count(), 3, "{line}");
        }
        assert!(!explained.2.contains('\x1b'), "no colour in a pipe");
    }
    let (code, _, told) = run(&mut rewrite(&["--engine-version", "new"]), b"");
    assert!(
        code == 2 && told.contains("a release such as 0.21.0"),
        "{told}"
    );
}

/// An unknown finish reason is shown beside its replacement; adjacent frames of one kind are one line.
#[test]
fn before_and_after_are_those_of_the_frames() {
    let chunk = |delta: &str, rest: &str| {
        format!(
            "data: {{\"id\":\"chatcmpl-a\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{{\"index\":0,\"delta\":{{{delta}}},{rest}}}]}}\n\n"
        )
    };
    let mut input = chunk(r#""role":"assistant""#, r#""finish_reason":null"#);
    for at in 0..40 {
        input += &chunk(
            &format!(r#""content":"{at} ""#),
            r#""token_ids":[1],"finish_reason":null"#,
        );
    }
    input += &chunk("", r#""finish_reason":"eos""#);
    input += "data: [DONE]\n\n";
    let (_, told) = rewritten(&["--explain"], input);
    for line in [
        "frames 2-41 (40 times)  unknown_field  dropped: token_ids\n",
        "frame 42  finish_word  finish_reason \"eos\" → \"stop\"\n",
        "engine  not recognised",
        "summary  the answer is complete: 43 frames in, 43 out, 2 rules changed something, no text was lost; finish_reason stop\n",
    ] {
        assert!(told.contains(line), "{line}: {told}");
    }
    // A changing time is reported separately, although the id is rewritten in every frame.
    let changing = text_of("sglang/same-answer-length/upstream.sse");
    let (_, _, told) = run(&mut rewrite(&["--explain"]), changing.as_bytes());
    assert!(
        told.contains("  envelope  created 1795501223 → 1795501222\n"),
        "{told}"
    );
    assert!(
        told.contains("frames 1-20 (20 times)  id  id ") && !told.contains("  envelope  id "),
        "{told}"
    );
    let whole = text_of("vllm/text-whole/upstream.json");
    let (_, told) = rewritten(&["--explain"], whole);
    for line in [
        "answer  usage  added: usage.",
        "answer  null_fields  dropped: null fields prompt_routed_experts, audio, ",
        "summary  the answer is complete: one object in, one out, ",
    ] {
        assert!(told.contains(line), "{line}: {told}");
    }
}

/// Names and values of an engine are told with every character visible.
#[test]
fn what_an_engine_names_steers_no_terminal() {
    const STEERS: &str = "\x1b]0;title\x07\u{202e}\u{9b}\u{e0100}";
    let chunk = |delta: Value, finish: Value| {
        let choice = serde_json::json!({"index": 0, "delta": delta, "finish_reason": finish});
        let chunk = serde_json::json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", STEERS: 1, "choices": [choice]});
        format!("data: {chunk}\n\n")
    };
    let stream = chunk(serde_json::json!({"content": "a"}), Value::Null)
        + &chunk(serde_json::json!({}), STEERS.into())
        + "data: [DONE]\n\n";
    let error = format!(
        "data: {}\n\n",
        serde_json::json!({"error": {"message": STEERS, "type": STEERS, "code": STEERS}})
    );
    for input in [&stream, &error] {
        let (_, _, told) = run(&mut rewrite(&["--explain"]), input.as_bytes());
        let hidden = told
            .chars()
            .find(|letter| *letter != '\n' && samewire::visible::is_hidden(*letter));
        assert!(
            hidden.is_none() && told.contains("\\u{202e}\\u{9b}\\u{e0100}"),
            "{told:?}"
        );
    }
}

/// Each repair of arguments is told under its rule, in streams and in whole answers.
#[test]
fn repairs_of_arguments_are_explained() {
    let call = |arguments: &str| {
        let arguments = Value::from(arguments);
        format!(
            r#"{{"tool_calls":[{{"index":0,"id":"call_a","type":"function","function":{{"name":"f","arguments":{arguments}}}}}]}}"#
        )
    };
    let frame = |inner: &str| {
        format!(
            r#"{{"id":"chatcmpl-a","object":"chat.completion.chunk","created":1,"model":"m","choices":[{{"index":0,{inner}}}]}}"#
        )
    };
    let stream = |arguments: &str| {
        let delta = frame(&format!(
            r#""delta":{},"finish_reason":null"#,
            call(arguments)
        ));
        let finish = frame(r#""delta":{},"finish_reason":"tool_calls""#);
        format!("data: {delta}\n\ndata: {finish}\n\ndata: [DONE]\n\n")
    };
    let whole = |arguments: &str| {
        frame(&format!(
            r#""message":{},"finish_reason":"tool_calls""#,
            call(arguments)
        ))
    };
    for (arguments, rules, balance) in [
        (
            r#"{"a":1}</tool_call>"#,
            &["tool_arguments_tail"][..],
            "12 characters were marks of reasoning and calls",
        ),
        (
            "{'a': True}",
            &["tool_arguments_quotes", "tool_arguments_words"],
            "no text was lost",
        ),
        (
            r#"{"a":["b""#,
            &["tool_arguments_brackets"],
            "no text was lost",
        ),
    ] {
        for input in [stream(arguments), whole(arguments)] {
            let (code, _, told) = run(
                &mut rewrite(&["--explain", "--set", "repair_arguments=json"]),
                input.as_bytes(),
            );
            assert_eq!(code, 0, "{told}");
            for part in rules.iter().copied().chain([balance]) {
                assert!(told.contains(part), "{part}: {told}");
            }
        }
    }
}

/// The verdict names engine flags that would help, and the error that clients get for a broken answer.
#[test]
fn the_verdict_names_what_would_help() {
    let folder = Folder::new();
    let request = folder.file(
        "request.json",
        r#"{"model":"Qwen/Qwen3-8B","messages":[{"role":"user","content":"a"}],"stream":true}"#,
    );
    let input = text_of("vllm/think-raw/upstream.sse");
    let arguments = ["--explain", "--set", "parser=auto", "--request", &request];
    let (_, told) = rewritten(&arguments, &input);
    assert!(
        told.contains("  think  content → reasoning_content, reasoning\n"),
        "{told}"
    );
    assert!(
        told.contains("characters were marks of reasoning and calls"),
        "{told}"
    );
    let hint = told.lines().last().unwrap();
    assert!(
        hint.starts_with("hint  ") && hint.ends_with("these flags: --reasoning-parser qwen3"),
        "{told}"
    );

    let stream = text_of("vllm/text/upstream.sse");
    let half = &stream[..stream.len() / 2];
    let (code, _, told) = run(&mut rewrite(&["--explain"]), half.as_bytes());
    assert_eq!(code, 1, "{told}");
    assert!(told.contains("summary  the answer is broken: "), "{told}");
    assert!(
        told.contains("; clients get error upstream_incomplete; "),
        "{told}"
    );
    let (code, _, told) = run(
        &mut rewrite(&["--explain", "--status", "429"]),
        br#"{"error":"slow down"}"#,
    );
    assert_eq!(
        (code, told.as_str()),
        (
            1,
            "summary  the answer is an error: slow down; clients get error rate_limit_exceeded (HTTP 429)\n"
        )
    );
}

#[test]
fn programs_read_explanations_as_json() {
    let input = text_of("vllm/text-length/upstream.sse");
    let unparsed = ["--set", "parser=off"];
    let (code, out, told) = run(
        rewrite(&unparsed).args(["--explain", "--format", "json"]),
        input.as_bytes(),
    );
    let (_, plain, _) = run(&mut rewrite(&unparsed), input.as_bytes());
    assert_eq!((code, out), (0, plain));
    let lines: Vec<Value> = told
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let (summary, rest) = lines.split_last().unwrap();
    assert_eq!(
        (
            &summary["kind"],
            &summary["outcome"],
            &summary["finish_reasons"]
        ),
        (
            &"summary".into(),
            &"complete".into(),
            &serde_json::json!(["length"])
        )
    );
    assert_eq!(
        (&summary["frames_in"], &summary["error"]),
        (&8.into(), &Value::Null)
    );
    assert_eq!(summary["characters_in"], summary["characters_out"]);
    let (engine, changes) = rest.split_last().unwrap();
    assert_eq!(
        (&engine["kind"], &engine["recognised"], &engine["version"]),
        (&"engine".into(), &"vllm".into(), &"0.21.0".into())
    );
    assert!(
        changes
            .iter()
            .all(|line| line["kind"] == "change" && line["text"].is_string()),
        "{told}"
    );
    let dropped = changes
        .iter()
        .find(|line| line["fields"] == serde_json::json!(["token_ids"]))
        .unwrap();
    let expected = serde_json::json!({
        "kind": "change", "place": "frames", "first": 2, "last": 5, "times": 4, "rule": "null_fields",
        "change": "dropped_null", "fields": ["token_ids"], "into": [], "before": null, "after": null,
        "text": "dropped: null fields token_ids",
    });
    assert_eq!(*dropped, expected);
    // Notes are lines of JSON, too.
    let (_, _, told) = run(&mut rewrite(&["--explain", "--format", "json"]), b"<html>");
    let kinds: Vec<Value> = told
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(
        (&kinds[0]["kind"], &kinds[1]["kind"], &kinds[1]["outcome"]),
        (&"note".into(), &"summary".into(), &"broken".into())
    );
    let (code, _, told) = run(&mut rewrite(&["--format", "json"]), b"");
    assert!(code == 2 && told.contains("--explain"), "{told}");
}

/// A recorded answer is rewritten by itself if the engine would get one request per choice.
#[test]
fn of_several_answers_each_is_rewritten_by_itself() {
    let folder = Folder::new();
    let request = |n: &str| {
        let body = format!(
            r#"{{"model":"m","messages":[{{"role":"user","content":"a"}}],"stream":true{n}}}"#
        );
        folder.file("request.json", &body)
    };
    let input = text_of("vllm/text-length/upstream.sse");
    let rewritten = |n: &str| {
        let request = request(n);
        let options = [
            "--engine",
            "transformers",
            "--request",
            &request,
            "--explain",
            "--ids",
            "counter",
        ];
        run(&mut rewrite(&options), input.as_bytes())
    };
    let (one, several) = (rewritten(""), rewritten(r#","n":3"#));
    assert_eq!((several.0, &several.1), (0, &one.1));
    let line = "request  fan_out  each choice was asked for by a request of its own\n";
    assert!(
        several.2.contains(line) && !one.2.contains(line),
        "{}",
        several.2
    );
}

#[test]
fn help_explains_itself() {
    let (code, help, _) = run(&mut rewrite(&["--help"]), b"");
    assert_eq!(code, 0);
    for word in [
        "curl -N",
        "--request",
        "--eof",
        "--ids",
        "Exit codes",
        "standard input",
    ] {
        assert!(help.contains(word), "{word}: {help}");
    }
}

/// Reads frames in a thread as they come, so that waiting for one can time out.
fn frames(from: ChildStdout) -> Receiver<String> {
    let (sender, frames) = channel();
    std::thread::spawn(move || {
        let (mut from, mut frame) = (BufReader::new(from), String::new());
        while from.read_line(&mut frame).is_ok_and(|count| count > 0) {
            if frame.ends_with("\n\n") && sender.send(std::mem::take(&mut frame)).is_err() {
                return;
            }
        }
    });
    frames
}

fn start(arguments: &[&str]) -> Child {
    rewrite(arguments).spawn().unwrap()
}

#[test]
fn frames_come_out_before_the_input_is_complete() {
    for arguments in [&[][..], &["--api", "chat"], &["--explain"]] {
        let mut child = start(arguments);
        let mut stdin = child.stdin.take().unwrap();
        let frames = frames(child.stdout.take().unwrap());
        let next = || {
            frames
                .recv_timeout(PATIENCE)
                .expect("a frame before the input goes on")
        };
        let stream = text_of("vllm/reasoning/upstream.sse");
        let mut raw = stream.split_inclusive("\n\n");
        stdin.write_all(raw.next().unwrap().as_bytes()).unwrap();
        stdin.write_all(raw.next().unwrap().as_bytes()).unwrap();
        assert!(next().contains(r#""delta":{"role":"assistant"}"#));
        assert!(next().contains(r#""delta":{"reasoning_content":"\n","reasoning":"\n"}"#));
        stdin.write_all(raw.next().unwrap().as_bytes()).unwrap();
        assert!(next().contains(r#""delta":{"reasoning_content":"The","reasoning":"The"}"#));
        drop(stdin);
        assert!(next().contains("upstream_incomplete"));
        assert_eq!(child.wait().unwrap().code(), Some(1));
    }
}

#[test]
fn a_complete_answer_ends_it_although_the_input_is_open() {
    let mut child = start(&[]);
    let mut stdin = child.stdin.take().unwrap();
    stdin
        .write_all(text_of("vllm/text/upstream.sse").as_bytes())
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    drop(stdin);
}

#[test]
fn a_reader_who_leaves_ends_it_quietly() {
    let mut child = start(&[]);
    let mut stdin = child.stdin.take().unwrap();
    drop(child.stdout.take());
    let chunk = "data: {\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n";
    // Writing fails once the filter has exited.
    while stdin.write_all(chunk.as_bytes()).is_ok() {}
    let mut told = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut told)
        .unwrap();
    assert_eq!((child.wait().unwrap().code(), told.as_str()), (Some(0), ""));
}

#[test]
fn an_endless_input_ends_in_an_error() {
    let comment = format!(": {}\n", "x".repeat(1_000));
    for endless in ["data: x", "{", &comment, "    "] {
        let mut child = start(&[]);
        let mut stdin = child.stdin.take().unwrap();
        let block = endless.repeat((1 << 17) / endless.len());
        while stdin.write_all(block.as_bytes()).is_ok() {}
        let mut out = String::new();
        child
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut out)
            .unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(1), "{endless}: {out}");
        assert!(out.starts_with("{\"error\":"), "{endless}: {out}");
    }
}

/// Usage on every chunk, as vLLM sends it with `--enable-force-include-usage`, stays if the operator configures it.
#[test]
fn counts_that_an_engine_gives_unasked_stay_where_the_operator_wants_them() {
    let folder = Folder::new();
    let request = folder.file(
        "request.json",
        r#"{"model": "m", "messages": [], "stream": true}"#,
    );
    let usage = r#""usage":{"prompt_tokens":5,"completion_tokens":1,"total_tokens":6}"#;
    let input = format!(
        "data: {{\"id\":\"a\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"one\"}},\"finish_reason\":null}}],{usage}}}\n\n\
         data: {{\"id\":\"a\",\"choices\":[{{\"index\":0,\"delta\":{{}},\"finish_reason\":\"stop\"}}],{usage}}}\n\n\
         data: {{\"id\":\"a\",\"choices\":[],{usage}}}\n\ndata: [DONE]\n\n"
    );
    for (options, text_has_usage) in [
        (["continuous_usage=always", "force_usage=true"], true),
        (["continuous_usage=pass", "force_usage=true"], false),
    ] {
        let sets = options.map(|option| ["--set", option]).concat();
        let arguments = [&["--request", request.as_str()], &sets[..]].concat();
        let (output, _) = rewritten(&arguments, &input);
        let text = output.lines().find(|line| line.contains("one")).unwrap();
        assert_eq!(
            text.contains("\"total_tokens\":6"),
            text_has_usage,
            "{options:?}: {output}"
        );
    }
}

/// Unknown members, as vLLM has them on each level and some with null, may stay where they are.
#[test]
fn fields_outside_the_format_may_stay_in_their_place() {
    let whole = r#"{"id":"a","object":"chat.completion","created":1,"model":"m","metrics":{"queue_time_ms":0},"prompt_logprobs":null,
        "choices":[{"index":0,"message":{"role":"assistant","content":"hi","mood":"good","secret":null},"finish_reason":"stop",
        "token_ids":null,"routed":[1]}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}"#;
    let (output, _) = rewritten(&["--set", "unknown_fields=in_place"], whole);
    let answer: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(answer["metrics"], serde_json::json!({"queue_time_ms": 0}));
    assert_eq!(
        answer.get("prompt_logprobs"),
        Some(&Value::Null),
        "{output}"
    );
    let choice = &answer["choices"][0];
    assert_eq!(
        (choice.get("token_ids"), &choice["routed"]),
        (Some(&Value::Null), &serde_json::json!([1]))
    );
    assert_eq!(
        choice["x_upstream"],
        serde_json::json!({"message": {"mood": "good"}})
    );
    assert!(answer.get("x_upstream").is_none(), "{output}");

    let stream = "data: {\"id\":\"a\",\"prompt_token_ids\":null,\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\",\"secret\":null,\"n\":1},\
                  \"token_ids\":null,\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let (output, _) = rewritten(&["--set", "unknown_fields=in_place"], stream);
    let frames = output
        .lines()
        .filter_map(|line| line.strip_prefix("data: {"));
    let frames: Vec<Value> = frames
        .map(|frame| serde_json::from_str(&format!("{{{frame}")).unwrap())
        .collect();
    let told: Vec<_> = frames
        .iter()
        .filter(|frame| frame.get("prompt_token_ids").is_some())
        .collect();
    assert_eq!(
        told.len(),
        1,
        "on the first frame made from the chunk: {output}"
    );
    assert_eq!(told[0]["choices"][0].get("token_ids"), Some(&Value::Null));
    let below: Vec<_> = frames
        .iter()
        .map(|frame| &frame["choices"][0]["x_upstream"])
        .filter(|below| !below.is_null())
        .collect();
    assert_eq!(below, [&serde_json::json!({"delta": {"n": 1}})], "{output}");
}

/// Text after a call's complete arguments: a repetition is dropped where engines send one, another call with a name
/// is a separate call, and anything else is forwarded unchanged.
#[test]
fn fault_u52_nothing_behind_complete_arguments_is_lost() {
    let entry = |id: &str, name: &str, arguments: &str| {
        let id = if id.is_empty() {
            String::new()
        } else {
            format!(r#""id":"{id}","type":"function","#)
        };
        let name = if name.is_empty() {
            String::new()
        } else {
            format!(r#""name":"{name}","#)
        };
        let arguments = serde_json::to_string(arguments).unwrap();
        format!(r#"{{"index":0,{id}"function":{{{name}"arguments":{arguments}}}}}"#)
    };
    let first = entry("call_a", "f", r#"{"a":1}"#);
    type Row<'r> = (&'r str, Vec<String>, &'r [(&'r str, &'r str)]);
    let rows: [Row<'_>; 9] = [
        (
            "vllm",
            vec![entry("", "", r#"{"a": 1}"#)],
            &[("call_a", r#"{"a":1}"#)],
        ),
        (
            "vllm",
            vec![entry("", "", r#"{"a""#), entry("", "", ": 1}")],
            &[("call_a", r#"{"a":1}"#)],
        ),
        (
            "vllm",
            vec![entry("call_a", "f", r#"{"a": 1}"#)],
            &[("call_a", r#"{"a":1}"#)],
        ),
        (
            "vllm",
            vec![entry("", "", r#"{"b":2}"#)],
            &[("call_a", r#"{"a":1}{"b":2}"#)],
        ),
        (
            "vllm",
            vec![entry("", "", r#"{"b""#)],
            &[("call_a", r#"{"a":1}{"b""#)],
        ),
        (
            "vllm",
            vec![entry("", "g", r#"{"b":2}"#)],
            &[("call_a", r#"{"a":1}"#), ("", r#"{"b":2}"#)],
        ),
        (
            "vllm",
            vec![entry("call_a", "f", r#"{"b":2}"#)],
            &[("call_a", r#"{"a":1}"#), ("", r#"{"b":2}"#)],
        ),
        (
            "generic",
            vec![entry("", "", r#"{"a":1}"#)],
            &[("call_a", r#"{"a":1}"#)],
        ),
        (
            "generic",
            vec![entry("", "g", r#"{"b":2}"#)],
            &[("call_a", r#"{"a":1}"#), ("", r#"{"b":2}"#)],
        ),
    ];
    for (engine, behind, expected) in rows {
        let mut input = String::new();
        for entry in std::iter::once(&first).chain(&behind) {
            input += &format!(
                "data: {{\"id\":\"c\",\"choices\":[{{\"index\":0,\"delta\":{{\"tool_calls\":[{entry}]}},\"finish_reason\":null}}]}}\n\n"
            );
        }
        input += "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n";
        let (output, _) = rewritten(&["--engine", engine], input);
        let mut calls: Vec<(String, String)> = Vec::new();
        for line in output
            .lines()
            .filter_map(|line| line.strip_prefix("data: {"))
        {
            let frame: Value = serde_json::from_str(&format!("{{{line}")).unwrap();
            for call in frame["choices"][0]["delta"]["tool_calls"]
                .as_array()
                .into_iter()
                .flatten()
            {
                if let Some(id) = call["id"].as_str() {
                    calls.push((id.to_owned(), String::new()));
                }
                let at = usize::try_from(call["index"].as_u64().unwrap()).unwrap();
                calls[at].1 += call["function"]["arguments"].as_str().unwrap();
            }
        }
        assert_eq!(
            calls.len(),
            expected.len(),
            "{engine}, {behind:?}: {output}"
        );
        for ((id, arguments), (wanted, text)) in calls.iter().zip(expected) {
            assert_eq!(arguments, text, "{engine}, {behind:?}: {output}");
            assert!(
                wanted.is_empty() && id != "call_a" || id == wanted,
                "{engine}, {behind:?}: {output}"
            );
        }
    }
    // Nothing is dropped from a whole answer.
    let whole = r#"{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":null,
        "tool_calls":[{"id":"call_a","type":"function","function":{"name":"f","arguments":"{\"a\":1}{\"a\":1}"}}]},"finish_reason":"tool_calls"}]}"#;
    let (_, output, _) = run(&mut rewrite(&["--engine", "vllm"]), whole.as_bytes());
    assert!(
        output.contains(r#""arguments":"{\"a\":1}{\"a\":1}""#),
        "{output}"
    );
}

/// Log probabilities in another shape, or with a value that the engine left out, are counted as changes.
#[test]
fn logprobs_that_are_mended_are_counted() {
    let counts = |path: &str, change: &dyn Fn(String) -> String| {
        let request = fixtures()
            .join(path)
            .join("request.json")
            .display()
            .to_string();
        let input = change(text_of(&format!("{path}/upstream.sse")));
        let (_, told) = rewritten(&["--request", &request, "--explain"], input);
        told.contains("  logprobs  ")
    };
    let as_it_is = |text: String| text;
    // The chat shape of logprobs in Completions.
    assert!(counts("llamacpp/completions-logprobs", &as_it_is));
    assert!(!counts("vllm/completions-logprobs", &as_it_is));
    assert!(!counts("vllm/logprobs", &as_it_is));
    assert!(counts("vllm/logprobs", &|text| text.replacen(
        "\"logprob\":",
        "\"other\":",
        1
    )));
}
