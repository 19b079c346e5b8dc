//! Tables `[limits]` and `[timeouts]`: every limit in bytes, numbers and time, with its valid range.

use super::mistakes::Mistakes;
use super::values::Seconds;
use crate::quantity::read_size;
use serde::{Deserialize, Serialize};

/// Upper bound for limits in numbers, far above any useful value.
pub(super) const NUMBER: usize = 1_000_000;
/// Largest flow-control window that HTTP/2 allows.
const WINDOW: usize = (1 << 31) - 1;
/// Upper bound for limits in bytes, far above any useful value.
pub(super) const BYTES: usize = 1 << 40;

/// Table `[limits]`: limits in bytes and numbers, which bound the memory that clients and engines can occupy.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "config/samewire.toml explains each key, and a test holds it to that")]
pub struct Limits {
    #[serde(deserialize_with = "read_size")]
    pub max_body_bytes: usize,
    #[serde(deserialize_with = "read_size")]
    pub other_body_bytes: usize,
    #[serde(deserialize_with = "read_size")]
    pub relay_body_bytes: usize,
    #[serde(deserialize_with = "read_size")]
    pub relay_buffer_bytes: usize,
    #[serde(deserialize_with = "read_size")]
    pub max_head_bytes: usize,
    pub max_headers: usize,
    #[serde(deserialize_with = "read_size")]
    pub max_event_bytes: usize,
    #[serde(deserialize_with = "read_size")]
    pub max_answer_bytes: usize,
    #[serde(deserialize_with = "read_size")]
    pub max_error_bytes: usize,
    #[serde(deserialize_with = "read_size")]
    pub stream_buffer_bytes: usize,
    pub connections: usize,
    pub requests: usize,
    pub max_json_depth: usize,
    pub max_messages: usize,
    pub max_tools: usize,
    pub max_stop_strings: usize,
    pub max_metadata_pairs: usize,
    pub max_choices: usize,
    pub max_logprobs: usize,
    #[serde(deserialize_with = "read_size")]
    pub max_uri_bytes: usize,
    #[serde(deserialize_with = "read_size")]
    pub bodies_in_flight_bytes: usize,
    #[serde(deserialize_with = "read_size")]
    pub memory_bytes: usize,
    pub background_running: usize,
    pub background_queued: usize,
    pub h2_streams: usize,
    pub h2_resets: usize,
    #[serde(deserialize_with = "read_size")]
    pub h2_stream_window_bytes: usize,
    #[serde(deserialize_with = "read_size")]
    pub h2_connection_window_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_body_bytes: 32 << 20,
            other_body_bytes: 1 << 20,
            relay_body_bytes: 512 << 20,
            relay_buffer_bytes: 32 << 20,
            max_head_bytes: 32 << 10,
            max_headers: 100,
            max_event_bytes: 4 << 20,
            max_answer_bytes: 64 << 20,
            max_error_bytes: 64 << 10,
            stream_buffer_bytes: 64 << 10,
            connections: 4096,
            requests: 1024,
            max_json_depth: 128,
            max_messages: 10_000,
            max_tools: 1024,
            max_stop_strings: 1024,
            max_metadata_pairs: 16,
            max_choices: 128,
            max_logprobs: NUMBER,
            max_uri_bytes: 8 << 10,
            bodies_in_flight_bytes: 0,
            memory_bytes: 0,
            background_running: 256,
            background_queued: 1024,
            h2_streams: 100,
            h2_resets: 200,
            h2_stream_window_bytes: 64 << 10,
            // As much as all streams may have, so that bodies which no engine takes stop no other.
            h2_connection_window_bytes: 100 * (64 << 10),
        }
    }
}

/// Table `[timeouts]`: time limits, so that no client or engine occupies a connection forever.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "config/samewire.toml explains each key, and a test holds it to that")]
pub struct Timeouts {
    pub client_head: Seconds,
    pub client_body_idle: Seconds,
    pub client_body_total: Seconds,
    #[serde(deserialize_with = "read_size")]
    pub client_body_rate: usize,
    pub client_body_window: Seconds,
    pub client_idle: Seconds,
    pub client_write_stall: Seconds,
    pub client_ping: Seconds,
    pub dns: Seconds,
    pub connect: Seconds,
    pub handshake: Seconds,
    pub pool_idle: Seconds,
    pub first_token: Seconds,
    pub inter_token: Seconds,
    pub total_stream: Seconds,
    pub total_whole: Seconds,
    pub tool_hold: Seconds,
    pub socket_life: Seconds,
    pub store_call: Seconds,
    pub background_lease: Seconds,
    pub background_heartbeat: Seconds,
    pub settle: Seconds,
    pub drain: Seconds,
    pub flush: Seconds,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            client_head: Seconds::of(10),
            client_body_idle: Seconds::of(15),
            client_body_total: Seconds::of(120),
            client_body_rate: 1 << 10,
            client_body_window: Seconds::of(30),
            client_idle: Seconds::of(620),
            client_write_stall: Seconds::of(60),
            client_ping: Seconds::of(60),
            dns: Seconds::of(2),
            connect: Seconds::of(2),
            handshake: Seconds::of(3),
            pool_idle: Seconds::of(3),
            first_token: Seconds::of(300),
            inter_token: Seconds::of(120),
            total_stream: Seconds::of(3600),
            total_whole: Seconds::of(600),
            tool_hold: Seconds::of(600),
            socket_life: Seconds::of(3600),
            store_call: Seconds::of(2),
            background_lease: Seconds::of(15),
            background_heartbeat: Seconds::of(5),
            settle: Seconds::of(5),
            drain: Seconds::of(20),
            flush: Seconds::of(3),
        }
    }
}

impl Limits {
    /// Reports values outside their valid range, with the bound that they violate.
    pub(super) fn check(&self, mistakes: &mut Mistakes) {
        let limits = [
            ("max_body_bytes", self.max_body_bytes, 1, BYTES),
            ("other_body_bytes", self.other_body_bytes, 1, BYTES),
            ("relay_body_bytes", self.relay_body_bytes, 1, BYTES),
            ("relay_buffer_bytes", self.relay_buffer_bytes, 1, BYTES),
            ("max_head_bytes", self.max_head_bytes, 8 << 10, 1 << 20),
            // The HTTP library supports no larger value.
            ("max_headers", self.max_headers, 10, 1000),
            // The HTTP library rejects longer URIs.
            ("max_uri_bytes", self.max_uri_bytes, 64, 65_534),
            ("max_event_bytes", self.max_event_bytes, 1 << 10, BYTES),
            ("max_answer_bytes", self.max_answer_bytes, 1 << 10, BYTES),
            ("max_error_bytes", self.max_error_bytes, 1 << 10, BYTES),
            ("stream_buffer_bytes", self.stream_buffer_bytes, 8 << 10, 1 << 30),
            ("connections", self.connections, 1, NUMBER),
            ("requests", self.requests, 1, NUMBER),
            // The JSON reader supports no deeper nesting.
            ("max_json_depth", self.max_json_depth, 8, 128),
            ("max_messages", self.max_messages, 1, 10 * NUMBER),
            ("max_tools", self.max_tools, 0, NUMBER),
            ("max_stop_strings", self.max_stop_strings, 0, NUMBER),
            ("max_metadata_pairs", self.max_metadata_pairs, 0, NUMBER),
            ("max_choices", self.max_choices, 1, NUMBER),
            ("max_logprobs", self.max_logprobs, 0, NUMBER),
            ("bodies_in_flight_bytes", self.bodies_in_flight_bytes, 0, BYTES),
            ("memory_bytes", self.memory_bytes, 0, BYTES),
            ("background_running", self.background_running, 1, NUMBER),
            ("background_queued", self.background_queued, 0, NUMBER),
            ("h2_streams", self.h2_streams, 1, NUMBER),
            ("h2_resets", self.h2_resets, 1, NUMBER),
            ("h2_stream_window_bytes", self.h2_stream_window_bytes, 1 << 10, WINDOW),
            // The window starts at this size and cannot shrink (RFC 9113, 6.9.2).
            ("h2_connection_window_bytes", self.h2_connection_window_bytes, 65_535, WINDOW),
        ];
        for (key, value, least, most) in limits {
            if value < least {
                mistakes.add(format!("limits.{key}"), format!("must be at least {least}"));
            } else if value > most {
                mistakes.add(format!("limits.{key}"), format!("must be at most {most}"));
            }
        }
    }
}

impl Timeouts {
    /// Reports times that are zero but must not be. The upper bound, a year, is checked when [`Seconds`] are
    /// parsed.
    pub(super) fn check(&self, mistakes: &mut Mistakes) {
        let timeouts = [
            ("client_head", self.client_head),
            ("client_body_idle", self.client_body_idle),
            ("client_body_total", self.client_body_total),
            ("client_body_window", self.client_body_window),
            ("client_idle", self.client_idle),
            ("client_write_stall", self.client_write_stall),
            ("dns", self.dns),
            ("connect", self.connect),
            ("handshake", self.handshake),
            ("first_token", self.first_token),
            ("inter_token", self.inter_token),
            ("total_stream", self.total_stream),
            ("total_whole", self.total_whole),
            ("socket_life", self.socket_life),
            ("store_call", self.store_call),
            ("background_lease", self.background_lease),
            ("background_heartbeat", self.background_heartbeat),
        ];
        for (key, value) in timeouts {
            if value.is_zero() {
                mistakes.add(format!("timeouts.{key}"), "must be more than 0");
            }
        }
        if *self.background_lease < *self.background_heartbeat * 2 {
            let why = "must be at least twice timeouts.background_heartbeat: one may come late";
            mistakes.add("timeouts.background_lease", why);
        }
        if self.client_body_rate > NUMBER {
            mistakes.add("timeouts.client_body_rate", format!("must be at most {NUMBER}"));
        }
    }
}
