//! Limits of the memory that a hostile or broken engine can make the rewriter hold (P15).

use crate::cases::Case;
use samewire::wire::{Api, Ending, OutputBuffer, Rewriter};
use serde_json::json;

const LIMIT: usize = 1 << 20;

fn rewriter(n: u32) -> Rewriter {
    rewriter_for(Api::Chat, n)
}

fn rewriter_for(api: Api, n: u32) -> Rewriter {
    let request = json!({"model": "m", "stream": true, "n": n});
    let case = Case {
        name: "memory".to_owned(),
        api,
        request,
        ..Case::default()
    };
    case.rewriter_within(LIMIT, false)
}

/// Returns the most bytes held at a time while `reads` come in, with the output drained at once, and the failure's
/// code if there is one.
fn held(n: u32, reads: impl IntoIterator<Item = Vec<u8>>) -> (u64, Option<String>) {
    let mut code = None;
    let mut reads = reads.into_iter();
    let mut largest = 0;
    let info = allocation_counter::measure(|| {
        let mut rewriter = rewriter(n);
        let mut out = OutputBuffer::default();
        loop {
            let mut read = Vec::new();
            allocation_counter::opt_out(|| read = reads.next().unwrap_or_default());
            if read.is_empty() {
                break;
            }
            rewriter.push(&read, &mut out);
            largest = largest.max(out.len());
            out.clear();
            allocation_counter::opt_out(|| drop(read));
        }
        rewriter.finish(Ending::Clean, &mut out);
        allocation_counter::opt_out(|| {
            code = rewriter
                .reader
                .failure()
                .and_then(|failure| failure.code.clone())
                .map(|code| code.into_owned());
        });
    });
    (info.bytes_max, code)
}

fn within(limit: usize, n: u32, reads: impl IntoIterator<Item = Vec<u8>>) -> Option<String> {
    let (most, code) = held(n, reads);
    assert!(
        most <= limit as u64,
        "{most} bytes were held, {limit} are allowed ({code:?})"
    );
    code
}

fn times(first: &str, read: &[u8], count: usize) -> impl Iterator<Item = Vec<u8>> + use<> {
    std::iter::once(first.as_bytes().to_vec()).chain(std::iter::repeat_n(read.to_vec(), count))
}

#[test]
fn a_line_that_never_ends() {
    for start in [
        "data: ",
        "data: {\"choices\":[{\"delta\":{\"content\":\"",
        ": ",
        "event: ",
        "x",
    ] {
        let code = within(2 * LIMIT, 1, times(start, &[b'x'; 16_384], 1_024));
        assert_eq!(code.as_deref(), Some("upstream_invalid_event"), "{start}");
    }
}

#[test]
fn an_event_that_never_ends() {
    let code = within(
        2 * LIMIT,
        1,
        times("", b"data: [1,\ndata:\n: x\nid: 1\n", 400_000).skip(1),
    );
    assert_eq!(code.as_deref(), Some("upstream_invalid_event"));
}

#[test]
fn a_frame_larger_than_allowed() {
    let frame = format!(
        "data: {{\"choices\":[{{\"delta\":{{\"content\":\"{}\"}}}}]}}\n\n",
        "x".repeat(LIMIT)
    );
    let code = within(2 * LIMIT, 1, [frame.into_bytes()]);
    assert_eq!(code.as_deref(), Some("upstream_invalid_event"));
}

#[test]
fn text_without_end() {
    let text = b"data: {\"id\":\"a\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"word \"},\"token_ids\":[1]}]}\n\n";
    let code = within(16_384, 1, times("", text, 100_000).skip(1));
    assert_eq!(code.as_deref(), Some("upstream_incomplete"));
}

#[test]
fn one_call_without_end() {
    let args = b"data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"f\",\"arguments\":\"x\"}}]}}]}\n\n";
    within(16_384, 1, times("", args, 100_000).skip(1));
}

#[test]
fn choices_nobody_asked_for() {
    for index in [
        "1",
        "4294967295",
        "4294967296",
        "18446744073709551615",
        "-1",
    ] {
        let chunk = format!(
            "data: {{\"choices\":[{{\"index\":{index},\"delta\":{{\"content\":\"x\"}}}}]}}\n\n"
        );
        let code = within(16_384, 1, times("", chunk.as_bytes(), 10).skip(1));
        assert_eq!(code.as_deref(), Some("upstream_invalid_event"), "{index}");
    }
    let last = b"data: {\"choices\":[{\"index\":127,\"delta\":{\"content\":\"x\"}}]}\n\n";
    within(1 << 17, 128, times("", last, 10).skip(1));
}

/// Tool call indices are identifiers, not positions in a list: a huge index must not allocate.
#[test]
fn huge_indices_of_calls() {
    let chunk = |index: u64| {
        let call = format!(
            "{{\"index\":{index},\"id\":\"c{index}\",\"function\":{{\"name\":\"f\",\"arguments\":\"{{}}\"}}}}"
        );
        format!("data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{call}]}}}}]}}\n\n")
            .into_bytes()
    };
    let code = within(1 << 17, 1, (0..200).map(|at| chunk(u64::MAX - at)));
    assert_eq!(code.as_deref(), Some("upstream_incomplete"));
    // Memory for calls grows only with their number, which is limited.
    let code = within(1_024 * 1_024, 1, (0..1_024).map(chunk));
    assert_eq!(code.as_deref(), Some("upstream_incomplete"));
    let code = within(1_024 * 1_024, 1, (0..1_025).map(chunk));
    assert_eq!(code.as_deref(), Some("upstream_invalid_event"));
}

#[test]
fn deep_nesting_is_refused_in_bounded_memory() {
    for open in ["[", "{\"a\":"] {
        let frame = format!(
            "data: {{\"choices\":[],\"usage\":null,\"deep\":{}\n\n",
            open.repeat(100_000)
        );
        let code = within(2 * LIMIT, 1, [frame.into_bytes()]);
        assert_eq!(code.as_deref(), Some("upstream_invalid_event"));
    }
}

/// A response holds its output once, and at most 64 KiB besides: both while it runs, and when its last events,
/// which repeat the output up to four times, wait for a client that does not read.
#[test]
fn a_response_holds_its_output_once() {
    const PIECE: usize = 1_024;
    const BESIDES: i64 = 64 << 10;
    for (delta, times, what) in [
        (r#"{"content":"PIECE"}"#, 4, "a message"),
        // In the content and in the summary.
        (r#"{"reasoning":"PIECE"}"#, 8, "reasoning"),
        (
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"PIECE"}}]}"#,
            3,
            "a call",
        ),
    ] {
        let chunk = |delta: &str, finish: &str| {
            format!(
                "data: {{\"id\":\"a\",\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{finish}}}]}}\n\n"
            )
        };
        let read = chunk(&delta.replace("PIECE", &"x".repeat(PIECE)), "null");
        let end = chunk("{}", "\"stop\"") + "data: [DONE]\n\n";
        for pieces in [1, 15, 520, 2_100, 8_192] {
            let said = (pieces * PIECE) as i64;
            let (mut rewriter, mut out) =
                (rewriter_for(Api::Responses, 1), OutputBuffer::default());
            let mut held = 0;
            let mut push =
                |bytes: &str, out: &mut OutputBuffer, client: &mut dyn FnMut(&mut OutputBuffer)| {
                    let info = allocation_counter::measure(|| {
                        rewriter.push(bytes.as_bytes(), out);
                    });
                    let most = held + info.bytes_max as i64;
                    assert!(
                        most <= said + BESIDES,
                        "{what}: {most} bytes at a time for {said}"
                    );
                    held += info.bytes_current
                        + allocation_counter::measure(|| client(out)).bytes_current;
                };
            for _ in 0..pieces {
                push(&read, &mut out, &mut |out| {
                    assert!(
                        (PIECE..8 * PIECE).contains(&out.take().len()),
                        "every piece goes on at once"
                    );
                });
            }
            push(&end, &mut out, &mut |_| {});
            assert!(
                out.len() as i64 > times * said,
                "{what}: the end says it {times} times over"
            );
            assert!(
                held >= said && held <= said + BESIDES,
                "{what}: {held} bytes for {said}"
            );
            let mut told = 0;
            while !out.is_empty() {
                told += out.take().iter().filter(|byte| **byte == b'x').count();
            }
            assert!(
                (times * said..times * said + 100).contains(&(told as i64)),
                "{what}: {told} of {said}"
            );
        }
    }
}

#[test]
fn the_chunks_of_a_running_stream_allocate_nothing() {
    let chunk = |delta: &str| {
        format!(
            "data: {{\"id\":\"a\",\"created\":1,\"model\":\"m\",\"choices\":[{{\"index\":0,\"delta\":{delta},\
             \"logprobs\":null,\"finish_reason\":null,\"token_ids\":null}}]}}\n\n"
        )
    };
    let call = r#"{"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"f"}}]}"#;
    for delta in [
        r#"{"content":" word \"\u00e9\" \n"}"#,
        r#"{"reasoning_content":null,"content":" word"}"#,
        r#"{"reasoning":" word"}"#,
        r#"{"content":null,"tool_calls":[{"index":0,"function":{"arguments":"{\"a"}}]}"#,
    ] {
        let mut rewriter = rewriter(1);
        let mut out = OutputBuffer::default();
        out.open().reserve(1 << 16);
        rewriter.push(chunk(call).as_bytes(), &mut out);
        // The first two chunks of a kind let the rewriter learn the shape of the following ones.
        rewriter.push(chunk(delta).repeat(2).as_bytes(), &mut out);
        let read = chunk(delta).repeat(10);
        out.clear();
        let info = allocation_counter::measure(|| {
            rewriter.push(read.as_bytes(), &mut out);
        });
        assert!(out.len() > 1_000, "{delta}");
        assert_eq!(info.count_total, 0, "{delta}");
    }
}
