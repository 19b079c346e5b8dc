//! Requests that are refused. None of them may reach the engine, and no response may repeat their content.

use crate::official::Schemas;
use crate::sim::ErrorBody;
use crate::sim::prelude::*;

/// Checks status 400, type and code, and that the response repeats nothing of the request.
fn check(answer: &Answer, code: &str, what: &str) -> ErrorBody {
    let fault = answer.fault();
    assert_eq!(answer.head.status, 400, "{what:.200}: {}", answer.text());
    assert_eq!(
        fault.name(),
        ("invalid_request_error", Some(code)),
        "{what:.200}: {}",
        answer.text()
    );
    assert!(
        !answer.text().contains("CANARY"),
        "{what:.200}: {}",
        answer.text()
    );
    fault
}

#[tokio::test]
async fn fault_c01_malformed_json() {
    let good = format!(
        r#"{{"model":"m","messages":[{{"role":"user","content":"{PROMPT}"}}],"stream":true}}"#
    );
    let mut documents: Vec<String> = [
        "",
        " ",
        "\u{feff}",
        "{",
        "}",
        "{]",
        "nul",
        "hello",
        "model=m",
        "'a'",
        r#"{"model"}"#,
        r#"{"model":}"#,
        r#"{"model":"m",}"#,
        r#"{,"model":"m"}"#,
        r#"{"model" "m"}"#,
        r#"{model:"m"}"#,
        r#"{'model':'m'}"#,
        r#"{"model":"m";"n":1}"#,
        r#"{"model":NaN}"#,
        r#"{"model":"m","messages":[1,]}"#,
        r#"{"model":"m","messages":[1 2]}"#,
        r#"{"model":"m","top_p":Infinity}"#,
        r#"{"model":"m","top_p":-Infinity}"#,
        r#"{"model":"m","top_p":+1}"#,
        r#"{"model":"m","top_p":01}"#,
        r#"{"model":"m","top_p":.5}"#,
        r#"{"model":"m","top_p":1.}"#,
        r#"{"model":"m","top_p":0x10}"#,
        r#"{"model":"m","top_p":1e}"#,
        r#"{"model":"m","x":tru}"#,
        r#"{"model":"m","x":True}"#,
        r#"{"model":"m","x":undefined}"#,
        r#"{"model":"m" /* c */}"#,
        "{\"model\":\"m\" // c\n}",
        r#"{"model":"\x41"}"#,
        r#"{"model":"\u12"}"#,
        "{\"model\":\"a\nb\"}",
        "{\"model\":\"a\tb\"}",
        "{\"model\":\"a\u{0}b\"}",
        r#"{"model":"m"#,
    ]
    .map(String::from)
    .into();
    documents.extend([1, 9, 20, good.len() / 2, good.len() - 1].map(|cut| good[..cut].to_owned()));
    documents.extend([
        format!("{good}{good}"),
        format!("{good} x"),
        format!("{good},"),
        format!("[{good}"),
    ]);
    // Invalid JSON inside values that are only forwarded: in the prompt, in a schema.
    documents.push(good.replace("CANARY", "CANARY\\q"));
    documents.push(good.replace(
        "\"stream\":true",
        "\"tools\":[{\"function\":{\"parameters\":{\"a\":}}}]",
    ));
    let world = World::plain(Setup::new()).await;
    for document in documents {
        let answer = world.chat(document.as_str()).await;
        let fault = check(&answer, "invalid_json", &document);
        assert!(
            fault.message.contains(|c: char| c.is_ascii_digit()),
            "the position is told: {}",
            fault.message
        );
    }
    world.end_after(0).await;
}

#[tokio::test]
async fn fault_c02_deep_nesting() {
    let (open, object) = ("[".repeat(100_000), r#"{"a":"#.repeat(100_000));
    let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
    let documents = [
        open.clone(),
        object.clone(),
        format!(r#"{{"model":"m","messages":{open}"#),
        format!(r#"{{"model":"m","messages":[{{"role":"user","content":{object}"#),
        format!(
            r#"{{"model":"m","messages":[],"unknown":{}}}"#,
            nested(100_000)
        ),
        format!(r#"{{"model":"m","messages":[],"unknown":{}}}"#, nested(140)),
        format!(
            r#"{{"model":"m","messages":[{{"role":"user","content":"{PROMPT}"}}],"tools":[{{"type":"function","function":{{"name":"f","parameters":{}}}}}]}}"#,
            nested(140)
        ),
    ];
    let world = World::plain(Setup::new()).await;
    for document in documents {
        check(
            &world.chat(document.as_str()).await,
            "json_too_deep",
            &document,
        );
    }
    world.end_after(0).await;
}

#[tokio::test]
async fn fault_c02_nesting_within_the_limit_is_served() {
    let world = World::plain(Setup::new()).await;
    let deep = format!("{}{}", "[".repeat(120), "]".repeat(120));
    world
        .stream(&format!(r#","unknown":{deep}"#))
        .await
        .with_status(200);
    assert!(world.engine.only().text().contains(&deep));
    world.end().await;
}

#[tokio::test]
async fn fault_c03_numbers_out_of_range() {
    let digits = "7".repeat(1 << 20);
    let rows = [
        ("temperature", "1e999999999"),
        ("top_p", digits.as_str()),
        ("max_tokens", "9223372036854775808000"),
        ("max_completion_tokens", "1e400"),
        ("max_tokens", digits.as_str()),
        ("n", "18446744073709551616"),
        ("n", "1.5"),
        ("presence_penalty", "1e999"),
    ];
    let world = World::plain(Setup::new()).await;
    for (field, number) in rows {
        let fault = check(
            &world.stream(&format!(r#","{field}":{number}"#)).await,
            "invalid_value",
            field,
        );
        assert_eq!(fault.param.as_deref(), Some(field));
    }
    world.end_after(0).await;
}

#[tokio::test]
async fn fault_c04_duplicate_keys_of_what_samewire_reads() {
    let rows = [
        ("model", r#""model":"other""#),
        ("model", r#""mod\u0065l":"other""#),
        ("stream", r#""stream":false"#),
        ("stream", r#""stream":true"#),
        ("messages", r#""messages":[]"#),
        ("n", r#""n":1,"n":2"#),
        ("max_tokens", r#""max_tokens":1,"max_tokens":2"#),
        (
            "max_completion_tokens",
            r#""max_completion_tokens":1,"max_completion_tokens":2"#,
        ),
        (
            "stream_options",
            r#""stream_options":{},"stream_options":{"include_usage":true}"#,
        ),
        (
            "tool_choice",
            r#""tool_choice":"auto","tool_choice":"none""#,
        ),
        ("logprobs", r#""logprobs":true,"logprobs":false"#),
        (
            "include_usage",
            r#""stream_options":{"include_usage":true,"include_usage":false}"#,
        ),
        (
            "chat_template_kwargs",
            r#""chat_template_kwargs":{},"chat_template_kwargs":{"tokenize":true}"#,
        ),
        (
            "function",
            r#""tool_choice":{"type":"function","function":{"name":"a"},"function":{"name":"b"}}"#,
        ),
        (
            "name",
            r#""tool_choice":{"type":"function","function":{"name":"a","name":"b"}}"#,
        ),
    ];
    let world = World::plain(Setup::new()).await;
    for (field, more) in rows {
        let fault = check(
            &world.stream(&format!(",{more}")).await,
            "duplicate_key",
            more,
        );
        assert!(
            fault
                .param
                .as_deref()
                .is_some_and(|param| param.contains(field)),
            "{more}: {fault:?}"
        );
    }
    world.end_after(0).await;
}

/// Duplicate members are refused for each field of the published schemas, even fields that samewire ignores today.
#[tokio::test]
async fn fault_c04_every_field_of_the_api_twice() {
    let schemas = Schemas::load();
    let world = World::plain(Setup::new()).await;
    let mut count = 0;
    for (target, name) in [
        ("/v1/chat/completions", "CreateChatCompletionRequest"),
        ("/v1/completions", "CreateCompletionRequest"),
        ("/v1/responses", "CreateResponse"),
    ] {
        for field in schemas.members(name) {
            let body = format!(r#"{{"{field}":null,"{field}":null}}"#);
            let fault = check(&world.post(target, body).await, "duplicate_key", &field);
            assert_eq!(fault.param.as_deref(), Some(field.as_str()), "{target}");
            count += 1;
        }
    }
    for field in ["model", "input", "encoding_format", "dimensions", "user"] {
        let body = format!(r#"{{"{field}":"a","{field}":"b"}}"#);
        check(
            &world.post("/v1/embeddings", body).await,
            "duplicate_key",
            field,
        );
    }
    assert!(count > 70, "{count}");
    world.end_after(0).await;
}

#[tokio::test]
async fn fault_c05_body_over_the_limit() {
    const MIB: usize = 1 << 20;
    let world = World::plain(Setup::new()).await;
    for (target, limit) in [
        ("/v1/chat/completions", 32 * MIB),
        ("/v1/completions", MIB),
        ("/v1/embeddings", MIB),
    ] {
        // An announced length is refused before a byte of the body has been sent.
        for length in [limit + 1, usize::MAX / 4] {
            let request = Request::post(target, "").without("content-length");
            check_too_large(
                &world
                    .request(&request.header("content-length", &length.to_string()))
                    .await,
            );
        }
        let request = Request::post(target, " ".repeat(limit + 1)).chunked(512 * 1024);
        let mut client = Client::connect(world.proxy()).await;
        client.try_send(&request.bytes()).await;
        check_too_large(&client.answer().await);
    }
    // At the limit, the body is read and its content is judged.
    for size in [MIB - 1, MIB] {
        for request in [
            Request::post("/v1/completions", " ".repeat(size)),
            Request::post("/v1/completions", " ".repeat(size)).chunked(8192),
        ] {
            check(
                &world.request(&request).await,
                "invalid_json",
                "white space",
            );
        }
    }
    world.end_after(0).await;
}

fn check_too_large(answer: &Answer) {
    assert_eq!(
        answer.failure(),
        "413 invalid_request_error request_too_large"
    );
    assert_eq!(answer.head.header("connection"), Some("close"));
}

#[tokio::test]
async fn fault_c06_upload_after_a_refusal_is_not_read_for_ever() {
    let world = World::plain(Setup::new()).await;
    let before = world.samewire.allocated();
    let mut client = Client::connect(world.proxy()).await;
    let request = Request::chat("")
        .without("content-length")
        .header("content-length", "1073741824");
    client.send(&request.head_bytes()).await;
    let mut taken = 0_u64;
    let piece = vec![b' '; 64 * 1024];
    while taken < 64 << 20 && client.try_send(&piece).await {
        taken += piece.len() as u64;
    }
    assert!(taken < 64 << 20, "samewire reads on: {taken} bytes");
    assert!(
        world.samewire.allocated() < before + (4 << 20),
        "memory kept: {} -> {}",
        before,
        world.samewire.allocated()
    );
    world.end_after(0).await;
}

#[tokio::test]
async fn fault_c10_content_encodings() {
    let world = World::plain(Setup::new()).await;
    for encoding in [
        "gzip",
        "br",
        "zstd",
        "deflate",
        "gzip, gzip",
        "x-unknown",
        "identity, gzip",
        "GZIP",
    ] {
        let answer = world
            .request(&Request::stream("").header("content-encoding", encoding))
            .await;
        assert_eq!(
            answer.failure(),
            "415 invalid_request_error unsupported_content_encoding",
            "{encoding}"
        );
    }
    assert_eq!(world.engine.attempt_count(), 0);
    world
        .request(&Request::stream("").header("content-encoding", "identity"))
        .await
        .with_status(200);
    assert_eq!(world.engine.only().header("content-encoding"), None);
    world.end().await;
}

#[tokio::test]
async fn fault_c11_content_types() {
    const FORM: &str = "application/x-www-form-urlencoded";
    let world = World::plain(Setup::new()).await;
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded; charset=latin1",
        "multipart/form-data; boundary=x",
        "application/octet-stream",
        "text/html",
        "application/json; charset=latin1",
        "application/json; charset=utf-16",
        "application/jsonx",
        "garbage",
    ] {
        let answer = world
            .request(
                &Request::stream("")
                    .without("content-type")
                    .header("content-type", kind),
            )
            .await;
        assert_eq!(
            answer.failure(),
            "415 invalid_request_error unsupported_media_type",
            "{kind}"
        );
        let message = answer.fault().message;
        assert!(
            message.contains(&format!("'{kind}'")) && message.contains("application/json"),
            "{message}"
        );
    }
    // A body with the form content type that `curl -d` sends may really be a form.
    let form = Request::stream("")
        .without("content-type")
        .header("content-type", FORM);
    for body in ["model=m&prompt=CANARY", "\"text\"", "x{}"] {
        let answer = world
            .request(&form.clone().body(body))
            .await
            .with_status(415);
        assert!(
            answer.fault().message.contains(&format!("'{FORM}'")),
            "{}",
            answer.text()
        );
    }
    check(
        &world.request(&form.clone().body("{\"model\":")).await,
        "invalid_json",
        "JSON that breaks off",
    );
    check(
        &world.request(&form.body("")).await,
        "invalid_json",
        "nothing",
    );
    assert_eq!(world.engine.attempt_count(), 0);
    let good = [
        "application/json",
        "application/json;charset=utf-8",
        "Application/JSON ; charset=\"UTF-8\"",
    ];
    for kind in good {
        let answer = world
            .request(
                &Request::stream("")
                    .without("content-type")
                    .header("content-type", kind),
            )
            .await;
        assert_eq!(answer.head.status, 200, "{kind}: {}", answer.text());
    }
    let answer = world
        .request(&Request::stream("").without("content-type"))
        .await;
    assert_eq!(
        answer.head.status, 200,
        "a body without a type is read as JSON"
    );
    let form = Request::stream("")
        .without("content-type")
        .header("content-type", FORM);
    for request in [
        form.clone(),
        form.clone()
            .body([b"\xef\xbb\xbf\n", form.sent_body()].concat()),
    ] {
        world.request(&request).await.with_status(200);
    }
    let is_noted = |line: &&String| {
        line.contains("read as application/json") && line.contains(r#""status":200"#)
    };
    let noted = || {
        world
            .samewire
            .request_lines()
            .iter()
            .filter(is_noted)
            .count()
    };
    until("the log has a note on each", || noted() == 2).await;
    world.end().await;
}

#[tokio::test]
async fn fault_c12_invalid_text() {
    let document = |bytes: &[u8]| {
        let mut body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{PROMPT}"#)
            .into_bytes();
        body.extend_from_slice(bytes);
        body.extend_from_slice(br#""}],"stream":true}"#);
        body
    };
    let bad: [&[u8]; 11] = [
        b"\xff",
        b"\xc3",
        b"\xc0\xaf",
        b"\xe0\x80\x80",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xf0\x9f\x98",
        br"\ud800",
        br"\udc00",
        br"\ud83d\u0041",
        br"\ude00\ud83d",
    ];
    let world = World::plain(Setup::new()).await;
    for bytes in bad {
        check(
            &world.chat(document(bytes)).await,
            "invalid_utf8",
            &format!("{bytes:x?}"),
        );
    }
    // Invalid bytes in a key, and outside of any string.
    check(
        &world.chat(b"{\"\xff\":1}".to_vec()).await,
        "invalid_utf8",
        "a key",
    );
    check(
        &world.chat(b"\xfe\xff{}".to_vec()).await,
        "invalid_utf8",
        "UTF-16",
    );
    world.end_after(0).await;
}

#[tokio::test]
async fn fault_c12_legal_text_goes_on_as_it_came() {
    let world = World::plain(Setup::new()).await;
    let tail = r#","stream_options":{"include_usage":true},"user":"\u0000\u2028é\ud83d\ude00""#;
    let request = Request::stream(tail);
    let mut marked = b"\xef\xbb\xbf".to_vec();
    marked.extend_from_slice(request.sent_body());
    for body in [request.sent_body().to_vec(), marked] {
        world.chat(body).await.with_status(200);
    }
    assert!(
        world
            .engine
            .attempts()
            .iter()
            .all(|attempt| attempt.body == request.sent_body())
    );
    world.end().await;
}

#[tokio::test]
async fn fault_c13_wrong_types() {
    let whole = [
        (r#"{"model":"m","messages":"hi"}"#, "messages"),
        (r#"{"model":"m","messages":{}}"#, "messages"),
        (r#"{"model":"m","messages":[1]}"#, "messages[0]"),
        (
            r#"{"model":5,"messages":[{"role":"user","content":"a"}]}"#,
            "model",
        ),
        (
            r#"{"model":"m","messages":[{"role":"user","content":"a"},{"role":"user","content":"a"},{"role":"user","content":7}]}"#,
            "messages[2].content",
        ),
        (
            r#"{"model":"m","messages":[{"role":7,"content":"a"}]}"#,
            "messages[0].role",
        ),
    ];
    let members = [
        (r#""n":0"#, "n"),
        (r#""n":-1"#, "n"),
        (r#""n":"2""#, "n"),
        (r#""max_tokens":1e9"#, "max_tokens"),
        (r#""top_logprobs":-2"#, "top_logprobs"),
        (r#""tool_choice":"required""#, "tool_choice"),
        (
            r#""tools":[],"tool_choice":{"type":"function","function":{"name":"f"}}"#,
            "tool_choice",
        ),
        (r#""max_tokens":"5""#, "max_tokens"),
        (r#""max_tokens":0.5"#, "max_tokens"),
        (r#""max_completion_tokens":true"#, "max_completion_tokens"),
        (r#""temperature":"hot""#, "temperature"),
        (r#""top_p":[]"#, "top_p"),
        (r#""stop":5"#, "stop"),
        (r#""tools":{}"#, "tools"),
        (r#""tool_choice":5"#, "tool_choice"),
        (r#""logprobs":"yes""#, "logprobs"),
    ];
    let world = World::plain(Setup::new()).await;
    for (body, param) in whole {
        let fault = check(&world.chat(body).await, "invalid_value", body);
        assert_eq!(fault.param.as_deref(), Some(param), "{body}");
    }
    for (member, param) in members {
        let fault = check(
            &world.request(&Request::plain(&format!(",{member}"))).await,
            "invalid_value",
            member,
        );
        assert_eq!(fault.param.as_deref(), Some(param), "{member}");
    }
    for stream in [r#""true""#, "1", "[]", "{}"] {
        let fault = check(
            &world
                .request(&Request::plain(&format!(r#","stream":{stream}"#)))
                .await,
            "invalid_value",
            stream,
        );
        assert_eq!(fault.param.as_deref(), Some("stream"), "{stream}");
    }
    world.end_after(0).await;
}

#[tokio::test]
async fn missing_parameters_are_named() {
    let rows = [
        ("/v1/chat/completions", r#"{"model":"m"}"#, "messages"),
        (
            "/v1/chat/completions",
            r#"{"model":"m","messages":null}"#,
            "messages",
        ),
        ("/v1/completions", r#"{"model":"m"}"#, "prompt"),
        ("/v1/embeddings", r#"{"model":"m"}"#, "input"),
    ];
    let world = World::plain(Setup::new()).await;
    for (target, body, param) in rows {
        let fault = check(
            &world.post(target, body).await,
            "missing_required_parameter",
            body,
        );
        assert_eq!(fault.param.as_deref(), Some(param), "{body}");
    }
    world.end_after(0).await;
}

#[tokio::test]
async fn body_that_is_no_object_is_refused() {
    let world = World::plain(Setup::new()).await;
    for body in ["[]", "1", "null", "\"x\"", "true", "[{}]"] {
        let failure = world.chat(body).await.failure();
        assert!(
            failure.starts_with("400 invalid_request_error "),
            "{body}: {failure}"
        );
    }
    world.end_after(0).await;
}

#[tokio::test]
async fn fault_c33_fields_that_steer_the_engine() {
    let fields = [
        "request_id",
        "rid",
        "api_base",
        "base_url",
        "bootstrap_host",
        "bootstrap_port",
        "bootstrap_room",
        "kv_transfer_params",
        "data_parallel_rank",
        "chat_template",
        "return_hidden_states",
        "lora_path",
        "session_params",
    ];
    let world = World::plain(Setup::new()).await;
    for field in fields {
        let answer = world.stream(&format!(r#","{field}":"x""#)).await;
        assert_eq!(
            check(&answer, "forbidden_parameter", field)
                .param
                .as_deref(),
            Some(field)
        );
    }
    for inner in [
        "tokenize",
        "tokenizer",
        "conversation",
        "tools",
        "documents",
        "chat_template",
    ] {
        let answer = world
            .stream(&format!(r#","chat_template_kwargs":{{"a":1,"{inner}":1}}"#))
            .await;
        let param = format!("chat_template_kwargs.{inner}");
        assert_eq!(
            check(&answer, "forbidden_parameter", inner).param,
            Some(param)
        );
    }
    // Neither an escape in the name nor the clients' extra members get around the check.
    for (more, param) in [
        (r#","r\u0069d":"x""#, "rid"),
        (r#","requ\u0065st_id":"x""#, "request_id"),
        (
            r#","chat_template_kw\u0061rgs":{"t\u006fols":[]}"#,
            "chat_template_kwargs.tools",
        ),
        (r#","extra_body":{"lora_path":"x"}"#, "extra_body.lora_path"),
        (
            r#","extra_body":{"chat_template_kwargs":{"tokenize":true}}"#,
            "extra_body.chat_template_kwargs.tokenize",
        ),
        (
            r#","extra_body":{"extra_body":{"rid":1}}"#,
            "extra_body.extra_body.rid",
        ),
    ] {
        let fault = check(&world.stream(more).await, "forbidden_parameter", more);
        assert_eq!(fault.param.as_deref(), Some(param));
    }
    for (target, body) in [
        (
            "/v1/completions",
            r#"{"model":"m","prompt":"a","r\u0069d":"x"}"#,
        ),
        ("/v1/embeddings", r#"{"model":"m","input":"a","rid":"x"}"#),
        ("/v1/responses", r#"{"model":"m","input":"a","rid":"x"}"#),
        (
            "/v1/responses/input_tokens",
            r#"{"model":"m","input":"a","rid":"x"}"#,
        ),
        (
            "/v1/responses/compact",
            r#"{"model":"m","input":"a","rid":"x"}"#,
        ),
    ] {
        let fault = check(
            &world.post(target, body).await,
            "forbidden_parameter",
            target,
        );
        assert_eq!(fault.param.as_deref(), Some("rid"), "{target}");
    }
    world.end_after(0).await;
}

#[tokio::test]
async fn fault_c36_fields_that_contradict_each_other() {
    let world = World::plain(Setup::new()).await;
    let options = r#","stream_options":{"include_usage":true}"#;
    let rows = [
        (options.to_owned(), "stream_options"),
        (format!(r#"{options},"stream":false"#), "stream_options"),
    ];
    for (more, param) in rows {
        let fault = check(
            &world.request(&Request::plain(&more)).await,
            "invalid_value",
            &more,
        );
        assert_eq!(fault.param.as_deref(), Some(param), "{fault:?}");
    }
    world.end_after(0).await;
}

#[tokio::test]
async fn fault_c37_accept() {
    let world = World::plain(Setup::new()).await;
    for accept in ["text/html", "image/png, text/html;q=0.9", "application/xml"] {
        let answer = world
            .request(&Request::stream("").header("accept", accept))
            .await;
        assert_eq!(
            answer.failure(),
            "406 invalid_request_error not_acceptable",
            "{accept}"
        );
    }
    assert_eq!(world.engine.attempt_count(), 0);
    for accept in [
        "*/*",
        "application/json",
        "text/event-stream",
        "text/html, */*;q=0.1",
        "text/*",
        "application/*",
    ] {
        let answer = world
            .request(
                &Request::stream("")
                    .header("accept", accept)
                    .header("accept-encoding", "gzip, br"),
            )
            .await;
        assert_eq!(answer.head.status, 200, "{accept}: {}", answer.text());
        assert_eq!(answer.head.header("content-encoding"), None);
    }
    world.end().await;
}

#[tokio::test]
async fn fault_c39_expectations() {
    let world = World::plain(Setup::new()).await;
    let request = Request::stream("").header("expect", "100-continue");
    let mut client = Client::sending(world.proxy(), &request.head_bytes()).await;
    assert_eq!(client.head().await.status, 100, "the body is wanted");
    client.send(request.sent_body()).await;
    assert_eq!(client.answer().await.head.status, 200);
    assert_eq!(world.engine.only().header("expect"), None);
    let refused = [
        (Request::stream("").header("expect", "foo"), 417),
        (request.clone().target("/v1/nothing"), 404),
        (request.clone().header("content-encoding", "gzip"), 415),
        (
            request
                .clone()
                .without("content-length")
                .header("content-length", "99999999999"),
            413,
        ),
    ];
    for (request, status) in refused {
        let mut client = Client::sending(world.proxy(), &request.head_bytes()).await;
        let answer = client.answer().await;
        assert_eq!(
            answer.head.status,
            status,
            "no 100 before an error: {}",
            answer.text()
        );
        assert!(status != 417 || answer.fault().code.as_deref() == Some("expectation_failed"));
    }
    world.end_after(1).await;
}

/// A model name without limit is refused, because responses repeat the model in each frame.
#[tokio::test]
async fn fault_c46_a_model_with_a_name_without_end() {
    let world = World::plain(Setup::new()).await;
    let (fits, too_long) = ("é".repeat(512), "é".repeat(513));
    for (path, more) in [
        (
            "/v1/chat/completions",
            r#""messages":[{"role":"user","content":"a"}]"#,
        ),
        ("/v1/completions", r#""prompt":"a""#),
        ("/v1/embeddings", r#""input":"a""#),
        ("/v1/responses", r#""input":"a""#),
        ("/v1/score", r#""text_1":"a","text_2":"b""#),
    ] {
        let body = |model: &str| format!(r#"{{"model":"{model}",{more}}}"#);
        let refused = world.post(path, body(&too_long)).await;
        let fault = refused.fault();
        assert_eq!(
            (refused.head.status, fault.param.as_deref()),
            (400, Some("model")),
            "{path}: {}",
            refused.text()
        );
        assert!(refused.text().len() < 1000, "{path}: it is not repeated");
        let taken = world.post(path, body(&fits)).await;
        assert_ne!(taken.head.status, 400, "{path}: {}", taken.text());
    }
    world.end().await;
}
