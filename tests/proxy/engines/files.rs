//! Files in the parts of messages, for engines that take none: text files are sent as text.

use crate::responses::over_chat::ask;
use crate::sim::prelude::*;

const TEXT: &str = r#""filename":"a.md","file_data":"data:text/markdown;base64,IyBh""#;
const PDF: &str = r#""filename":"a.pdf","file_data":"data:application/pdf;base64,JVBERi0xLjQ=""#;

fn chat(file: &str) -> Request {
    Request::chat(format!(
        r#"{{"model":"m","messages":[{{"role":"user","content":[{{"type":"text","text":"b"}},{{"type":"file","file":{{{file}}}}}]}}]}}"#
    ))
}

fn response(file: &str) -> Request {
    ask(&format!(
        r#""model":"m","input":[{{"role":"user","content":[{{"type":"input_text","text":"b"}},{{"type":"input_file",{file}}}]}}]"#
    ))
}

#[tokio::test]
async fn one_rule_holds_for_chat_and_responses() {
    let world = World::start(Script::completion("x"), Setup::new()).await;
    for (at, request) in [chat(TEXT), response(TEXT)].iter().enumerate() {
        world.request(request).await.with_status(200);
        let sent = world.engine.attempts()[at].json();
        let content = json!([{"type": "text", "text": "b"}, {"type": "text", "text": "a.md\n# a"}]);
        assert_eq!(
            sent["messages"],
            json!([{"role": "user", "content": content}])
        );
    }
    for (request, param, kind) in [
        (chat(PDF), "messages[0].content[1].type", "file"),
        (
            chat(r#""file_id":"file-1""#),
            "messages[0].content[1].type",
            "file",
        ),
        (response(PDF), "input", "input_file"),
        (response(r#""file_id":"file-1""#), "input", "input_file"),
    ] {
        let fault = world.request(&request).await.fault();
        assert_eq!(
            fault.name(),
            ("invalid_request_error", Some("unsupported_value"))
        );
        assert_eq!(fault.param.as_deref(), Some(param));
        let message = format!(
            "Unsupported value for '{param}': the engine takes no parts of type {kind}, and this one is neither text nor a \
             file of /v1/files."
        );
        assert_eq!(fault.message, message);
    }
    world.end_after(2).await;
}
