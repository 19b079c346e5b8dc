//! Builds of different versions on one store (fault O26). Data of another build is in `fixtures/store`: statements
//! that recreate its database, and the responses it gave for it. Every published version stays readable: a new
//! version adds its files and changes none.

use crate::responses::over_chat::{chunk, object};
use crate::sim::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;

const VERSIONS: [&str; 1] = ["sqlite-1"];

fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures/store")
        .join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[tokio::test]
async fn fault_o26_what_every_version_has_stored_is_read_and_continued() {
    for version in VERSIONS {
        let folder = Folder::new();
        let database = rusqlite::Connection::open(folder.path("store.db")).unwrap();
        // The statements are sorted by table name, so foreign keys are checked later.
        database.pragma_update(None, "foreign_keys", false).unwrap();
        database
            .execute_batch(&fixture(&format!("{version}.sql")))
            .unwrap();
        // The records must not expire, however old this fixture becomes.
        database
            .execute("UPDATE samewire_records SET expires = 32503680000000", [])
            .unwrap();
        // A column added by a later version must survive writes of this one.
        database
            .execute_batch("ALTER TABLE samewire_records ADD COLUMN novelty TEXT; UPDATE samewire_records SET novelty = 'kept'")
            .unwrap();
        let told: BTreeMap<String, String> =
            serde_json::from_str(&fixture(&format!("{version}.json"))).unwrap();
        let engine = Engine::in_turn(vec![Script::answer("a", 2), another()]).await;
        let world = World::start(engine, Setup::stored(&folder)).await;
        for (path, was) in &told {
            let answer = world.request(&keyless(Request::get(path))).await;
            assert_eq!(
                (answer.head.status, answer.text()),
                (200, was.as_str()),
                "{version}: {path}"
            );
        }
        // The response that called a tool can be continued, and so can the conversation.
        let calls = told.iter().find(|(path, was)| {
            path.matches('/').count() == 3 && was.contains("\"function_call\"")
        });
        let (path, _) = calls.expect("a response with a call");
        let previous = path.rsplit('/').next().unwrap();
        let output = json!([{"type": "function_call_output", "call_id": call_id(&told[path]), "output": "3"}]);
        let next = json!({"model": "m", "input": output, "previous_response_id": previous});
        assert_eq!(
            object(
                &world
                    .request(&keyless(Request::post("/v1/responses", next.to_string())))
                    .await
            )["status"],
            "completed"
        );
        let messages = world.engine.only().json();
        let roles: Vec<_> = messages["messages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|message| &message["role"])
            .collect();
        assert_eq!(
            roles,
            ["user", "assistant", "user", "assistant", "tool"],
            "{messages}"
        );
        let conversation = told
            .keys()
            .find(|path| path.starts_with("/v1/conversations/") && path.matches('/').count() == 3);
        let conversation = conversation
            .expect("a conversation")
            .rsplit('/')
            .next()
            .unwrap();
        let next = json!({"model": "m", "input": "More", "conversation": conversation});
        assert_eq!(
            object(
                &world
                    .request(&keyless(Request::post("/v1/responses", next.to_string())))
                    .await
            )["status"],
            "completed"
        );
        let items = object(
            &world
                .request(&keyless(Request::get(&format!(
                    "/v1/conversations/{conversation}/items"
                ))))
                .await,
        );
        let before: Value =
            serde_json::from_str(&told[&format!("/v1/conversations/{conversation}/items")])
                .unwrap();
        assert!(
            items["data"].as_array().unwrap().len() > before["data"].as_array().unwrap().len(),
            "{items}"
        );
        let kept = "SELECT COUNT(*) FROM samewire_records WHERE novelty = 'kept'";
        let kept: i64 = database.query_row(kept, [], |row| row.get(0)).unwrap();
        assert!(kept >= 5, "{kept}");
        world.end().await;
    }
}

/// Removes the key from a request: the stored responses belong to no key.
fn keyless(request: Request) -> Request {
    request.without("authorization")
}

/// Returns an answer under another id.
fn another() -> Script {
    let text = chunk("chatcmpl-2", r#"{"content":"b"}"#, "null");
    Script::new()
        .head_sse()
        .ev(&text)
        .ev(&chunk("chatcmpl-2", "{}", "\"stop\""))
        .done()
        .end()
}

fn call_id(response: &str) -> String {
    let response: Value = serde_json::from_str(response).unwrap();
    let items = response["output"].as_array().unwrap();
    let call = items
        .iter()
        .find(|item| item["type"] == "function_call")
        .expect("a call");
    call["call_id"].as_str().unwrap().to_owned()
}
