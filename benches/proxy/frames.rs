//! The engine's answer, rendered once.
//!
//! Takes: nothing.
//! Gives: slices of one buffer that holds every chunk in the order of sending, already framed as HTTP chunks.
//! Remembers: the buffer and the start of each chunk.
//! Never: formats anything while a stream runs.

use std::ops::Range;

const HEAD: &str = concat!(
    "HTTP/1.1 200 OK\r\n",
    "date: Tue, 01 Jul 2025 12:00:00 GMT\r\n",
    "server: uvicorn\r\n",
    "content-type: text/event-stream; charset=utf-8\r\n",
    "transfer-encoding: chunked\r\n\r\n"
);

const ENVELOPE: &str = concat!(
    r#"{"id":"chatcmpl-94a7e287cfbf08d97a1c5e2b63d04f18","object":"chat.completion.chunk","#,
    r#""created":1751371200,"model":"meta-llama/Llama-3.1-8B-Instruct","choices":["#
);

const WORDS: [&str; 16] = [
    " the", " model", " answers", " with", " one", " word", " after", " another", ",", " and",
    " every", " one", " of", " them", " counts", ".",
];

/// Number of deltas stored one after the other in the buffer; a batch is at most half of them.
const RING: usize = 128;
/// Largest number of deltas that [`Frames::deltas`] returns at once.
pub(crate) const BATCH: usize = RING / 2;

pub(crate) struct Frames {
    ring: Vec<u8>,
    starts: Vec<usize>,
    role: Vec<u8>,
    finish: Vec<u8>,
    usage: Vec<u8>,
    done: Vec<u8>,
    whole: Vec<u8>,
}

impl Frames {
    pub(crate) fn new() -> Self {
        let mut ring = Vec::new();
        let mut starts = Vec::new();
        for place in 0..RING {
            starts.push(ring.len());
            // The second half repeats the first, so that a batch that begins anywhere in the first half is contiguous.
            let word = WORDS[place % BATCH % WORDS.len()];
            ring.extend_from_slice(&delta(word));
        }
        starts.push(ring.len());
        let mut done = chunk("[DONE]");
        done.extend_from_slice(b"0\r\n\r\n");
        Self {
            ring,
            starts,
            role: chunk(&format!(
                r#"{ENVELOPE}{{"index":0,"delta":{{"role":"assistant","content":""}},"logprobs":null,"finish_reason":null}}],"prompt_token_ids":null}}"#
            )),
            finish: chunk(&format!(
                r#"{ENVELOPE}{{"index":0,"delta":{{"content":""}},"logprobs":null,"finish_reason":"stop","stop_reason":null,"token_ids":null}}]}}"#
            )),
            usage: chunk(&format!(
                r#"{ENVELOPE}],"usage":{{"prompt_tokens":24,"total_tokens":1048,"completion_tokens":1024}}}}"#
            )),
            done,
            whole: whole(),
        }
    }

    /// Returns `count` deltas, starting with number `from` of the stream.
    pub(crate) fn deltas(&self, from: usize, count: usize) -> &[u8] {
        let first = from % BATCH;
        let range: Range<usize> = self.starts[first]..self.starts[first + count];
        &self.ring[range]
    }

    pub(crate) fn head(&self) -> &'static [u8] {
        HEAD.as_bytes()
    }

    pub(crate) fn role(&self) -> &[u8] {
        &self.role
    }

    pub(crate) fn finish(&self) -> &[u8] {
        &self.finish
    }

    pub(crate) fn usage(&self) -> &[u8] {
        &self.usage
    }

    /// Returns `[DONE]` and the end of the HTTP body.
    pub(crate) fn done(&self) -> &[u8] {
        &self.done
    }

    /// Returns a complete answer, head included.
    pub(crate) fn whole(&self) -> &[u8] {
        &self.whole
    }
}

/// Returns a delta with this text.
pub(crate) fn delta(text: &str) -> Vec<u8> {
    chunk(&format!(
        r#"{ENVELOPE}{{"index":0,"delta":{{"content":"{text}"}},"logprobs":null,"finish_reason":null,"token_ids":null}}]}}"#
    ))
}

fn chunk(data: &str) -> Vec<u8> {
    let length = "data: ".len() + data.len() + "\n\n".len();
    format!("{length:x}\r\ndata: {data}\n\n\r\n").into_bytes()
}

fn whole() -> Vec<u8> {
    let body = concat!(
        r#"{"id":"chatcmpl-94a7e287cfbf08d97a1c5e2b63d04f18","object":"chat.completion","created":1751371200,"#,
        r#""model":"meta-llama/Llama-3.1-8B-Instruct","choices":[{"index":0,"message":{"role":"assistant","#,
        r#""content":"The model answers with one word after another, and every one of them counts.","refusal":null,"#,
        r#""annotations":null,"audio":null,"function_call":null,"tool_calls":[],"reasoning":null},"logprobs":null,"#,
        r#""finish_reason":"stop","stop_reason":null,"token_ids":null}],"service_tier":null,"#,
        r#""system_fingerprint":null,"usage":{"prompt_tokens":24,"total_tokens":40,"completion_tokens":16,"#,
        r#""prompt_tokens_details":null},"prompt_logprobs":null,"prompt_token_ids":null,"kv_transfer_params":null}"#
    );
    json_answer(body)
}

/// Returns a JSON body with the head that an engine would send before it.
pub(crate) fn json_answer(body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 200 OK\r\ndate: Tue, 01 Jul 2025 12:00:00 GMT\r\nserver: uvicorn\r\ncontent-length: {}\r\n\
         content-type: application/json\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}
