//! Refusals of a request by the words of engines, which report them with a status of their own failures, too: what one
//! engine says of a request, another one with the same model says as well (engines H.3).
//!
//! Takes: an engine's message. Gives: whether it is about the request. Never: reads a status.

/// Parts of messages about the request itself, in lower case. Evidence: engines H.3.
const REFUSALS: &[&str] = &[
    // Chat templates: llama.cpp with 500, vLLM and SGLang with 400, older versions with 500.
    "jinja",
    "chat template",
    "chat_template",
    "roles must alternate",
    "system message must be",
    "cannot pass both",
    "unexpected reasoning effort",
    "unexpected message role",
    "unexpected role",
    // llama.cpp with 500, for a model without eyes or ears.
    "image input is not supported",
    "audio input is not supported",
    "model does not support",
    // vLLM's Rust front end with 500.
    "tool parsing is disabled by frontend configuration",
];

/// Returns true if the message is about the request: it is the client's to change.
pub(super) fn is_about_request(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    REFUSALS.iter().any(|part| message.contains(part))
}

/// Returns true if the message says that prompt and answer do not fit into the model's context.
pub(super) fn is_about_context(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    let exceeds = message.find("exceeds").and_then(|at| message.get(at..));
    message.contains("maximum context length")
        // vLLM from 0.15: "the model's context length is only"; its multimodal prompts.
        || message.contains("context length is only")
        || message.contains("longer than the maximum model length")
        // SGLang.
        || message.contains("prompt is too long after expanding multimodal tokens")
        || exceeds.is_some_and(|rest| rest.contains("maximum allowed length"))
        || message.contains("longer than the model's context")
        // LMDeploy: "must be smaller than".
        || message.contains("smaller than the model context length")
        // llama.cpp: "the available context size"; while it writes, with 500: "Context size has been exceeded."
        || exceeds.is_some_and(|rest| rest.contains("context length") || rest.contains("context size"))
        || message.contains("context size has been exceeded")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_about_the_request() {
        for message in [
            "Jinja Exception: Cannot pass both content and thinking in an assistant message with tool calls!",
            "Conversation roles must alternate user/assistant/user/assistant/...",
            "Unexpected reasoning effort high. Supported types are xhigh (default), medium, and low.",
            "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
        ] {
            assert!(is_about_request(message), "{message}");
        }
        for message in [
            "CUDA out of memory",
            "EngineCore encountered an issue",
            "unexpected EOF",
        ] {
            assert!(
                !is_about_request(message) && !is_about_context(message),
                "{message}"
            );
        }
        assert!(is_about_context("Context size has been exceeded."));
    }
}
