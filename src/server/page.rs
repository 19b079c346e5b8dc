//! Answers that are pages for people.

use crate::html::Page;
use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderValue, Response};

/// A page with the headers that keep it to itself: nothing from elsewhere runs in it, no other page frames it, and nobody is told
/// where its links were followed.
pub(super) fn response(page: &Page) -> Response<Bytes> {
    let mut response = Response::new(Bytes::copy_from_slice(page.body.as_bytes()));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    let policy = HeaderValue::try_from(&page.policy);
    headers.insert(CONTENT_SECURITY_POLICY, policy.unwrap_or(HeaderValue::from_static("default-src 'none'")));
    response
}
