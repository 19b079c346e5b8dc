//! Media URLs in requests: an engine gets only URLs that may be fetched, in normalised spelling (faults C34).

use crate::responses::over_chat::{ask, engine, events, last, object};
use crate::responses::socket::create;
use crate::sim::prelude::*;

const BAD: &str = "http://169.254.169.254/latest/CANARY";
const GOOD: &str = "https://example.com/a.png";
/// Unusual spelling of the same URL.
const ODD: &str = r"HTTPS:\/\/EXAMPLE.com:443/x/../a.png";
const DATA: &str = "data:image/png;base64,iVBORw0KGgo=";

/// Returns a chat request with this content in the message of a role.
fn content(role: &str, parts: &str) -> Request {
    Request::chat(format!(
        r#"{{"model":"m","messages":[{{"role":"system","content":"s"}},{{"role":"{role}","tool_call_id":"c1","content":{parts}}}]}}"#
    ))
}

async fn chat_engine() -> Engine {
    Engine::answering(|attempt| match attempt.target.as_str() {
        "/v1/embeddings" => Script::ok(r#"{"object":"list","model":"m","data":[{"object":"embedding","index":0,"embedding":[0.5]}],"usage":{"prompt_tokens":1,"total_tokens":1}}"#),
        _ => Script::completion("x"),
    })
    .await
}

/// Returns the code and parameter of an error, which must not contain the URL.
async fn refused(world: &World, request: &Request) -> (String, String) {
    let answer = world.request(request).await;
    assert_eq!(
        answer.head.status,
        400,
        "{}: {}",
        request.path(),
        answer.text()
    );
    assert!(
        !answer.text().contains("CANARY") && !answer.text().contains("169.254"),
        "{}",
        answer.text()
    );
    let fault = answer.fault();
    (fault.code.unwrap(), fault.param.unwrap())
}

/// Chat content parts with a URL in each, and the path to it.
const PARTS: &[(&str, &str)] = &[
    (
        r#"{"type":"image_url","image_url":{"url":URL,"detail":"low"}}"#,
        "image_url.url",
    ),
    (r#"{"type":"image_url","image_url":URL}"#, "image_url"),
    (r#"{"image_url":{"url":URL}}"#, "image_url.url"),
    (
        r#"{"type":"image_url","image\u005furl":{"\u0075rl":URL}}"#,
        "image_url.url",
    ),
    (
        r#"{"type":"image_url","image_url":{"url":"https://example.com/","url":URL}}"#,
        "image_url.url",
    ),
    (r#"{"type":"input_image","image_url":URL}"#, "image_url"),
    (
        r#"{"type":"video_url","video_url":{"url":URL}}"#,
        "video_url.url",
    ),
    (
        r#"{"type":"audio_url","audio_url":{"url":URL}}"#,
        "audio_url.url",
    ),
    (
        r#"{"type":"input_audio","input_audio":{"data":URL,"format":"wav"}}"#,
        "input_audio.data",
    ),
    (
        r#"{"type":"file","file":{"filename":"a.pdf","file_data":URL}}"#,
        "file.file_data",
    ),
    (r#"{"type":"input_file","file_url":URL}"#, "file_url"),
    (r#"{"type":"image","image":URL}"#, "image"),
    (r#"{"type":"image","url":URL}"#, "url"),
    (
        r#"{"type":"video","video":["https://example.com/1",URL]}"#,
        "video[1]",
    ),
    (
        r#"{"type":"point_cloud","point_cloud_url":{"url":URL}}"#,
        "point_cloud_url.url",
    ),
];

#[tokio::test]
async fn fault_c34_addresses_in_a_chat() {
    // Engine that accepts content parts of every kind.
    let world = World::start_as(chat_engine(), "generic", Setup::new()).await;
    for role in ["user", "tool", "assistant", "developer"] {
        for (part, way) in PARTS {
            let bad = part.replace("URL", &json_string(BAD));
            let request = content(
                role,
                &format!(r#"[{{"type":"text","text":"{BAD}"}},"{BAD}",{bad}]"#),
            );
            let expected = (
                "forbidden_media_url".to_owned(),
                format!("messages[1].content[2].{way}"),
            );
            assert_eq!(refused(&world, &request).await, expected, "{role} {part}");
        }
    }
    assert_eq!(world.engine.attempt_count(), 0);
    // An accepted URL is sent in the spelling that was checked; every other byte stays.
    for (at, (part, _)) in PARTS.iter().enumerate() {
        let parts = |url: &str| {
            format!(
                r#"[ {{"type":"text","text":"{BAD}" ,"z":1.50}},  {} ]"#,
                part.replace("URL", &format!("\"{url}\""))
            )
        };
        let answer = world.request(&content("user", &parts(ODD))).await;
        assert_eq!(answer.head.status, 200, "{part}: {}", answer.text());
        let sent = content("user", &parts(GOOD));
        assert_eq!(
            world.engine.attempts()[at].text().as_bytes(),
            sent.sent_body(),
            "{part}"
        );
    }
    world.end().await;
}

#[tokio::test]
async fn fault_c34_embeddings_and_what_is_no_media() {
    let world = World::start(chat_engine(), Setup::new()).await;
    let embed = |more: &str| Request::post("/v1/embeddings", format!(r#"{{"model":"m",{more}}}"#));
    for (more, param) in [
        (
            format!(r#""input":[{{"text":"a","image":"{BAD}"}}]"#),
            "input[0].image",
        ),
        (
            format!(
                r#""input":"a","messages":[{{"role":"user","content":[{{"type":"image_url","image_url":{{"url":"{BAD}"}}}}]}}]"#
            ),
            "messages[0].content[0].image_url.url",
        ),
    ] {
        assert_eq!(
            refused(&world, &embed(&more)).await,
            ("forbidden_media_url".to_owned(), param.to_owned())
        );
    }
    let body = |url: &str| {
        embed(&format!(
            r#""input":[{{"text":"{BAD}","image":"{url}"}}] , "zz":1"#
        ))
    };
    assert_eq!(world.request(&body(ODD)).await.head.status, 200);
    assert_eq!(
        world.engine.only().text().as_bytes(),
        body(GOOD).sent_body()
    );
    // URLs in texts, calls and schemas are not fetched, so they are not checked.
    let request = Request::chat(format!(
        r#"{{"model":"m","messages":[{{"role":"user","content":"{BAD}"}},{{"role":"assistant","content":[{{"type":"text","text":"{BAD}","annotations":[{{"type":"url_citation","url_citation":{{"url":"{BAD}"}}}}]}}],"tool_calls":[{{"id":"c1","type":"function","function":{{"name":"f","arguments":"{{\"image_url\":\"{BAD}\"}}"}}}}]}},{{"role":"tool","tool_call_id":"c1","content":"{BAD}"}}],"tools":[{{"type":"function","function":{{"name":"f","parameters":{{"image_url":"{BAD}"}}}}}}]}}"#
    ));
    assert_eq!(world.request(&request).await.head.status, 200);
    assert_eq!(
        world.engine.attempts()[1].text().as_bytes(),
        request.sent_body()
    );
    world.end().await;
}

#[tokio::test]
async fn fault_c34_only_data_and_only_these_hosts() {
    let image = |url: &str| {
        content(
            "user",
            &format!(r#"[{{"type":"image_url","image_url":{{"url":"{url}"}}}}]"#),
        )
    };
    let param = "messages[1].content[0].image_url.url";
    /// Setting, URLs accepted under it, and URLs refused, each with its code.
    type Row = (
        &'static str,
        &'static [&'static str],
        &'static [(&'static str, &'static str)],
    );
    let table: [Row; 3] = [
        (
            r#""data""#,
            &[DATA],
            &[
                (GOOD, "remote_media_disabled"),
                (BAD, "remote_media_disabled"),
                ("file:///etc/passwd", "remote_media_disabled"),
                ("data:text/html;base64,x", "forbidden_media_url"),
            ],
        ),
        (
            r#"["Media.Example.com", "169.254.0.1"]"#,
            &[
                DATA,
                "https://media.example.com/a",
                "http://169.254.0.1:9000/a",
            ],
            &[
                (GOOD, "forbidden_media_url"),
                (BAD, "forbidden_media_url"),
                ("https://a.media.example.com/", "forbidden_media_url"),
                ("https://user@media.example.com/", "forbidden_media_url"),
            ],
        ),
        ("[]", &[DATA], &[(GOOD, "forbidden_media_url")]),
    ];
    for (value, good, bad) in table {
        let setup = Setup::new().config(&format!("[requests]\nmedia_urls = {value}\n"));
        let world = World::start(chat_engine(), setup).await;
        for url in good {
            assert_eq!(
                world.request(&image(url)).await.head.status,
                200,
                "{value} {url}"
            );
        }
        for (url, code) in bad {
            assert_eq!(
                refused(&world, &image(url)).await,
                ((*code).to_owned(), param.to_owned()),
                "{value} {url}"
            );
        }
        assert_eq!(world.engine.attempt_count(), good.len());
        world.end().await;
    }
}

/// Responses items with this URL, and the path to it.
const ITEMS: &[(&str, &str)] = &[
    (
        r#"{"role":"user","content":[{"type":"input_image","image_url":"URL"}]}"#,
        "content[0].image_url",
    ),
    (
        r#"{"type":"message","role":"developer","content":[{"type":"input_file","file_data":"URL"}]}"#,
        "content[0].file_data",
    ),
    (
        r#"{"type":"function_call_output","call_id":"c1","output":[{"type":"input_text","text":"a"},{"type":"input_image","image_url":"URL"}]}"#,
        "output[1].image_url",
    ),
    (
        r#"{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"URL","format":"wav"}}]}"#,
        "content[0].input_audio.data",
    ),
    (
        r#"{"type":"custom_tool_call_output","call_id":"c1","output":[{"type":"input_file","file_data":"URL"}]}"#,
        "output[0].file_data",
    ),
];

const CALL: &str = r#"{"type":"function_call","call_id":"c1","name":"f","arguments":"{}"}"#;

#[tokio::test]
async fn fault_c34_addresses_in_responses() {
    // Engine that accepts content parts of every kind.
    let world = World::start_as(engine(), "generic", Setup::new()).await;
    let input = |item: &str| format!(r#""model":"text","input":[{CALL},{item}]"#);
    let mut socket = Socket::open(world.proxy()).await;
    for (item, way) in ITEMS {
        let bad = input(&item.replace("URL", BAD));
        let (code, param) = ("forbidden_media_url".to_owned(), format!("input[1].{way}"));
        for target in [
            "/v1/responses",
            "/v1/responses/input_tokens",
            "/v1/responses/compact",
        ] {
            let request = Request::post(target, format!("{{{bad}}}"));
            assert_eq!(
                refused(&world, &request).await,
                (code.clone(), param.clone()),
                "{target} {item}"
            );
        }
        socket.send(&create(&bad)).await;
        assert_eq!(socket.refused().await, (400, code.clone(), param), "{item}");
        let items = Request::post(
            "/v1/conversations",
            format!(r#"{{"items":[{CALL},{}]}}"#, item.replace("URL", BAD)),
        );
        assert_eq!(
            refused(&world, &items).await,
            (code, format!("items[1].{way}")),
            "{item}"
        );
    }
    assert_eq!(world.engine.attempt_count(), 0);
    for (at, (item, _)) in ITEMS.iter().enumerate() {
        object(
            &world
                .request(&ask(
                    &(input(&item.replace("URL", ODD)) + r#","store":false"#)
                ))
                .await,
        );
        let sent = world.engine.attempts()[2 * at].text().to_owned();
        assert!(
            sent.contains(&format!("\"{GOOD}\"")) && !sent.contains("EXAMPLE"),
            "{sent}"
        );
        socket
            .exchange(&create(&input(&item.replace("URL", ODD))))
            .await;
        let again = world.engine.attempts()[2 * at + 1].text().to_owned();
        assert!(
            again.contains(&format!("\"{GOOD}\"")) && !again.contains("EXAMPLE"),
            "{again}"
        );
    }
    world.end().await;
}

#[tokio::test]
async fn fault_c34_outputs_that_are_handed_in() {
    let world = World::start(engine(), Setup::new()).await;
    let tools = crate::responses::over_chat::TOOLS;
    let first = object(
        &world
            .request(&ask(&format!(r#""model":"tools","input":"a",{tools}"#)))
            .await,
    );
    let target = format!(
        "/v1/responses/{}/tool_outputs",
        first["id"].as_str().unwrap()
    );
    let output = |url: &str| format!(r#""output":[{{"type":"input_image","image_url":"{url}"}}]"#);
    for (body, param) in [
        (
            format!(r#"{{"tool_call_id":"call_1",{}}}"#, output(BAD)),
            "output[0].image_url",
        ),
        (
            format!(
                r#"{{"tool_outputs":[{{"tool_call_id":"call_2","output":"a"}},{{"tool_call_id":"call_1",{}}}]}}"#,
                output(BAD)
            ),
            "tool_outputs[1].output[0].image_url",
        ),
    ] {
        let expected = ("forbidden_media_url".to_owned(), param.to_owned());
        assert_eq!(
            refused(&world, &Request::post(&target, body)).await,
            expected
        );
    }
    let all = format!(
        r#"{{"tool_outputs":[{{"tool_call_id":"call_1",{}}},{{"tool_call_id":"call_2","output":"a"}},{{"tool_call_id":"call_3","output":"b"}}],"stream":true}}"#,
        output(ODD)
    );
    last(&events(&world.post(&target, all).await));
    let sent = world.engine.attempts()[1].json();
    let tool = sent["messages"]
        .as_array()
        .unwrap()
        .iter()
        .find(|message| message["tool_call_id"] == "call_1");
    assert_eq!(
        tool.unwrap()["content"],
        json!([{"type":"image_url","image_url":{"url":GOOD,"detail":"auto"}}])
    );
    world.end().await;
}

/// Stored items are checked by the rules in force now, not by those at the time they were stored.
#[tokio::test]
async fn fault_c34_earlier_items() {
    let folder = Folder::new();
    let world = World::start(engine(), Setup::stored(&folder)).await;
    let item = r#"{"role":"user","content":[{"type":"input_image","image_url":"URL"}]}"#
        .replace("URL", ODD);
    let first = object(
        &world
            .request(&ask(&format!(r#""model":"text","input":[{item}]"#)))
            .await,
    );
    let kept = object(
        &world
            .post("/v1/conversations", format!(r#"{{"items":[{item}]}}"#))
            .await,
    );
    let (first, kept) = (first["id"].as_str().unwrap(), kept["id"].as_str().unwrap());
    let onward = [
        (
            ask(&format!(
                r#""model":"text","input":"b","previous_response_id":"{first}""#
            )),
            "previous_response_id",
        ),
        (
            ask(&format!(
                r#""model":"text","input":"b","conversation":"{kept}""#
            )),
            "conversation",
        ),
    ];
    for (at, (request, _)) in onward.iter().enumerate() {
        object(&world.request(request).await);
        assert!(
            world.engine.attempts()[at + 1]
                .text()
                .contains(&format!("\"{GOOD}\""))
        );
    }
    // The client reads the URL as it wrote it.
    let items = object(
        &world
            .get(&format!("/v1/responses/{first}/input_items"))
            .await,
    );
    assert_eq!(
        items["data"][0]["content"][0]["image_url"],
        "HTTPS://EXAMPLE.com:443/x/../a.png"
    );
    world.end().await;
    let strict = Setup::stored(&folder).config("[requests]\nmedia_urls = \"data\"\n");
    let world = World::start(engine(), strict).await;
    for (request, param) in &onward {
        assert_eq!(
            refused(&world, request).await,
            ("remote_media_disabled".to_owned(), (*param).to_owned())
        );
    }
    world.end_after(0).await;
}

/// An engine with the Responses API gets the items of hosted tools unchanged, but for their URLs.
#[tokio::test]
async fn fault_c34_items_of_hosted_tools() {
    let setup = Setup::new().upstream_keys("responses = \"native\"");
    let script = Script::ok(
        r#"{"id":"resp_1","object":"response","created_at":1,"status":"completed","model":"m","output":[],"usage":null}"#,
    );
    let world = World::start_as(script, "generic", setup).await;
    let input = |url: &str| {
        ask(&format!(
            r#""model":"m","store":false,"input":[{{"role":"user","content":"a"}},{{"type":"computer_call_output","call_id":"c1","output":{{"type":"computer_screenshot","image_url":"{url}"}}}},{{"type":"web_search_call","id":"w","status":"completed","action":{{"type":"open_page","url":"{BAD}"}}}}]"#
        ))
    };
    let tool = |url: &str| {
        ask(&format!(
            r#""model":"m","store":false,"input":"a","tools":[{{"type":"image_generation","input_image_mask":{{"image_url":"{url}"}}}},{{"type":"mcp","server_url":"http://10.0.0.1/"}}]"#
        ))
    };
    for (request, way) in [
        (input(BAD), "input[1].output"),
        (tool(BAD), "tools[0].input_image_mask"),
    ] {
        let expected = ("forbidden_media_url".to_owned(), format!("{way}.image_url"));
        assert_eq!(refused(&world, &request).await, expected);
    }
    assert_eq!(world.request(&input(ODD)).await.head.status, 200);
    assert_eq!(world.request(&tool(ODD)).await.head.status, 200);
    let attempts = world.engine.attempts();
    let sent = attempts[1].json();
    assert_eq!(sent["tools"][0]["input_image_mask"]["image_url"], GOOD);
    assert_eq!(sent["tools"][1]["server_url"], "http://10.0.0.1/");
    let sent = attempts[0].json();
    assert_eq!(sent["input"][1]["output"]["image_url"], GOOD);
    assert_eq!(sent["input"][2]["action"]["url"], BAD);
    world.end().await;
}
