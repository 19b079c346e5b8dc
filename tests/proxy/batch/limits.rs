//! Memory that large batches take.

use super::{create, echo, line, object, until_batch, upload};
use crate::responses::stored::Folder;
use crate::sim::{Client, Engine, Gate, PATIENCE, Request, Samewire, Script, Setup, until};

const LINES: usize = 200_000;

/// Blank lines take no memory, also behind a line that takes long: they are one range of lines that are done.
#[tokio::test]
async fn fault_o37_blank_lines_take_no_memory() {
    let (gate, folder) = (Gate::default(), Folder::new());
    let held = gate.clone();
    let engine = Engine::answering(move |attempt| match super::prompt_of(attempt).as_str() {
        "wait" => super::echo_after(Script::new().wait(&held), attempt),
        _ => echo(attempt),
    })
    .await;
    let store = format!("sqlite:{}", folder.file().display());
    let setup =
        Setup::new().config("[batch]\nenabled = true\n").args(&["--store", &store, "--engine", "vllm"]);
    let samewire = Samewire::start(&setup.upstream(&engine.url())).await;
    let proxy = samewire.proxy;
    let input = format!("{}{}{}", line("a", "wait"), "\n".repeat(3 << 19), line("b", "quick"));
    let mut client = Client::connect(proxy).await.with_patience(PATIENCE * 6);
    client.send(&upload(&input).bytes()).await;
    let file = super::json(client.answer().await.text())["id"].as_str().unwrap().to_owned();
    let before = samewire.allocated();
    let made = object(proxy, create(&file, "/v1/chat/completions")).await;
    let id = made["id"].as_str().unwrap();
    // The line behind them is run once all of them have been read.
    until("all of them are read", PATIENCE * 6, || engine.attempt_count() == 2).await;
    let grown = samewire.allocated().saturating_sub(before);
    println!("{grown} bytes of memory");
    assert!(grown < 16 << 20, "{grown} bytes");
    gate.open();
    let over = super::ended(proxy, id).await;
    assert_eq!(over["request_counts"], super::json(r#"{"total":2,"completed":2,"failed":0}"#), "{over}");
    assert_eq!(super::results(proxy, &over["output_file_id"]).await.len(), 2);
}

#[tokio::test]
async fn fault_o37_a_large_file_takes_little_memory() {
    let (engine, folder) = (Engine::answering(echo).await, Folder::new());
    let store = format!("sqlite:{}", folder.file().display());
    let setup =
        Setup::new().config("[batch]\nenabled = true\n").args(&["--store", &store, "--engine", "vllm"]);
    let samewire = Samewire::start(&setup.upstream(&engine.url())).await;
    let proxy = samewire.proxy;
    let before = samewire.allocated();
    let input: String = (0..LINES).map(|n| line(&format!("id-{n}"), &"x".repeat(100))).collect();
    let mut client = Client::connect(proxy).await.with_patience(PATIENCE * 6);
    client.send(&upload(&input).bytes()).await;
    let answer = client.answer().await;
    assert_eq!(answer.head.status, 200, "{}", answer.text());
    let file = super::json(answer.text())["id"].as_str().unwrap().to_owned();
    let made = object(proxy, create(&file, "/v1/chat/completions")).await;
    let id = made["id"].as_str().unwrap();
    let run =
        until_batch(proxy, id, "running", |batch| batch["request_counts"]["completed"].as_u64() >= Some(500))
            .await;
    assert_eq!(run["request_counts"]["total"], LINES);
    let grown = samewire.allocated().saturating_sub(before);
    println!("{} bytes of input, {grown} bytes of memory", input.len());
    assert!(input.len() > 40 << 20, "{}", input.len());
    assert!(grown < 64 << 20, "{grown} bytes more for {} bytes of input", input.len());
    object(proxy, Request::post(&format!("/v1/batches/{id}/cancel"), "")).await;
    until_batch(proxy, id, "over", super::is_over).await;
    // The whole content comes back.
    let mut client = Client::connect(proxy).await.with_patience(PATIENCE * 6);
    client.send(&Request::get(&format!("/v1/files/{file}/content")).bytes()).await;
    assert_eq!(client.answer().await.text(), input);
}
