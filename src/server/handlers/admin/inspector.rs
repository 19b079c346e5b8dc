//! Page of the inspector and its files, which are part of the binary.
//!
//! Takes: the name of a file. Gives: the file, with headers that isolate the page. Never: loads anything from another
//! host.

use crate::server::net::listener::INSPECTOR_PATH;
use axum::extract::Path;
use axum::response::{IntoResponse, Redirect, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, StatusCode};
use sha2::{Digest, Sha256};
use std::sync::LazyLock;

/// The page's own scripts and styles are allowed, and connections to this listener.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

macro_rules! files {
    ($($name:literal,)*) => {
        /// Files of the folder `ui`, each with its name.
        const FILES: &[(&str, &[u8])] = &[$(($name, include_bytes!(concat!("ui/", $name))),)*];
    };
}

files! {
    "api.js",
    "bodies.js",
    "captures.js",
    "drift.js",
    "engines.js",
    "exchange.js",
    "format.js",
    "frame-row.js",
    "frames.js",
    "index.html",
    "keys.js",
    "list.js",
    "main.js",
    "marked.js",
    "player.js",
    "plots.js",
    "requests.js",
    "search.js",
    "style.css",
    "theme.js",
    "timeline.js",
    "vendor/LICENSES",
    "vendor/htm-preact.js",
    "visible.js",
}

/// Entity tags of the files, in their order.
static TAGS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let tag = |content: &[u8]| format!("\"{}\"", URL_SAFE_NO_PAD.encode(Sha256::digest(content)));
    FILES.iter().map(|(_, content)| tag(content)).collect()
});

/// Redirects to the page's folder, so that its relative links work.
pub(super) async fn folder() -> Redirect {
    Redirect::permanent(INSPECTOR_PATH)
}

/// Returns the page.
pub(super) async fn index(headers: HeaderMap) -> Response {
    response("index.html", &headers)
}

/// Returns a file of the page.
pub(super) async fn file(Path(name): Path<String>, headers: HeaderMap) -> Response {
    response(&name, &headers)
}

fn response(name: &str, request_headers: &HeaderMap) -> Response {
    let Some(((_, content), tag)) = FILES.iter().zip(&*TAGS).find(|((own, _), _)| *own == name)
    else {
        return (StatusCode::NOT_FOUND, "not found\n").into_response();
    };
    let headers = [
        (CONTENT_TYPE, content_type(name)),
        (CACHE_CONTROL, "no-cache"),
        (ETAG, tag),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
    ];
    match is_known(request_headers, tag) {
        true => (StatusCode::NOT_MODIFIED, headers).into_response(),
        false => (headers, *content).into_response(),
    }
}

/// Returns true if the client has the file with this tag.
fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    let lists = headers
        .get_all(IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok());
    let mut tags = lists.flat_map(|list| list.split(',')).map(str::trim);
    tags.any(|known| known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag)
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "text/plain; charset=utf-8",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn names(folder: &Path, prefix: &str, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
            match entry.file_type().unwrap().is_dir() {
                true => names(&entry.path(), &format!("{name}/"), found),
                false => found.push(name),
            }
        }
    }

    /// A file that is not in the list would be missing in the binary.
    #[test]
    fn every_file_of_the_folder_is_listed() {
        let mut found = Vec::new();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/server/handlers/admin/ui");
        names(&folder, "", &mut found);
        found.sort();
        let mut listed: Vec<_> = FILES.iter().map(|(name, _)| (*name).to_owned()).collect();
        listed.sort();
        assert_eq!(listed, found);
    }

    #[test]
    fn a_known_tag_is_recognised() {
        let known = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(IF_NONE_MATCH, value.parse().unwrap());
            is_known(&headers, "\"a\"")
        };
        assert!(known("\"a\"") && known("\"b\", W/\"a\"") && known("*"));
        assert!(!known("\"b\"") && !is_known(&HeaderMap::new(), "\"a\""));
    }
}
