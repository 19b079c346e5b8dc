//! Messages of Anthropic in tests: requests read with an unencrypted form of signatures, so that answers are the same
//! in each run.
#![allow(dead_code, reason = "each test crate uses its part")]

pub mod fold;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::{Bytes, BytesMut};
use samewire::request::Rules;
use samewire::request::messages::{
    MessagesContext, MessagesMode, MessagesRequest, OpenedThinking, Purpose,
};
use samewire::wire::encode::{ThinkingProof, messages_status, write_messages_error};
use samewire::wire::fault::Failure;
use samewire::wire::options::Options;
use serde_json::{Value, json};

/// Beginning of a signature in the form of the worked examples.
const FORM: &str = "swt1.test.";

/// Returns a signature in the form of the worked examples.
pub fn sign(proof: ThinkingProof<'_>) -> Option<String> {
    let content = match proof {
        ThinkingProof::Hash(hash) => format!(r#"{{"v":1,"h":"{hash}"}}"#),
        ThinkingProof::Text(text) => format!(r#"{{"v":1,"t":{}}}"#, json!(text)),
    };
    Some(format!("{FORM}{}", URL_SAFE_NO_PAD.encode(content)))
}

/// Opens a signature in the form of the worked examples.
pub fn open(signature: &str) -> Option<OpenedThinking> {
    let content = URL_SAFE_NO_PAD.decode(signature.strip_prefix(FORM)?).ok()?;
    let content: Value = serde_json::from_slice(&content).ok()?;
    match (&content["h"], &content["t"]) {
        (Value::String(hash), _) => Some(OpenedThinking::Hash(hash.clone())),
        (_, Value::String(text)) => Some(OpenedThinking::Text(text.clone())),
        _ => None,
    }
}

/// Reads a request.
pub fn read(
    body: &Bytes,
    options: &Options,
    context_length: Option<u64>,
    mode: MessagesMode,
    purpose: Purpose,
) -> Result<MessagesRequest, Failure> {
    let context = MessagesContext {
        rules: &Rules::default(),
        options,
        model: None,
        open: &open,
        defaults: &[],
        context_length,
        mode,
        purpose,
    };
    MessagesRequest::read(body, &context)
}

/// Returns the status and the body of an error.
pub fn error(failure: &Failure) -> (u16, String) {
    let mut out = BytesMut::new();
    write_messages_error(failure, None, &mut out);
    (
        messages_status(failure).0,
        String::from_utf8(out.to_vec()).unwrap(),
    )
}
