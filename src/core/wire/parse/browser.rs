//! Conversion of a Harmony browser call to an item of the Responses API (wire-format 6).

use super::header::Browser;
use crate::json::{Members, Raw, Text, write_string};
use bytes::{BufMut, BytesMut};

/// Returns the JSON of the `web_search_call` item for these arguments; `None` if they are not JSON or lack a
/// required member.
pub(super) fn item(tool: Browser, arguments: &str) -> Option<String> {
    let Members(members) = Members::of(arguments.trim())?;
    let get = |key: &str| {
        members
            .iter()
            .rfind(|(own, _)| own == key)
            .map(|(_, value)| *value)
    };
    let string = |key: &str| {
        get(key)
            .and_then(Text::of)
            .map(|text| text.decoded().into_owned())
    };
    let action = match tool {
        Browser::Search => [("type", "search".to_owned()), ("query", string("query")?)].to_vec(),
        Browser::Open => {
            let url = page(string("url").or_else(|| string("id")), get("cursor"))?;
            [("type", "open_page".to_owned()), ("url", url)].to_vec()
        }
        Browser::Find => {
            let url = page(string("url"), get("cursor"))?;
            let pattern = ("pattern", string("pattern")?);
            [("type", "find_in_page".to_owned()), ("url", url), pattern].to_vec()
        }
    };
    let mut out = BytesMut::from(&b"{\"type\":\"web_search_call\",\"action\":{"[..]);
    for (at, (key, value)) in action.iter().enumerate() {
        out.extend_from_slice(if at == 0 { b"\"" } else { b",\"" });
        out.extend_from_slice(key.as_bytes());
        out.extend_from_slice(b"\":");
        write_string(value, &mut out);
    }
    out.put_slice(b"}}");
    String::from_utf8(out.to_vec()).ok()
}

/// Returns the address of a page: its URL, or `cursor:N` for a page that was opened before.
fn page(url: Option<String>, cursor: Option<Raw<'_>>) -> Option<String> {
    let number = |raw: Raw<'_>| {
        raw.get()
            .parse::<i64>()
            .ok()
            .map(|number| format!("cursor:{number}"))
    };
    url.or_else(|| cursor.and_then(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_become_actions() {
        for (tool, arguments, expected) in [
            (
                Browser::Search,
                r#"{"query": "a \"b\"", "topn": 10}"#,
                Some(r#""type":"search","query":"a \"b\"""#),
            ),
            (Browser::Search, r#"{"query": 1}"#, None),
            (Browser::Search, "news", None),
            (Browser::Search, "[]", None),
            (Browser::Search, r#"{"query": "ne"#, None),
            (
                Browser::Open,
                r#"{"cursor": 3, "id": 2}"#,
                Some(r#""type":"open_page","url":"cursor:3""#),
            ),
            (
                Browser::Open,
                r#"{"id": "http://a", "cursor": 3}"#,
                Some(r#""type":"open_page","url":"http://a""#),
            ),
            (
                Browser::Open,
                r#"{"url": "http://a"}"#,
                Some(r#""type":"open_page","url":"http://a""#),
            ),
            (Browser::Open, r#"{"id": 2}"#, None),
            (Browser::Open, "{}", None),
            (
                Browser::Find,
                r#"{"pattern": "p", "cursor": 0}"#,
                Some(r#""type":"find_in_page","url":"cursor:0","pattern":"p""#),
            ),
            (Browser::Find, r#"{"cursor": 0}"#, None),
        ] {
            let expected = expected
                .map(|action| format!("{{\"type\":\"web_search_call\",\"action\":{{{action}}}}}"));
            assert_eq!(item(tool, arguments), expected, "{arguments}");
        }
    }
}
