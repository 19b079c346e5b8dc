//! Embeddings: the one kind of answer that is neither text nor a stream.
//!
//! `object` (`"list"`), `data` (`object`, `index`, `embedding` as sent: numbers or base64), `model`, `usage`
//! (`prompt_tokens`, `total_tokens`). Engines add ids, times and details; the API has none.

use super::fault::{Failure, Unusable};
use crate::json::{Raw, Text, integer, object, read, write_compact, write_number, write_string};
use bytes::{BufMut, BytesMut};

object! {
    struct EmbeddingsBody<'a> {
        data: Vec<EmbeddingEntry<'a>> = "data",
        model: Text<'a> = "model",
        usage: EmbeddingsUsage<'a> = "usage",
        error: Raw<'a> = "error",
        object: Text<'a> = "object",
    }
}

object! {
    struct EmbeddingEntry<'a> {
        index: Raw<'a> = "index",
        embedding: Raw<'a> = "embedding",
    }
}

object! {
    struct EmbeddingsUsage<'a> {
        prompt: Raw<'a> = "prompt_tokens",
        total: Raw<'a> = "total_tokens",
    }
}

/// Writes an engine's answer in canonical form, and returns the number of prompt tokens. `model` is the requested
/// name, for engines that send none.
///
/// # Errors
/// Fails if the body is an error, or not an embeddings answer.
pub fn rewrite(body: &[u8], model: &str, out: &mut BytesMut) -> Result<u64, Failure> {
    let Some(read) = std::str::from_utf8(body)
        .ok()
        .and_then(|text| read::<EmbeddingsBody<'_>>(text).ok())
    else {
        return Err(Unusable::Unreadable.into());
    };
    if read.error.is_some() || read.object.is_some_and(|object| object == "error") {
        return Err(Failure::of_answer(500, body, false));
    }
    let Some(data) = read.data else {
        return Err(Unusable::Unreadable.into());
    };
    out.extend_from_slice(b"{\"object\":\"list\",\"data\":[");
    for (at, entry) in data.iter().enumerate() {
        let Some(embedding) = entry.embedding else {
            return Err(Unusable::Unreadable.into());
        };
        out.extend_from_slice(if at > 0 { b",{" } else { b"{" });
        out.extend_from_slice(b"\"object\":\"embedding\",\"index\":");
        write_number(entry.index.and_then(integer).unwrap_or(at as u64), out);
        out.extend_from_slice(b",\"embedding\":");
        write_compact(embedding.get(), out);
        out.put_u8(b'}');
    }
    out.extend_from_slice(b"],\"model\":");
    match read.model.filter(|model| !model.is_empty()) {
        Some(model) => {
            out.put_u8(b'"');
            model.write(out);
            out.put_u8(b'"');
        }
        None => write_string(model, out),
    }
    let usage = read.usage.unwrap_or_default();
    let prompt = usage.prompt.and_then(integer).unwrap_or(0);
    out.extend_from_slice(b",\"usage\":{\"prompt_tokens\":");
    write_number(prompt, out);
    out.extend_from_slice(b",\"total_tokens\":");
    write_number(usage.total.and_then(integer).unwrap_or(prompt), out);
    out.extend_from_slice(b"}}");
    Ok(prompt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_extras_go_and_numbers_stay() {
        let body = br#"{"id":"embd-1","object":"list","created":1,"model":"m","data":[{"index":0,"object":"embedding",
            "embedding":[0.10, -1e-7]},{"index":1,"embedding":"AAAA"}],"usage":{"prompt_tokens":3,"total_tokens":3,
            "completion_tokens":0,"prompt_tokens_details":null}}"#;
        let mut out = BytesMut::new();
        assert_eq!(rewrite(body, "x", &mut out), Ok(3));
        let expected = r#"{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.10,-1e-7]},{"object":"embedding","index":1,"embedding":"AAAA"}],"model":"m","usage":{"prompt_tokens":3,"total_tokens":3}}"#;
        assert_eq!(std::str::from_utf8(&out).unwrap(), expected);
        assert!(rewrite(b"{}", "x", &mut out).is_err());
        for error in [
            r#"{"object":"error","message":"m"}"#,
            r#"{"error":{"message":"m"}}"#,
        ] {
            let failure = rewrite(error.as_bytes(), "x", &mut out).unwrap_err();
            assert_eq!((failure.status, &*failure.message), (500, "m"), "{error}");
        }
    }
}
