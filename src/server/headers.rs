//! Headers: those of the client that are read, those of the engine that are passed on, and those of a response.
//!
//! No header is forwarded by default (faults 11, wire-format 5).

use crate::request::invalid;
use crate::server::printable::printable;
pub(in crate::server) use crate::server::protocol::REQUEST_ID;
use crate::server::protocol::{Protocol, SHOULD_RETRY};
use crate::wire::disclosure::names_host;
use crate::wire::encode::LimitUse;
use crate::wire::fault::{Failure, Fault};
use crate::wire::options::ResponsesDialect;
use bytes::Bytes;
use http::header::{
    ACCEPT, CACHE_CONTROL, CONNECTION, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE,
    CONTENT_TYPE, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{Response, StatusCode, Version, request};
use std::time::Duration;

use http::header::RETRY_AFTER;

/// Header by which a client chooses the dialect of Responses events.
const DIALECT: &str = "x-samewire-dialect";
const ATTEMPTS: HeaderName = HeaderName::from_static("x-samewire-attempts");
const MODEL: HeaderName = HeaderName::from_static("x-samewire-model");
const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
const PROCESSING: HeaderName = HeaderName::from_static("openai-processing-ms");
const OPENAI_VERSION: HeaderName = HeaderName::from_static("openai-version");
/// Headers needed to read an answer that is relayed unchanged. vLLM describes embeddings that it sends as plain
/// bytes in `metadata`.
const RELAYED: [HeaderName; 4] = [
    CONTENT_DISPOSITION,
    CONTENT_ENCODING,
    CONTENT_LANGUAGE,
    HeaderName::from_static("metadata"),
];
/// Limit for a content type quoted in an error message, in bytes.
const SHOWN: usize = 100;
const UNBUFFERED: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Returns the client's own request id, if it is safe to log, to send back and to name in a path, where `.` and `..` mean
/// another one.
pub(in crate::server) fn request_id(headers: &HeaderMap) -> Option<&str> {
    let harmless = |id: &&str| {
        (1..=128).contains(&id.len())
            && ![".", ".."].contains(id)
            && id
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    headers.get(REQUEST_ID)?.to_str().ok().filter(harmless)
}

/// Returns true if the request has the `host` header that HTTP requires.
pub(in crate::server) fn has_host(head: &request::Parts) -> bool {
    let hosts = head.headers.get_all(HOST).iter().count();
    hosts == 1 || hosts == 0 && head.version < Version::HTTP_11
}

/// Returns true if all values are ASCII (faults C20).
pub(in crate::server) fn is_ascii(headers: &HeaderMap) -> bool {
    headers.values().all(|value| value.as_bytes().is_ascii())
}

/// Checks that the body of this request can be read and that the client accepts the answer. Fails with the error
/// for the header at fault.
pub(in crate::server) fn check(headers: &HeaderMap) -> Result<(), Failure> {
    check_relayed(headers)?;
    let is_known = |label: &HeaderValue| {
        label
            .to_str()
            .is_ok_and(|label| is_json(label) || is_form(label))
    };
    if let Some(label) = headers.get(CONTENT_TYPE).filter(|label| !is_known(label)) {
        return Err(wrong_label(&printable(label.as_bytes(), SHOWN)));
    }
    if headers.contains_key(ACCEPT) && !headers.get_all(ACCEPT).iter().any(accepts) {
        return Err(Fault::NotAcceptable.into());
    }
    Ok(())
}

/// Checks that the body of this request can be relayed unchanged. Fails with the error for the header at fault.
pub(in crate::server) fn check_relayed(headers: &HeaderMap) -> Result<(), Failure> {
    let has = |name, good: &str| {
        headers
            .get_all(name)
            .iter()
            .all(|value| value.as_bytes().eq_ignore_ascii_case(good.as_bytes()))
    };
    if !has(EXPECT, "100-continue") {
        return Err(Fault::ExpectationFailed.into());
    }
    // Engines do not decompress, and the model cannot be read from a compressed body.
    if !has(CONTENT_ENCODING, "identity") {
        return Err(Fault::UnsupportedEncoding.into());
    }
    if headers.get_all(CONTENT_TYPE).iter().count() > 1 {
        let message = "The request has more than one Content-Type.";
        return Err(Failure::from(Fault::UnsupportedMediaType).with_message(message));
    }
    Ok(())
}

/// Returns the failure for a body labelled as an HTML form.
pub(in crate::server) fn wrong_form() -> Failure {
    wrong_label("application/x-www-form-urlencoded")
}

/// Returns the failure for a body whose content type is not JSON; the message quotes the type.
fn wrong_label(label: &str) -> Failure {
    let message = format!(
        "The request body is labelled '{label}'; it must be JSON in UTF-8, with 'Content-Type: application/json'."
    );
    Failure::from(Fault::UnsupportedMediaType).with_message(message)
}

/// Returns true if the body has the content type that `curl -d` sends by default.
pub(in crate::server) fn is_labelled_form(headers: &HeaderMap) -> bool {
    headers
        .get(CONTENT_TYPE)
        .and_then(|label| label.to_str().ok())
        .is_some_and(is_form)
}

/// Returns true for `application/x-www-form-urlencoded` without a charset or with UTF-8.
fn is_form(label: &str) -> bool {
    is_in_utf8(label, |kind| {
        kind.eq_ignore_ascii_case("application/x-www-form-urlencoded")
    })
}

/// Returns true for `application/json` or a type with the suffix `+json`, without a charset or with UTF-8.
fn is_json(label: &str) -> bool {
    is_in_utf8(label, |kind| {
        let (front, end) = ("application/", "json");
        let subtype = kind
            .split_at_checked(front.len())
            .filter(|(kind, _)| kind.eq_ignore_ascii_case(front));
        let name = subtype.and_then(|(_, subtype)| {
            subtype.split_at_checked(subtype.len().checked_sub(end.len())?)
        });
        name.is_some_and(|(before, name)| {
            name.eq_ignore_ascii_case(end) && (before.is_empty() || before.ends_with('+'))
        })
    })
}

/// Returns true if a content type is of this kind and has no charset other than UTF-8.
fn is_in_utf8(label: &str, is_kind: impl Fn(&str) -> bool) -> bool {
    let mut parts = label.split(';').map(str::trim);
    let kind = parts.next().unwrap_or("");
    let utf8 = |parameter: &str| {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let value = value.trim().trim_matches('"');
        !name.trim().eq_ignore_ascii_case("charset")
            || value.eq_ignore_ascii_case("utf-8")
            || value.eq_ignore_ascii_case("utf8")
    };
    is_kind(kind) && parts.all(utf8)
}

/// Returns true if `accept` names a type that starts with `kind`.
pub(in crate::server) fn accepts_type(headers: &HeaderMap, kind: &str) -> bool {
    let ranges = headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|accept| accept.to_str().ok());
    ranges
        .flat_map(|ranges| ranges.split(','))
        .any(|range| range.trim().starts_with(kind))
}

/// Returns true if an `accept` header allows one of the two types that responses have.
fn accepts(value: &HeaderValue) -> bool {
    const TYPES: [&str; 5] = [
        "*/*",
        "application/*",
        "application/json",
        "text/*",
        "text/event-stream",
    ];
    value.to_str().unwrap_or("").split(',').any(|range| {
        let mut parts = range.split(';').map(str::trim);
        let kind = parts.next().unwrap_or("");
        let known = TYPES.iter().any(|one| one.eq_ignore_ascii_case(kind));
        let refused = |parameter: &str| {
            parameter
                .strip_prefix(['q', 'Q'])
                .and_then(|rest| rest.strip_prefix('=')?.trim().parse::<f32>().ok())
                .is_some_and(|quality| quality <= 0.0)
        };
        known && !parts.any(refused)
    })
}

/// Returns the headers of the engine that are passed to the client (wire-format 5).
pub(in crate::server) fn forwarded(headers: &HeaderMap) -> HeaderMap {
    let listed = |name: &HeaderName| {
        *name == RETRY_AFTER || *name == RETRY_AFTER_MS || name.as_str().starts_with("x-ratelimit-")
    };
    // Some clients fail on headers that are not ASCII. A limit is a number, a time or a date, and no text of the host.
    let is_sign = |byte: u8| byte.is_ascii_alphanumeric() || b" .,:;=+-_/%*|\"".contains(&byte);
    let is_figure =
        |value: &str| value.len() <= 256 && value.bytes().all(is_sign) && !names_host(value);
    let good = |value: &HeaderValue| value.to_str().is_ok_and(is_figure);
    let found = headers
        .iter()
        .filter(|(name, value)| listed(name) && good(value));
    found
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// Returns how much of its requests per minute the client has used, according to a proxy before the engine.
pub(in crate::server) fn limits(passed: &HeaderMap) -> Option<LimitUse> {
    let number = |name: &str| passed.get(name)?.to_str().ok()?.parse::<u64>().ok();
    let limit = number("x-ratelimit-limit-requests").filter(|limit| *limit > 0)?;
    let left = number("x-ratelimit-remaining-requests")?.min(limit);
    Some(LimitUse {
        used_percent: (limit - left).saturating_mul(100) / limit,
        window_minutes: 1,
    })
}

/// Header of a successful response: request id, cache rules, rate limits and the number of attempts.
pub(in crate::server) struct Success<'a> {
    pub(in crate::server) request_id: &'a str,
    pub(in crate::server) passed: &'a HeaderMap,
    /// Number of requests sent to engines.
    pub(in crate::server) attempts: u32,
    /// Model that has answered, if the client's name stands for others.
    pub(in crate::server) model: Option<&'a str>,
}

impl Success<'_> {
    /// Returns the header of an event stream.
    pub(in crate::server) fn stream(&self) -> Response<()> {
        let mut response = self.common("text/event-stream; charset=utf-8", "no-cache");
        response
            .headers_mut()
            .insert(UNBUFFERED, HeaderValue::from_static("no"));
        response
    }

    /// Returns the header of a JSON object.
    pub(in crate::server) fn object(&self, elapsed: Duration) -> Response<()> {
        let mut response = self.common("application/json", "no-store");
        response
            .headers_mut()
            .insert(PROCESSING, milliseconds(elapsed));
        response
    }

    /// Returns the header of an answer that is relayed unchanged. `engine` holds the headers of the engine's
    /// answer.
    pub(in crate::server) fn relayed(&self, status: u16, engine: &HeaderMap) -> Response<()> {
        let kind = engine.get(CONTENT_TYPE);
        let streams = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        let mut response = self.of(kind.cloned(), if streams { "no-cache" } else { "no-store" });
        *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
        let headers = response.headers_mut();
        if streams {
            headers.insert(UNBUFFERED, HeaderValue::from_static("no"));
        }
        for name in RELAYED {
            if let Some(value) = engine
                .get(&name)
                .filter(|value| value.as_bytes().is_ascii())
            {
                headers.insert(name, value.clone());
            }
        }
        response
    }

    fn common(&self, kind: &'static str, cache: &'static str) -> Response<()> {
        self.of(Some(HeaderValue::from_static(kind)), cache)
    }

    fn of(&self, kind: Option<HeaderValue>, cache: &'static str) -> Response<()> {
        let mut response = Response::new(());
        let headers = response.headers_mut();
        // For these and those of the route and the HTTP library.
        headers.reserve(12);
        if let Some(kind) = kind {
            headers.insert(CONTENT_TYPE, kind);
        }
        common(headers, self.request_id, cache);
        let limits = self
            .passed
            .iter()
            .filter(|(name, _)| name.as_str().starts_with("x-ratelimit-"));
        headers.extend(limits.map(|(name, value)| (name.clone(), value.clone())));
        headers.insert(ATTEMPTS, number(self.attempts.into()));
        if let Some(Ok(model)) = self.model.map(HeaderValue::from_str) {
            headers.insert(MODEL, model);
        }
        response
    }
}

fn common(headers: &mut HeaderMap, request_id: &str, cache: &'static str) {
    if let Ok(id) = HeaderValue::from_str(request_id) {
        headers.insert(REQUEST_ID, id);
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(cache));
    headers.insert(OPENAI_VERSION, HeaderValue::from_static("2020-10-01"));
}

fn milliseconds(elapsed: Duration) -> HeaderValue {
    number(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX))
}

/// Returns a number as the value of a header. The small ones take no memory.
fn number(number: u64) -> HeaderValue {
    const DIGITS: [&str; 10] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
    let digit = usize::try_from(number)
        .ok()
        .and_then(|number| DIGITS.get(number));
    digit.map_or_else(|| number.into(), |digit| HeaderValue::from_static(digit))
}

/// Error response of a request, with the headers that tell a client if and when to retry.
pub(in crate::server) struct ErrorResponse<'a> {
    /// Protocol in which the client reads the error.
    pub(in crate::server) protocol: Protocol,
    pub(in crate::server) failure: &'a Failure,
    /// True if a retry cannot succeed.
    pub(in crate::server) is_final: bool,
    /// Number of requests sent to engines.
    pub(in crate::server) attempts: u32,
    /// Headers of the engine that are passed on; empty if no engine was contacted.
    pub(in crate::server) passed: &'a HeaderMap,
    pub(in crate::server) elapsed: Duration,
}

impl ErrorResponse<'_> {
    /// Returns the response to a request that has no record.
    pub(in crate::server) fn plain(failure: &Failure, request_id: &str) -> Response<Bytes> {
        let error = ErrorResponse {
            protocol: Protocol::OpenAi,
            failure,
            is_final: false,
            attempts: 0,
            passed: &HeaderMap::new(),
            elapsed: Duration::ZERO,
        };
        error.response(request_id)
    }

    pub(in crate::server) fn response(&self, request_id: &str) -> Response<Bytes> {
        let (status, body) = self.protocol.error(self.failure, request_id);
        let mut response = Response::new(body);
        *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        common(headers, request_id, "no-store");
        headers.insert(PROCESSING, milliseconds(self.elapsed));
        if self.attempts > 0 {
            headers.insert(ATTEMPTS, number(self.attempts.into()));
        }
        if self.is_final {
            headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
        }
        if matches!(self.failure.status, 429 | 503) {
            let given = self.passed.get(RETRY_AFTER);
            let seconds = if self.failure.fault == Fault::Overloaded {
                random_delay()
            } else {
                retry_after(given)
            };
            headers.insert(RETRY_AFTER, seconds.into());
            if let Some(exact) = self
                .passed
                .get(RETRY_AFTER_MS)
                .filter(|value| is_number(value))
            {
                headers.insert(RETRY_AFTER_MS, exact.clone());
            }
        }
        let limits = self
            .passed
            .iter()
            .filter(|(name, _)| name.as_str().starts_with("x-ratelimit-"));
        headers.extend(limits.map(|(name, value)| (name.clone(), value.clone())));
        response
    }
}

fn is_number(value: &HeaderValue) -> bool {
    value.to_str().is_ok_and(|text| {
        text.parse::<f64>()
            .is_ok_and(|number| number >= 0.0 && number.is_finite())
    })
}

/// Returns a random delay of 1 to 5 seconds, so that clients refused together do not return together (faults O27).
fn random_delay() -> u64 {
    getrandom::u64().map_or(1, |chance| 1 + chance % 5)
}

/// Parses `retry-after`, seconds or a date, and clamps it to whole seconds from 1 to 60.
pub(in crate::server) fn retry_after(given: Option<&HeaderValue>) -> u64 {
    let seconds = given
        .and_then(|value| value.to_str().ok())
        .and_then(|text| {
            let number = text
                .trim()
                .parse::<f64>()
                .ok()
                .filter(|number| number.is_finite());
            number.or_else(|| {
                let date = httpdate::parse_http_date(text.trim()).ok()?;
                Some(
                    date.duration_since(std::time::SystemTime::now())
                        .unwrap_or_default()
                        .as_secs_f64(),
                )
            })
        });
    (1..=60_u32)
        .find(|whole| f64::from(*whole) >= seconds.unwrap_or(1.0))
        .map_or(60, u64::from)
}

/// Returns the shortest `retry-after` of the overloaded engines, in seconds: of those before (`wait`) and of one more,
/// which answered with these headers.
pub(in crate::server) fn shortest_retry_after(wait: Option<u64>, passed: &HeaderMap) -> u64 {
    let own = retry_after(passed.get(RETRY_AFTER));
    wait.map_or(own, |least| least.min(own))
}

/// Sets `retry-after` to the shortest time that any of the overloaded engines has given (faults U23). `wait` is
/// the shortest of those before the last.
pub(in crate::server) fn keep_shortest_retry_after(passed: &mut HeaderMap, wait: Option<u64>) {
    if let Some(wait) = wait {
        let least = passed
            .get(RETRY_AFTER)
            .map_or(wait, |own| wait.min(retry_after(Some(own))));
        passed.insert(RETRY_AFTER, least.into());
    }
}

const DROPPED: HeaderName = HeaderName::from_static("x-samewire-dropped");
/// Limit for the names in the `x-samewire-dropped` header and in the log, in bytes. Some clients accept no more
/// than 16 KiB of response headers.
const DROPPED_BYTES: usize = 4000;

/// Adds the header that names the parts of the request that were left out of the engine's request, if there are any.
pub(in crate::server) fn with_dropped<B>(
    mut response: Response<B>,
    dropped: &[String],
    between: &str,
) -> Response<B> {
    let names = joined_names(dropped, between);
    // Names of clients may have any characters; a header may not.
    if let Ok(names) = HeaderValue::from_str(&printable(names.as_bytes(), names.len()))
        && !names.is_empty()
    {
        response.headers_mut().insert(DROPPED, names);
    }
    response
}

/// Joins the names, for a header and the log. Names beyond [`DROPPED_BYTES`] are replaced by `...`.
pub(in crate::server) fn joined_names(dropped: &[String], between: &str) -> String {
    let mut all = String::new();
    for name in dropped {
        if all.len() + name.len() >= DROPPED_BYTES {
            all.push_str(between);
            all.push_str("...");
            break;
        }
        if !all.is_empty() {
            all.push_str(between);
        }
        all.push_str(name);
    }
    all
}

/// Closes the connection after the response: the next bytes of the client may belong to the refused body.
pub(in crate::server) fn close<B>(response: &mut Response<B>) {
    response
        .headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("close"));
}

/// Adds the headers that tell a client to open a WebSocket at this URL.
pub(in crate::server) fn offer_socket<B>(response: &mut Response<B>) {
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
}

/// Returns a query parameter undecoded; the last one if it is repeated.
pub(in crate::server) fn query<'h>(head: &'h request::Parts, name: &str) -> Option<&'h str> {
    let pairs = head
        .uri
        .query()?
        .split('&')
        .filter_map(|pair| pair.split_once('='));
    pairs
        .filter(|(key, _)| *key == name)
        .map(|(_, value)| value)
        .next_back()
}

/// Returns the dialect that the `x-samewire-dialect` header names, `None` without the header. Fails on an unknown
/// name.
pub(in crate::server) fn dialect(headers: &HeaderMap) -> Result<Option<ResponsesDialect>, Failure> {
    let Some(name) = headers.get(DIALECT) else {
        return Ok(None);
    };
    match name.as_bytes() {
        b"openai" => Ok(Some(ResponsesDialect::Openai)),
        b"openresponses" => Ok(Some(ResponsesDialect::Openresponses)),
        b"codex-legacy" => Ok(Some(ResponsesDialect::CodexLegacy)),
        _ => Err(invalid(DIALECT, "openai, openresponses or codex-legacy")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_clamped() {
        for (given, expected) in [
            ("5", 5),
            ("0", 1),
            ("-3", 1),
            ("1.2", 2),
            ("31536000", 60),
            ("soon", 1),
            ("", 1),
            ("nan", 1),
        ] {
            assert_eq!(
                retry_after(Some(&HeaderValue::from_static(given))),
                expected,
                "{given}"
            );
        }
        let date = |offset: u64| {
            httpdate::fmt_http_date(std::time::SystemTime::now() + Duration::from_secs(offset))
        };
        let of_date = |offset| retry_after(Some(&HeaderValue::from_str(&date(offset)).unwrap()));
        assert!((28..=30).contains(&of_date(30)));
        assert_eq!((of_date(5000), retry_after(None)), (60, 1));
        assert_eq!(
            retry_after(Some(&HeaderValue::from_static(
                "Sun, 06 Nov 1994 08:49:37 GMT"
            ))),
            1
        );
    }

    #[test]
    fn labels_and_ranges() {
        for (label, json) in [
            ("application/json", true),
            ("Application/JSON; charset=UTF-8", true),
            ("application/json;charset=\"utf-8\"", true),
            ("application/vnd.api+json", true),
            ("application/json; charset=latin1", false),
            ("text/json", false),
            ("multipart/form-data; boundary=x", false),
            ("", false),
        ] {
            assert_eq!(is_json(label), json, "{label}");
        }
        for (range, welcome) in [
            ("*/*", true),
            ("text/html, application/json;q=0.5", true),
            ("application/json;q=0", false),
            ("text/event-stream", true),
            ("text/html", false),
        ] {
            assert_eq!(
                accepts(&HeaderValue::from_static(range)),
                welcome,
                "{range}"
            );
        }
    }
}
