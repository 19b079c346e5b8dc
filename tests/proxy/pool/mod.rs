//! Pool of engines: which of them gets a request, and who answers when one fails.

mod choice;
mod discovery;
mod elsewhere;
mod engine_load;
mod fallbacks;
mod health;
mod names;
mod prefixes;
mod traffic;

use crate::sim::prelude::*;
use std::collections::BTreeSet;

/// Settings by which failures never take an engine out of service.
pub(crate) const PATIENT: &str = "[health]\ninterval = 60\ndown_after = 100000";

fn refused(status: &str) -> Script {
    Script::new().json(
        status,
        r#"{"error":{"message":"no","type":"server_error","code":null}}"#,
    )
}

/// Returns the models named in the requests that an engine received.
fn requested(engine: &Engine) -> BTreeSet<String> {
    engine
        .attempts()
        .iter()
        .map(|attempt| attempt.json()["model"].as_str().unwrap().to_owned())
        .collect()
}

/// Opens this many streams and keeps them open.
async fn open_streams(world: &World, request: &Request, streams: usize) -> Vec<Client> {
    let mut clients = Vec::new();
    let before = world.attempt_counts().iter().sum::<usize>();
    for n in 1..=streams {
        let client = world.send(request).await;
        until("it has the request", || {
            world.attempt_counts().iter().sum::<usize>() >= before + n
        })
        .await;
        clients.push(client);
    }
    clients
}

/// Opens the gate of streams, and reads them to their ends.
async fn let_go(gate: &Gate, clients: Vec<Client>) {
    gate.open();
    for mut client in clients {
        client.head().await;
        client.rest().await;
    }
}
