//! Responses that are HTML pages for browsers.

use crate::html::Page;
use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderValue, Response};

/// Returns the page with headers that isolate it: no foreign code runs in it, no other page frames it, and its
/// links reveal no referrer.
pub(in crate::server) fn response(page: &Page) -> Response<Bytes> {
    let mut response = Response::new(Bytes::copy_from_slice(page.body.as_bytes()));
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/html; charset=utf-8"),
    );
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    let policy = HeaderValue::try_from(&page.policy);
    headers.insert(
        CONTENT_SECURITY_POLICY,
        policy.unwrap_or(HeaderValue::from_static("default-src 'none'")),
    );
    response
}
