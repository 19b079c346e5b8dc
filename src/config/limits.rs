//! Tables `[limits]` and `[timeouts]`: every limit in bytes, numbers and time, with its valid range.

use super::mistakes::Mistakes;
use super::rows::{self, table};
use super::values::Seconds;
use crate::quantity::read_size;

/// Upper bound for limits in numbers, far above any useful value.
pub(super) const NUMBER: usize = 1_000_000;
/// Largest weight of an upstream, or of a target of a model.
pub(super) const WEIGHT: u32 = 1000;
/// Largest flow-control window that HTTP/2 allows.
const WINDOW: usize = (1 << 31) - 1;
/// Upper bound for limits in bytes, far above any useful value.
pub(super) const BYTES: usize = 1 << 40;

table! {
    /// Table `[limits]`: limits in bytes and numbers, which bound the memory that clients and engines can occupy.
    Limits {
        max_body_bytes: usize as "read_size" = 32 << 20, within(1, BYTES);
        other_body_bytes: usize as "read_size" = 1 << 20, within(1, BYTES);
        relay_body_bytes: usize as "read_size" = 512 << 20, within(1, BYTES);
        relay_buffer_bytes: usize as "read_size" = 32 << 20, within(1, BYTES);
        max_head_bytes: usize as "read_size" = 32 << 10, within(8 << 10, 1 << 20), fixed;
        // The HTTP library supports no larger value.
        max_headers: usize = 100, within(10, 1000), fixed;
        max_event_bytes: usize as "read_size" = 4 << 20, within(1 << 10, BYTES);
        max_answer_bytes: usize as "read_size" = 64 << 20, within(1 << 10, BYTES);
        max_error_bytes: usize as "read_size" = 64 << 10, within(1 << 10, BYTES);
        stream_buffer_bytes: usize as "read_size" = 64 << 10, within(8 << 10, 1 << 30);
        connections: usize = 4096, within(1, NUMBER), fixed;
        requests: usize = 1024, within(1, NUMBER);
        // The JSON reader supports no deeper nesting.
        max_json_depth: usize = 128, within(8, 128);
        max_messages: usize = 10_000, within(1, 10 * NUMBER);
        max_tools: usize = 1024, within(0, NUMBER);
        max_stop_strings: usize = 1024, within(0, NUMBER);
        max_metadata_pairs: usize = 16, within(0, NUMBER);
        max_choices: usize = 128, within(1, NUMBER);
        max_logprobs: usize = NUMBER, within(0, NUMBER);
        // The HTTP library rejects longer URIs.
        max_uri_bytes: usize as "read_size" = 8 << 10, within(64, 65_534);
        bodies_in_flight_bytes: usize as "read_size" = 0, within(0, BYTES), fixed;
        memory_bytes: usize as "read_size" = 0, within(0, BYTES), fixed;
        background_running: usize = 256, within(1, NUMBER), fixed;
        background_queued: usize = 1024, within(0, NUMBER), fixed;
        h2_streams: usize = 100, within(1, NUMBER);
        h2_resets: usize = 200, within(1, NUMBER);
        h2_stream_window_bytes: usize as "read_size" = 64 << 10, within(1 << 10, WINDOW);
        // As much as all streams may have, so that bodies which no engine takes stop no other. The window starts at
        // 65,535 and cannot shrink (RFC 9113, 6.9.2).
        h2_connection_window_bytes: usize as "read_size" = 100 * (64 << 10), within(65_535, WINDOW);
    }
}

table! {
    /// Table `[timeouts]`: time limits, so that no client or engine occupies a connection forever.
    Timeouts {
        client_head: Seconds = Seconds::of(10), positive;
        client_body_idle: Seconds = Seconds::of(15), positive;
        client_body_total: Seconds = Seconds::of(120), positive;
        client_body_rate: usize as "read_size" = 1 << 10, within(0, NUMBER);
        client_body_window: Seconds = Seconds::of(30), positive;
        client_idle: Seconds = Seconds::of(620), positive;
        client_write_stall: Seconds = Seconds::of(60), positive;
        client_ping: Seconds = Seconds::of(60);
        dns: Seconds = Seconds::of(2), positive;
        connect: Seconds = Seconds::of(2), positive;
        handshake: Seconds = Seconds::of(3), positive;
        pool_idle: Seconds = Seconds::of(3);
        first_token: Seconds = Seconds::of(300), positive;
        inter_token: Seconds = Seconds::of(120), positive;
        total_stream: Seconds = Seconds::of(3600), positive;
        total_whole: Seconds = Seconds::of(600), positive;
        tool_hold: Seconds = Seconds::of(600);
        socket_life: Seconds = Seconds::of(3600), positive;
        store_call: Seconds = Seconds::of(2), positive, fixed;
        background_lease: Seconds = Seconds::of(15), positive, fixed;
        background_heartbeat: Seconds = Seconds::of(5), positive, fixed;
        settle: Seconds = Seconds::of(5);
        drain: Seconds = Seconds::of(20);
        flush: Seconds = Seconds::of(3);
    }
}

impl Timeouts {
    /// Reports a lease that ends before its second heartbeat.
    pub(super) fn check_lease(&self, mistakes: &mut Mistakes) {
        if *self.background_lease < *self.background_heartbeat * 2 {
            let why = "must be at least twice timeouts.background_heartbeat: one may come late";
            mistakes.add("timeouts.background_lease", why);
        }
    }
}
