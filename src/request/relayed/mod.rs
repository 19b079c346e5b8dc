//! Requests relayed without parsing the whole body: finds the model name while the body streams through.
//!
//! Takes: the bytes of a body, cut anywhere. Gives: the model, and the same bytes with another name for it. Never:
//! keeps more than one key or one part's head, and the model's value; lets a second value for the model pass.

mod multipart;
mod value;

use super::form::FormReader;
use super::refusals::{invalid, unreadable_form};
use super::rules::Rules;
use crate::json::{self, Raw, object};
use crate::wire::Api;
use crate::wire::fault::Failure;
use bytes::{Bytes, BytesMut};
use multipart::FormScan;
use std::ops::Range;
use value::JsonScan;

/// Name of the JSON member, or of the form part, that names the model.
const MODEL: &str = "model";

/// Maximum length of the `model` value as written, in bytes.
const VALUE: usize = 4 << 10;

/// Model name found in a body, with its place so that it can be replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedModel {
    /// Name of the model; empty for `null` and for an empty string.
    pub model: String,
    /// Range of the value in the body, including quotes if it has any.
    pub at: Range<usize>,
}

/// Returns the API that a request body belongs to, by its members: Chat Completions have `messages`, Completions a
/// `prompt`.
pub fn api_of(body: &[u8]) -> Option<Api> {
    let held: ApiMembers<'_> = json::read(std::str::from_utf8(body).ok()?).ok()?;
    match (held.messages, held.prompt) {
        (Some(_), _) => Some(Api::Chat),
        (None, Some(_)) => Some(Api::Completions),
        (None, None) => None,
    }
}

object! {
    /// Members that occur only in requests of one API.
    struct ApiMembers<'a> {
        messages: Raw<'a> = "messages",
        prompt: Raw<'a> = "prompt",
    }
}

/// Incremental search for the model name in a body that arrives in pieces, as JSON or as a multipart form.
#[derive(Clone, Debug)]
pub struct Scan {
    form: BodyScan,
    /// Number of bytes scanned so far.
    offset: usize,
}

#[derive(Clone, Debug)]
enum BodyScan {
    Json(JsonScan),
    Multipart(FormScan),
    /// A form with a boundary that samewire and an engine could read differently.
    Unreadable,
    /// A content type in which samewire does not look for a model.
    Other,
}

impl Scan {
    /// Starts a scan of a body with this `content-type`.
    pub fn of(content_type: &str) -> Self {
        let kind = content_type
            .split(';')
            .next()
            .unwrap_or_default()
            .trim()
            .to_ascii_lowercase();
        let form = match kind.as_str() {
            "multipart/form-data" => match FormReader::of(content_type) {
                Some(reader) => BodyScan::Multipart(FormScan::new(reader)),
                None => BodyScan::Unreadable,
            },
            // A body without a type, or with the default type of `curl -d`, counts as JSON if it starts like it.
            "" | "application/json" | "application/x-www-form-urlencoded" => {
                BodyScan::Json(JsonScan::default())
            }
            kind if kind.ends_with("+json") => BodyScan::Json(JsonScan::default()),
            _ => BodyScan::Other,
        };
        Self { form, offset: 0 }
    }

    /// Scans the next piece of the body.
    ///
    /// # Errors
    /// Fails if the model is named twice, or by something that is not text; if a field steers the engine
    /// (faults 11); or if engines could read the body differently.
    pub fn push(&mut self, bytes: &[u8], rules: &Rules) -> Result<(), Failure> {
        match &mut self.form {
            BodyScan::Json(json) => json.push(bytes, self.offset, rules)?,
            BodyScan::Multipart(form) => form.push(bytes, rules)?,
            BodyScan::Unreadable => {
                return Err(unreadable_form("its content type has no valid boundary"));
            }
            BodyScan::Other => {}
        }
        self.offset += bytes.len();
        Ok(())
    }

    /// Returns the model, once its value has been scanned completely.
    pub fn named(&self) -> Option<&NamedModel> {
        match &self.form {
            BodyScan::Json(json) => json.named.as_ref(),
            BodyScan::Multipart(form) => form.named.as_ref(),
            BodyScan::Unreadable | BodyScan::Other => None,
        }
    }

    /// Returns true if the rest of the body cannot contain the first mention of the model.
    pub fn is_settled(&self) -> bool {
        self.named().is_some()
            || match &self.form {
                BodyScan::Json(json) => json.is_over(),
                BodyScan::Multipart(form) => form.reader.is_over(),
                BodyScan::Unreadable => false,
                BodyScan::Other => true,
            }
    }

    /// Returns true if the body can name a model: it is a JSON object or a form.
    pub fn can_name(&self) -> bool {
        match &self.form {
            BodyScan::Json(json) => json.opened.is_some(),
            BodyScan::Multipart(form) => form.reader.opened().is_some(),
            BodyScan::Unreadable | BodyScan::Other => false,
        }
    }

    /// Makes [`Scan::push`] fail if the rest of the body names a model, because another name is already in use.
    pub fn forbid(&mut self) {
        let named = Some(NamedModel {
            model: String::new(),
            at: 0..0,
        });
        match &mut self.form {
            BodyScan::Json(json) => json.named = named,
            BodyScan::Multipart(form) => form.named = named,
            BodyScan::Unreadable | BodyScan::Other => {}
        }
    }

    /// Returns true if the body, as far as scanned, is a JSON object.
    pub fn is_json(&self) -> bool {
        matches!(&self.form, BodyScan::Json(json) if json.opened.is_some())
    }

    /// Replaces or inserts the model name in `front`, which must be all of the body scanned so far. Returns `None`
    /// for a body that has no place for a name.
    pub fn renamed(&self, front: &Bytes, model: &str) -> Option<Bytes> {
        let at = self.named().map(|named| named.at.clone());
        let (at, text) = match &self.form {
            BodyScan::Json(json) => {
                let name = serde_json::to_string(model).ok()?;
                match at {
                    Some(at) => (at, name),
                    None => {
                        let comma = if json.is_empty { "" } else { "," };
                        let at = json.opened?;
                        (at..at, format!("\"{MODEL}\":{name}{comma}"))
                    }
                }
            }
            BodyScan::Multipart(form) => match at {
                Some(at) => (at, model.to_owned()),
                None => {
                    let at = form.reader.opened()?;
                    (at..at, form.reader.written_part(MODEL, model))
                }
            },
            BodyScan::Unreadable | BodyScan::Other => return None,
        };
        let mut out = BytesMut::with_capacity(front.len() + text.len());
        out.extend_from_slice(front.get(..at.start)?);
        out.extend_from_slice(text.as_bytes());
        out.extend_from_slice(front.get(at.end..)?);
        Some(out.freeze())
    }
}

/// Builds the failure for a `model` value that is too long to be a name.
fn too_long() -> Failure {
    invalid(MODEL, &format!("it must have at most {VALUE} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Caps;
    use crate::wire::fault::Fault;

    const FORM: &str = "multipart/form-data; boundary=\"b-1\"";

    /// Scans a body in pieces of `size` bytes.
    fn scan(kind: &str, body: &[u8], size: usize) -> Result<Scan, Failure> {
        let mut scan = Scan::of(kind);
        let rules = Rules::default();
        body.chunks(size.max(1))
            .try_for_each(|piece| scan.push(piece, &rules))?;
        Ok(scan)
    }

    fn read_again(kind: &str, body: &[u8], size: usize) -> Result<Scan, Failure> {
        scan(kind, body, size)
    }

    fn part(disposition: &str, value: &str) -> String {
        format!("--b-1\r\nContent-Disposition: form-data; {disposition}\r\n\r\n{value}\r\n")
    }

    fn form(parts: &[(&str, &str)]) -> String {
        let parts: String = parts
            .iter()
            .map(|(disposition, value)| part(disposition, value))
            .collect();
        parts + "--b-1--\r\n"
    }

    #[test]
    fn the_model_is_found_wherever_the_body_is_cut() {
        let nested = r#" {"input":{"model":"no","x":["model",{"model":1}]},"a\"b":"\\","mod\u0065l" : "a\/b\u00e9" ,"z":1}"#;
        let file = "\r\n--b-2\r\n--b-\r\r\n--b\r\n-x".repeat(5);
        let file_first = form(&[
            (r#"name="file"; filename="m;odel\".wav""#, &file),
            (r#"name="model""#, "whisper"),
        ]);
        let model_first = form(&[
            (r"name=model", "whisper"),
            (r#"name="file"; filename="a""#, &file),
        ]);
        for (kind, body, expected) in [
            ("application/json", r#"{"model":"m"}"#, Some("m")),
            ("application/json", nested, Some("a/bé")),
            ("application/json", "\u{feff}{\"model\":\"m\"}", Some("m")),
            ("", r#"{"input":"x","model":"m"}"#, Some("m")),
            (
                "application/x-www-form-urlencoded",
                r#"{"model":"m"}"#,
                Some("m"),
            ),
            (
                "application/vnd.api+json; charset=utf-8",
                r#"{"model":"m"}"#,
                Some("m"),
            ),
            ("application/json", r#"{"model":null,"input":1}"#, Some("")),
            ("application/json", r#"{"model":"","input":1}"#, Some("")),
            (
                "application/json",
                r#"{"input":"model","models":"m"}"#,
                None,
            ),
            ("application/json", r#"["model","m"]"#, None),
            ("application/json", "{}", None),
            ("application/json", "model=m", None),
            ("application/octet-stream", r#"{"model":"m"}"#, None),
            (FORM, &file_first, Some("whisper")),
            (FORM, &model_first, Some("whisper")),
            (FORM, &form(&[(r#"name="models""#, "x")]), None),
            (FORM, "--b-1--\r\n", None),
        ] {
            for size in 1..=body.len() {
                let scan = scan(kind, body.as_bytes(), size).unwrap();
                let named = scan.named();
                assert_eq!(
                    named.map(|named| named.model.as_str()),
                    expected,
                    "{body} in pieces of {size}"
                );
                assert!(scan.is_settled(), "{body} in pieces of {size}");
            }
        }
    }

    #[test]
    fn half_a_body_is_not_settled_before_the_model_has_passed() {
        let file = form(&[
            (r#"name="file"; filename="a""#, "audio"),
            (r#"name="model""#, "whisper"),
        ]);
        for (kind, body, after) in [
            ("application/json", r#"{"a":[1],"model": "m" }"#, r#""m""#),
            (FORM, &file, "whisper\r\n--b-1"),
        ] {
            let known = body.find(after).unwrap() + after.len();
            for cut in 0..=body.len() {
                let scan = scan(kind, &body.as_bytes()[..cut], cut).unwrap();
                assert_eq!(scan.named().is_some(), cut >= known, "{cut} of {body:?}");
                assert_eq!(scan.is_settled(), cut >= known, "{cut} of {body:?}");
            }
        }
    }

    #[test]
    fn another_name_is_written_in_its_place() {
        let named = form(&[
            (r#"name="file""#, "x"),
            (r#"name="model""#, "small"),
            (r#"name="n""#, "1"),
        ]);
        let renamed = form(&[
            (r#"name="file""#, "x"),
            (r#"name="model""#, "large"),
            (r#"name="n""#, "1"),
        ]);
        let without = form(&[(r#"name="file""#, "x")]);
        let with = form(&[(r#"name="model""#, "large"), (r#"name="file""#, "x")]);
        for (kind, body, expected) in [
            (
                "application/json",
                r#"{"input":1, "model" : "small" }"#,
                r#"{"input":1, "model" : "large" }"#,
            ),
            (
                "application/json",
                r#"{"model":null}"#,
                r#"{"model":"large"}"#,
            ),
            (
                "application/json",
                r#" { "input":1}"#,
                r#" {"model":"large", "input":1}"#,
            ),
            ("application/json", "{}", r#"{"model":"large"}"#),
            (FORM, &named, &renamed),
            (
                FORM,
                &without,
                &with
                    .replace("Content-Disposition", "content-disposition")
                    .replacen(
                        "content-disposition: form-data; name=\"file\"",
                        "Content-Disposition: form-data; name=\"file\"",
                        1,
                    ),
            ),
        ] {
            let scan = scan(kind, body.as_bytes(), 7).unwrap();
            let renamed = scan
                .renamed(&Bytes::copy_from_slice(body.as_bytes()), "large")
                .unwrap();
            assert_eq!(std::str::from_utf8(&renamed).unwrap(), expected);
        }
        let quoted = scan("application/json", br#"{"model":"x"}"#, 3).unwrap();
        let renamed = quoted
            .renamed(&Bytes::from_static(br#"{"model":"x"}"#), "a\"b")
            .unwrap();
        assert_eq!(&renamed[..], br#"{"model":"a\"b"}"#);
        for (kind, body) in [
            ("application/json", "[]"),
            ("text/plain", "{}"),
            (FORM, "x"),
        ] {
            let scan = scan(kind, body.as_bytes(), 9).unwrap();
            assert_eq!(
                scan.renamed(&Bytes::copy_from_slice(body.as_bytes()), "large"),
                None,
                "{body}"
            );
        }
    }

    /// Refuses bodies in which the engine and the proxy could each read a different model.
    #[test]
    fn what_can_be_read_in_two_ways_is_refused() {
        let long = format!(r#"{{"model":"{}"}}"#, "x".repeat(VALUE + 1));
        let deep = format!(r#"{{"input":{}"#, "[".repeat(200));
        let long_form = form(&[(r#"name="model""#, &"x".repeat(VALUE + 1))]);
        let header = format!("--b-1\r\nx: {}", "y".repeat(20_000));
        for (kind, body, what) in [
            ("application/json", r#"{"model":"a","model":"b"}"#, "twice"),
            (
                "application/json",
                r#"{"model":"a","mod\u0065l":"b"}"#,
                "twice",
            ),
            ("application/json", r#"{"model":null,"model":"b"}"#, "twice"),
            ("application/json", r#"{"model":7}"#, "'model'"),
            ("application/json", r#"{"model":true}"#, "'model'"),
            ("application/json", r#"{"model":["a"]}"#, "'model'"),
            ("application/json", r#"{"model":{}}"#, "'model'"),
            ("application/json", "{\"model\":\"\\ud800\"}", "'model'"),
            ("application/json", &long, "'model'"),
            ("application/json", "{\0\"\0m\0o\0", "JSON"),
            ("application/json", &deep, "nested"),
            (
                "application/json",
                r#"{"bootstrap_host":"x"}"#,
                "bootstrap_host",
            ),
            (
                FORM,
                &form(&[(r#"name="model""#, "a"), (r#"name="model""#, "b")]),
                "twice",
            ),
            (FORM, &form(&[("name*=utf-8''model", "a")]), "name"),
            (FORM, &form(&[(r#"name="a"; name="model""#, "a")]), "name"),
            (FORM, &form(&[(r#"name="mod\el""#, "a")]), "name"),
            (FORM, &form(&[(r#"name="lora_path""#, "a")]), "lora_path"),
            (FORM, &long_form, "'model'"),
            (FORM, "--b-1x\r\n", "boundary"),
            (FORM, &header, "head"),
        ] {
            for size in [1, 2, 5, 64, body.len()] {
                let failure = scan(kind, body.as_bytes(), size).expect_err(body);
                assert!(
                    failure.message.contains(what),
                    "{body}: {}",
                    failure.message
                );
                assert_eq!(failure.status, 400, "{body}");
            }
        }
    }

    /// Scans random bytes in pieces of any size: the result is always the same, without a panic.
    #[test]
    fn noise_is_read_alike_in_all_pieces() {
        let mut seed = 7_u64;
        let mut next = |below: usize| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(seed >> 33).unwrap() % below
        };
        let words: [&[u8]; 18] = [
            b"{",
            b"}",
            b"[",
            b"]",
            b"\"",
            b"\\",
            b":",
            b",",
            b"\"model\"",
            b"\"m\"",
            b"null",
            b" ",
            b"\r\n",
            b"--b-1",
            b"--",
            b"Content-Disposition: form-data; name=\"model\"",
            b"\r\n\r\n",
            b"\xff",
        ];
        for _ in 0..20_000 {
            let mut body = if next(2) == 0 {
                b"{".to_vec()
            } else {
                b"--b-1\r\n".to_vec()
            };
            for _ in 0..next(24) {
                body.extend_from_slice(words[next(words.len())]);
            }
            let kind = if next(2) == 0 {
                FORM
            } else {
                "application/json"
            };
            let read = |size| {
                scan(kind, &body, size).map(|scan| (scan.named().cloned(), scan.is_settled()))
            };
            let whole = read(body.len());
            for size in [1, 2, 3, 1 + next(9)] {
                assert_eq!(
                    read(size),
                    whole,
                    "{:?} in pieces of {size}",
                    String::from_utf8_lossy(&body)
                );
            }
            if let Ok((Some(named), _)) = whole {
                let scan = scan(kind, &body, 5).unwrap();
                let again = scan.renamed(&Bytes::from(body.clone()), "another").unwrap();
                let again = read_again(kind, &again, 5).unwrap();
                assert_eq!(
                    again.named().map(|named| named.model.as_str()),
                    Some("another"),
                    "{named:?}"
                );
            }
        }
    }

    #[test]
    fn a_boundary_is_one_that_all_servers_read_alike() {
        let is_form = |boundary: &str| {
            let mut scan = Scan::of(&format!("multipart/form-data; boundary={boundary}"));
            scan.push(b"-", &Rules::default()).is_ok()
        };
        let long = "b".repeat(256);
        for good in ["b", "\"b c\"", &long] {
            assert!(is_form(good), "{good}");
        }
        for bad in [
            "",
            "\"\"",
            &format!("{long}b"),
            "ü",
            "a\u{7f}",
            "a; boundary=b",
            "a; BOUNDARY=a",
            "a; boundary*=utf-8''b",
            r#""a\"b""#,
            r#""a\\b""#,
        ] {
            assert!(!is_form(bad), "{bad}");
        }
        let failure = Scan::of("multipart/form-data")
            .push(b"-", &Rules::default())
            .unwrap_err();
        assert_eq!(
            failure.message,
            "The multipart body cannot be read: its content type has no valid boundary."
        );
    }

    /// The last byte that is allowed, and the first that is not, however the body is cut.
    #[test]
    fn lengths_end_at_their_limit() {
        let value = |bytes: usize| format!(r#"{{"model":"{}"}}"#, "x".repeat(bytes - 2));
        let form_value = |bytes: usize| form(&[(r#"name="model""#, &"x".repeat(bytes))]);
        let head = |bytes: usize| {
            let disposition = r#"Content-Disposition: form-data; name="model""#;
            let padding = "y".repeat(bytes - disposition.len() - "\r\n\r\nx: \r\n\r\n".len());
            format!("--b-1\r\n{disposition}\r\nx: {padding}\r\n\r\nm\r\n--b-1--\r\n")
        };
        for (kind, most, more, what) in [
            (
                "application/json",
                value(4096),
                value(4097),
                "it must have at most 4096 bytes",
            ),
            (
                FORM,
                form_value(4096),
                form_value(4097),
                "it must have at most 4096 bytes",
            ),
            (
                FORM,
                head(16_384),
                head(16_385),
                "the head of a part is too long",
            ),
        ] {
            for size in [1, 2, 64, 1000, most.len() + 1] {
                let scan = scan(kind, most.as_bytes(), size).expect(what);
                assert!(scan.named().is_some(), "{what} in pieces of {size}");
                let failure = self::scan(kind, more.as_bytes(), size).expect_err(what);
                assert!(failure.message.contains(what), "{}", failure.message);
            }
        }
    }

    #[test]
    fn a_body_is_as_deep_as_the_operator_allows() {
        let rules = Rules {
            caps: Caps {
                depth: 3,
                ..Caps::PLAIN
            },
            ..Rules::default()
        };
        let scan = |body: &str| {
            let mut scan = Scan::of("application/json");
            scan.push(body.as_bytes(), &rules)
                .map(|()| scan.named().is_some())
        };
        assert_eq!(scan(r#"{"a":[{"b":1},[2]],"model":"m"}"#), Ok(true));
        for body in [
            r#"{"a":[[{}]],"model":"m"}"#,
            r#"{"a":{"b":[[]]},"model":"m"}"#,
        ] {
            let failure = scan(body).unwrap_err();
            assert_eq!(failure.fault, Fault::TooDeep);
            assert_eq!(
                failure.message,
                "The request body is nested more than 3 levels deep."
            );
        }
    }

    #[test]
    fn only_one_byte_order_mark_may_come_first() {
        for (body, named) in [
            (&b"\xef\xbb\xbf{\"model\":\"m\"}"[..], true),
            (b"\xef\xbb\xbf\xef{\"model\":\"m\"}", false),
            (b"\xef\xbb\xbf\xef\xbb\xbf{\"model\":\"m\"}", false),
            (b" \xef\xbb\xbf\xbf{\"model\":\"m\"}", false),
        ] {
            let scan = scan("application/json", body, 1).unwrap();
            assert_eq!(
                (scan.named().is_some(), scan.can_name()),
                (named, named),
                "{body:?}"
            );
        }
        for body in [
            &b"\xff\xfe{\0"[..],
            b"\xfe\xff\0{",
            b"\0{",
            b"\0\0\0{",
            b" \0{\0",
        ] {
            let failure =
                scan("application/json", body, 1).expect_err("an encoding that engines may read");
            assert_eq!(failure.fault, Fault::InvalidJson, "{body:?}");
        }
        // Other bytes are no JSON in any encoding.
        assert!(scan("", b"\xff\xfb\x90\x64", 1).unwrap().is_settled());
    }

    /// The names of a part end where an engine ends them.
    #[test]
    fn quoted_names_end_at_their_own_quote() {
        for (disposition, named) in [
            (r#"name="file"; filename="a\"; name=\"model""#, None),
            (r#"filename="a\\"; name="model""#, Some("x")),
            (r#"filename="a;b\"c"; name="model""#, Some("x")),
        ] {
            let scan = scan(FORM, form(&[(disposition, "x")]).as_bytes(), 7).unwrap();
            assert_eq!(
                scan.named().map(|named| named.model.as_str()),
                named,
                "{disposition}"
            );
        }
        for disposition in [
            "name*0=\"mod\"; name*1=\"el\"",
            "NAME*0*=utf-8''model",
            "name*=utf-8''model",
            "name=\"a\"\nContent-Disposition: form-data; name=\"model\"",
        ] {
            let failure =
                scan(FORM, form(&[(disposition, "x")]).as_bytes(), 7).expect_err(disposition);
            assert_eq!(
                failure.message,
                "The multipart body cannot be read: the name of a part can be read in several ways."
            );
        }
    }

    #[test]
    fn a_name_is_inserted_between_the_preamble_and_the_first_part() {
        let parts = form(&[(r#"name="n""#, "1")]);
        let body = format!("preamble\r\n{parts}");
        let scan = scan(FORM, body.as_bytes(), 3).unwrap();
        let renamed = scan.renamed(&Bytes::from(body), "large").unwrap();
        let inserted = "--b-1\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\nlarge\r\n";
        assert_eq!(
            std::str::from_utf8(&renamed).unwrap(),
            format!("preamble\r\n{inserted}{parts}")
        );
    }
}
