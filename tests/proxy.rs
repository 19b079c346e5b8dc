//! Tests of the built binary on loopback, between a scripted engine and a raw client.
//!
//! Each test is named after what it checks; for a row of the fault matrix, the name begins with the row. No part of
//! samewire is replaced: the tested process is the one that users start. Every world ends with [`sim::World::end`],
//! which checks that nothing was left over and no secret was revealed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    unreachable_pub,
    missing_docs,
    dead_code,
    reason = "a test fails by panicking, and the fixtures offer more than one file of tests needs"
)]

#[path = "support/official/mod.rs"]
mod official;
#[path = "support/postgres/mod.rs"]
mod postgres;
#[path = "support/sim/mod.rs"]
mod sim;

#[cfg(feature = "otlp")]
#[path = "support/sim/collector.rs"]
mod collector;

#[path = "proxy/abuse.rs"]
mod abuse;
#[path = "proxy/answers.rs"]
mod answers;
#[path = "proxy/awaits.rs"]
mod awaits;
#[path = "proxy/azure.rs"]
mod azure;
#[path = "proxy/background.rs"]
mod background;
#[path = "proxy/bad_requests.rs"]
mod bad_requests;
#[path = "proxy/budget.rs"]
mod budget;
#[path = "proxy/canonical.rs"]
mod canonical;
#[path = "proxy/clocks.rs"]
mod clocks;
#[path = "proxy/compact.rs"]
mod compact;
#[path = "proxy/configuration.rs"]
mod configuration;
#[path = "proxy/connections.rs"]
mod connections;
#[path = "proxy/conversations.rs"]
mod conversations;
#[path = "proxy/cors.rs"]
mod cors;
#[path = "proxy/crashes.rs"]
mod crashes;
#[path = "proxy/cuts.rs"]
mod cuts;
#[path = "proxy/detection.rs"]
mod detection;
#[path = "proxy/disclosure.rs"]
mod disclosure;
#[path = "proxy/draining.rs"]
mod draining;
#[path = "proxy/elsewhere.rs"]
mod elsewhere;
#[path = "proxy/engine_errors.rs"]
mod engine_errors;
#[path = "proxy/engine_load.rs"]
mod engine_load;
#[path = "proxy/fan_out.rs"]
mod fan_out;
#[path = "proxy/fields.rs"]
mod fields;
#[path = "proxy/fixtures.rs"]
mod fixtures;
#[path = "proxy/floods.rs"]
mod floods;
#[path = "proxy/framing.rs"]
mod framing;
#[path = "proxy/h2_abuse.rs"]
mod h2_abuse;
#[path = "proxy/h2.rs"]
mod h2_streams;
#[path = "proxy/harmony.rs"]
mod harmony;
#[path = "proxy/health.rs"]
mod health;
#[path = "proxy/hold.rs"]
mod hold;
#[path = "proxy/hostile.rs"]
mod hostile;
#[path = "proxy/interleavings.rs"]
mod interleavings;
#[path = "proxy/keys.rs"]
mod keys;
#[path = "proxy/leaving.rs"]
mod leaving;
#[path = "proxy/limits.rs"]
mod limits;
#[path = "proxy/load.rs"]
mod load;
#[path = "proxy/log_lines.rs"]
mod log_lines;
#[path = "proxy/logs.rs"]
mod logs;
#[path = "proxy/loops.rs"]
mod loops;
#[path = "proxy/media.rs"]
mod media;
#[path = "proxy/models.rs"]
mod models;
#[path = "proxy/names.rs"]
mod names;
#[path = "proxy/native.rs"]
mod native;
#[path = "proxy/objects.rs"]
mod objects;
#[path = "proxy/oddities.rs"]
mod oddities;
#[path = "proxy/operators.rs"]
mod operators;
#[path = "proxy/parsers.rs"]
mod parsers;
#[path = "proxy/partition.rs"]
mod partition;
#[path = "proxy/patience.rs"]
mod patience;
#[path = "proxy/pool.rs"]
mod pool;
#[path = "proxy/promote.rs"]
mod promote;
#[path = "proxy/published.rs"]
mod published;
#[path = "proxy/quotas.rs"]
mod quotas;
#[path = "proxy/races.rs"]
mod races;
#[path = "proxy/ranges.rs"]
mod ranges;
#[path = "proxy/recorded.rs"]
mod recorded;
#[path = "proxy/refusals.rs"]
mod refusals;
#[path = "proxy/relayed.rs"]
mod relayed;
#[path = "proxy/relayed_uploads.rs"]
mod relayed_uploads;
#[path = "proxy/reload.rs"]
mod reload;
#[path = "proxy/replicas.rs"]
mod replicas;
#[path = "proxy/requests.rs"]
mod requests;
#[path = "proxy/responses.rs"]
mod responses;
#[path = "proxy/routes.rs"]
mod routes;
#[path = "proxy/scrapes.rs"]
mod scrapes;
#[path = "proxy/smuggling.rs"]
mod smuggling;
#[path = "proxy/sniffing.rs"]
mod sniffing;
#[path = "proxy/socket.rs"]
mod socket;
#[path = "proxy/socket_ends.rs"]
mod socket_ends;
#[path = "proxy/standstill.rs"]
mod standstill;
#[path = "proxy/stored.rs"]
mod stored;
#[path = "proxy/tls.rs"]
mod tls;
#[path = "proxy/tls_upstream.rs"]
mod tls_upstream;
#[path = "proxy/tool_outputs.rs"]
mod tool_outputs;
#[cfg(feature = "otlp")]
#[path = "proxy/traces.rs"]
mod traces;
#[path = "proxy/traffic.rs"]
mod traffic;
#[path = "proxy/truncation.rs"]
mod truncation;
#[path = "proxy/unnamed.rs"]
mod unnamed;
#[path = "proxy/upgrades.rs"]
mod upgrades;
#[path = "proxy/uploads.rs"]
mod uploads;
#[path = "proxy/upstream_h2.rs"]
mod upstream_h2;
#[path = "proxy/waiting.rs"]
mod waiting;
