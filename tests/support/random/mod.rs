//! Random exchanges of the slow implementation, as cases of the library.
#![allow(dead_code, reason = "each test crate uses its part")]

use crate::cases::Case;
use crate::slow;
use proptest::prelude::*;
use samewire::wire::{Api, Ending};

/// Generates an exchange of any kind.
pub fn case() -> impl Strategy<Value = Case> {
    slow::random::case().prop_map(|case| library_case(&case))
}

/// Converts a case of the slow implementation into one of the library.
pub fn library_case(case: &slow::Case) -> Case {
    // The library refuses `stream_options` without `stream`; the slow implementation does not check requests.
    let mut request = case.request.clone();
    if request["stream"] != true {
        request.as_object_mut().unwrap().remove("stream_options");
    }
    let events = case
        .upstream_headers
        .get("content-type")
        .is_some_and(|ct| ct.contains("event-stream"));
    let api = if case.client_api == "chat.completions" {
        Api::Chat
    } else {
        Api::Completions
    };
    Case {
        name: "random".to_owned(),
        api,
        upstream: api,
        request,
        options: case.options.clone(),
        status: case.upstream_status,
        input: case.input.clone(),
        events,
        ending: if case.eof_reset {
            Ending::Reset
        } else {
            Ending::Clean
        },
        now: case.now,
        ..Case::default()
    }
    .unparsed()
}
