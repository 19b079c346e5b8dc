//! Places at which a test can make a request panic, as a bug would (faults O25). Builds without debug assertions
//! have none: no request can make a production proxy fail.

use http::HeaderMap;

/// Header that names the place, valid for its own request id.
#[cfg(debug_assertions)]
const HEADER: &str = "x-samewire-panic";

/// Armed place, and the id of the request for which it is armed.
#[cfg(debug_assertions)]
static ARMED: parking_lot::Mutex<Option<(String, String)>> = parking_lot::Mutex::new(None);

/// Arms the place that a request names.
#[cfg(debug_assertions)]
pub(super) fn arm(headers: &HeaderMap, request_id: &str) {
    if let Some(place) = headers.get(HEADER).and_then(|place| place.to_str().ok()) {
        let mut armed = ARMED.lock();
        *armed = Some((place.to_owned(), request_id.to_owned()));
    }
}

/// Panics if this place is armed for this request; once.
#[cfg(debug_assertions)]
#[expect(clippy::panic, reason = "this is what it is for")]
pub(super) fn point(place: &str, request_id: Option<&str>) {
    let mut armed = ARMED.lock();
    let is_this =
        |(at, whose): &(String, String)| at == place && request_id.is_none_or(|id| id == whose);
    if armed.as_ref().is_some_and(is_this) {
        *armed = None;
        drop(armed);
        panic!("asked for");
    }
}

#[cfg(not(debug_assertions))]
pub(super) fn arm(_: &HeaderMap, _: &str) {}

#[cfg(not(debug_assertions))]
pub(super) fn point(_: &str, _: Option<&str>) {}
