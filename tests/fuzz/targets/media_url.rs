//! A media URL is either refused, or sent to the engine in a spelling that leads to the host that was checked.

use super::feed::Feed;
use super::request_chat::refused;
use bytes::Bytes;
use samewire::engine::ENGINES;
use samewire::plan::{Route, plan};
use samewire::request::{ChatRequest, Media, Rules};
use samewire::wire::Api;
use samewire::wire::options::Options;
use serde_json::{Value, json};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use url::{Host, Url};

pub fn run(data: &[u8]) {
    let mut feed = Feed(data);
    let media = match feed.byte() % 3 {
        0 => Media::Public,
        1 => Media::Data,
        _ => Media::hosts(["example.com", "10.0.0.7"]).expect("hosts"),
    };
    let rules = Rules { media, ..Rules::default() };
    let escaped = feed.byte() & 1 == 1;
    let Ok(address) = std::str::from_utf8(feed.rest()) else { return };
    // Either escaped as a serializer does, or spelled by the sender.
    let spelled = if escaped { address.to_owned() } else { json!(address).to_string().trim_matches('"').to_owned() };
    let Some(sent) = judged(&spelled, &rules) else { return };
    if sent.starts_with("data:") {
        let label = sent.split([',', ';']).next().unwrap_or_default();
        assert!(label.starts_with("data:image/"), "{sent}");
    } else {
        assert_ne!(rules.media, Media::Data, "{sent}");
        led(&sent, &rules.media);
    }
    let again = judged(json!(sent).to_string().trim_matches('"'), &rules);
    assert_eq!(again.as_ref(), Some(&sent), "{spelled}");
}

/// Returns the URL that the engine receives, or `None` if it is refused.
fn judged(spelled: &str, rules: &Rules) -> Option<String> {
    let body = format!(
        r#"{{"model":"m","messages":[{{"role":"user","content":[{{"type":"image_url","image_url":{{"url":"{spelled}"}}}}]}}]}}"#
    );
    let body = Bytes::from(body);
    let ask = match ChatRequest::read_for(Api::Chat, &body, None, rules) {
        Ok(ask) => ask,
        Err(failure) => {
            refused(&failure);
            return None;
        }
    };
    let route = Route::new(ENGINES[0], Arc::new(Options::default()), 1 << 20);
    let sent = plan(&ask, &body, &route).expect("there is a plan").body.joined();
    let sent: Value = serde_json::from_slice(&sent).expect("JSON");
    let parts = sent["messages"][0]["content"].as_array().expect("parts");
    assert_eq!(parts.len(), 1, "{sent}");
    // An unescaped quote in the URL may have changed the shape of the part, which then has no URL.
    Some(parts[0]["image_url"]["url"].as_str().unwrap_or_default().to_owned())
}

/// Checks that the URL leads to a public host, or to a configured one, for every parser.
fn led(sent: &str, media: &Media) {
    let url = Url::parse(sent).unwrap_or_else(|error| panic!("{error}: {sent}"));
    assert_eq!(url.as_str(), sent);
    assert!(matches!(url.scheme(), "http" | "https"), "{sent}");
    assert!(url.username().is_empty() && url.password().is_none(), "{sent}");
    let Some(host) = url.host() else { panic!("no host: {sent}") };
    if let Media::Hosts(_) = media {
        assert!(["example.com", "10.0.0.7"].contains(&host.to_string().as_str()), "{sent}");
        return;
    }
    match host {
        Host::Domain(name) => {
            let name = name.strip_suffix('.').unwrap_or(name);
            assert!(name.contains('.') && name.is_ascii(), "{sent}");
            assert!(!name.starts_with('.') && !name.contains("..") && !name.ends_with('.'), "{sent}");
            assert!(!name.ends_with(".localhost") && !name.ends_with(".internal"), "{sent}");
        }
        Host::Ipv4(address) => assert!(is_public(address), "{sent}"),
        Host::Ipv6(address) => {
            assert!(!address.is_loopback() && !address.is_unspecified() && !address.is_multicast(), "{sent}");
            assert!(!address.is_unique_local() && !address.is_unicast_link_local(), "{sent}");
            assert!(wrapped(address).is_none_or(is_public), "{sent}");
        }
    }
}

fn is_public(address: Ipv4Addr) -> bool {
    !(address.is_loopback()
        || address.is_private()
        || address.is_link_local()
        || address.is_unspecified()
        || address.is_broadcast()
        || address.is_multicast()
        || address.is_documentation())
}

/// Returns the IPv4 address embedded in an IPv6 address.
fn wrapped(address: Ipv6Addr) -> Option<Ipv4Addr> {
    match address.segments() {
        [0x2002, high, low, ..] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            Some(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)))
        }
        _ => address.to_ipv4(),
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for address in [
        "https://example.com/a.png",
        r"https:\/\/example.com\/a.png",
        "  HTTPS://EXAMPLE.com:443/../a b?c=d#e",
        r"ht\ntps://example.com/",
        "https:example.com/a",
        r"http://allowed.example\\@evil.example/",
        "https://exämple.com/ü",
        "https://example。com./",
        "https://134744072/",
        "https://0x8.0x8.0x8.0x8/",
        "https://[2606:4700:4700::1111]/a",
        "https://[::ffff:7f00:1]/",
        "https://[64:ff9b::7f00:1]/",
        "https://[2002:7f00:1::]/",
        "http://127.1/",
        "http://169.254.169.254/latest/meta-data",
        "http://10.0.0.7/",
        "https://a.localhost/",
        "https://user:pass@example.com/",
        "file:///etc/passwd",
        "DATA:Image/PNG;BASE64,iVBORw0=",
        r" data: image\/svg+xml ;charset=utf-8;base64,\/9j",
        "data:text/html,x",
        r#"https://example.com/"},"x":{"url":"http://127.0.0.1"#,
    ] {
        for (media, escaped) in [(0, 0), (0, 1), (1, 1), (2, 1)] {
            all.push([&[media, escaped], address.as_bytes()].concat());
        }
    }
    all
}
