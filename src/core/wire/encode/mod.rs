//! Encoders: write canonical bytes for one client API. They rely on the event grammar, which the normaliser
//! guarantees.
//!
//! Takes: grammatical events. Gives: SSE frames, or one object at the end. Remembers: the rendered envelope.
//! Never: reorders, drops or invents events.

mod chat;
mod completions;
mod frame;
mod messages;
mod responses;
mod server_call;
mod server_calls;
mod stream;
mod tool_names;
mod whole;

pub use messages::{
    MessageEncoder, MessageReply, SignThinking, StopRules, THREAD_UNSUPPORTED, ThinkingDisplay,
    ThinkingProof, messages_status, write_messages_error,
};
pub use responses::write_error;
pub use responses::{
    Echo, EventFraming, Finished, LimitUse, NameMeaning, OutputCall, OutputCalls, OutputItem,
    Persisted, RecoveredItems, Reply, Response, Seal, Sealing, StreamForm, in_dialect,
};

pub use server_call::{CallOutcome, ServerCall, ServerTool};
pub use server_calls::ServerCalls;

use super::event::{Delta, Event, FrameExtras};
use super::fault::Failure;
use super::{Api, OutputBuffer, Shape, Stamp};
use stream::FrameStream;
use tool_names::ToolNames;
use whole::WholeObject;

/// Encoder for one client API in one form (event stream or whole object). The rewriter holds it as a trait object,
/// so that the stages before it do not depend on the client's API.
pub trait Encode: Send {
    /// Appends the bytes that this event means to the client.
    fn event(&mut self, event: Event<'_>, out: &mut OutputBuffer);

    /// Takes the failure of an answer that this API cannot express, such as arguments after the end of their call
    /// (messages 4.4). The answer then fails as if the engine had reported it.
    fn take_rejection(&mut self) -> Option<Failure> {
        None
    }

    /// Returns true if the encoder holds a frame back until the next event.
    fn is_waiting(&self) -> bool {
        false
    }

    /// Returns true if the bytes for a delta depend only on that delta, on the last head and, in an API with blocks,
    /// on the open block. The fast path needs this to fill frame templates.
    fn is_plain(&self) -> bool {
        false
    }

    /// Appends the bytes for a delta of text as a template: the encoder does not remember the text.
    fn template(&mut self, choice: u32, delta: Delta<'_>, out: &mut OutputBuffer) {
        self.event(
            Event::Delta {
                choice,
                delta,
                extras: FrameExtras::default(),
            },
            out,
        );
    }

    /// Takes note of a text, in canonical spelling, that the fast path has written into a template.
    fn filled(&mut self, _spelled: &[u8]) {}

    /// Returns the encoder of a Responses answer; `None` for other APIs, whose answers are not stored.
    fn response(&self) -> Option<&Response> {
        None
    }

    /// Returns the encoder of a Responses answer, to change it; `None` for other APIs.
    fn response_mut(&mut self) -> Option<&mut Response> {
        None
    }

    /// Returns the adapter for tools that samewire runs; `None` if there are none.
    fn server_calls(&mut self) -> Option<&mut ServerCalls> {
        None
    }
}

/// Returns the encoder for the client API and form that `shape` names. Those of Messages and Responses are for answers
/// without a request: the server makes them with the request's parameters. Calls are renamed where the client knows them in
/// another form than the engine.
pub fn encoder(shape: &Shape, stamp: &Stamp) -> Box<dyn Encode> {
    match (shape.client, shape.stream) {
        (Api::Chat, true) => {
            let choices = chat::ChatChoices::new(shape, stamp);
            ToolNames::wrap(
                Box::new(FrameStream::new("chat.completion.chunk", shape, choices)),
                shape,
            )
        }
        (Api::Chat, false) => ToolNames::wrap(
            Box::new(WholeObject::<chat::ChatMessage>::new(
                "chat.completion",
                shape,
            )),
            shape,
        ),
        (Api::Completions, true) => {
            let choices = completions::CompletionsChoices::default();
            Box::new(FrameStream::new(completions::OBJECT, shape, choices))
        }
        (Api::Completions, false) => Box::new(WholeObject::<completions::WholeText>::new(
            completions::OBJECT,
            shape,
        )),
        (Api::Messages, _) => Box::new(MessageEncoder::of(shape, stamp)),
        (Api::Responses, stream) => {
            let reply = Reply {
                reasoning: shape.options.responses_reasoning,
                dialect: shape.options.responses_dialect,
                logprobs: shape.logprobs,
                stream,
                ..Reply::default()
            };
            Box::new(Response::new(reply, stamp))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::{Extras, Raw, Text};
    use crate::wire::event::{
        ChunkUsage, Delta, Finish, FrameExtras, Head, Logprobs, Reason, TokenLogprob, ToolKind,
        Usage,
    };
    use crate::wire::options::{ContinuousUsage, Obfuscation, Options, UnknownFields};
    use std::sync::Arc;

    fn shape(api: Api, stream: bool, options: Options) -> Shape {
        Shape::new(api, stream, Arc::new(options))
    }

    /// Shape of a stream that has usage on its frames.
    fn counting(api: Api) -> Shape {
        let options = Options {
            continuous_usage: ContinuousUsage::Always,
            ..Options::default()
        };
        Shape {
            include_usage: true,
            ..shape(api, true, options)
        }
    }

    fn head() -> Event<'static> {
        let tier = Some(Text::plain("flex"));
        Event::Head(Head {
            id: Some(Text::plain("x")),
            created: Some(1),
            tier,
            ..Head::default()
        })
    }

    fn delta<'a>(choice: u32, delta: Delta<'a>, extras: FrameExtras<'a>) -> Event<'a> {
        Event::Delta {
            choice,
            delta,
            extras,
        }
    }

    fn content(choice: u32, text: &str, extras: FrameExtras<'static>) -> Event<'static> {
        delta(
            choice,
            Delta::Content(Text::plain(Box::leak(text.into()))),
            extras,
        )
    }

    fn stop(choice: u32, extras: FrameExtras<'static>) -> Event<'static> {
        delta(
            choice,
            Delta::Finish(Finish {
                reason: Reason::Stop,
                stop: None,
            }),
            extras,
        )
    }

    fn extras(key: &'static str, json: &'static str) -> Extras<'static> {
        let mut extras = Extras::default();
        extras.keep(key.into(), Raw::of(json).unwrap());
        extras
    }

    /// Returns the extras of a chunk that counts three tokens. `last`: it also has the finish.
    fn counted(last: bool) -> FrameExtras<'static> {
        let usage = Usage {
            completion: 3,
            total: 3,
            ..Usage::default()
        };
        FrameExtras {
            usage: Some(Box::new(ChunkUsage { usage, last })),
            ..FrameExtras::default()
        }
    }

    fn tokens(words: &[&'static str]) -> FrameExtras<'static> {
        let entry = |word: &&'static str| TokenLogprob {
            token: Text::plain(word),
            logprob: Raw::of("-1"),
            ..TokenLogprob::default()
        };
        let content = Some(words.iter().map(entry).collect());
        FrameExtras {
            logprobs: Some(Logprobs::Tokens {
                content,
                refusal: None,
            }),
            ..FrameExtras::default()
        }
    }

    /// Returns what an encoder writes for an answer of these events, each with its own line: the part of its
    /// frame from `choices` on, or the whole object.
    fn written(shape: &Shape, events: Vec<Event<'_>>) -> Vec<String> {
        let mut encoder = encoder(
            shape,
            &Stamp {
                seed: 7,
                ..Stamp::default()
            },
        );
        std::iter::once(head())
            .chain(events)
            .map(|event| frames(&mut *encoder, event))
            .collect::<Vec<_>>()[1..]
            .to_vec()
    }

    fn frames(encoder: &mut dyn Encode, event: Event<'_>) -> String {
        let mut out = OutputBuffer::default();
        encoder.event(event, &mut out);
        let text = String::from_utf8(out.to_vec()).unwrap();
        let short = |frame: &str| match frame.split_once(r#""choices":"#) {
            Some((_, after)) => after.to_owned(),
            None => frame.to_owned(),
        };
        text.split("\n\n")
            .map(short)
            .collect::<Vec<_>>()
            .join("\n")
            .trim_end()
            .to_owned()
    }

    const COUNT: &str = r#""usage":{"prompt_tokens":0,"completion_tokens":3,"total_tokens":3,"#;

    #[test]
    fn padding_hides_the_length_of_each_text() {
        let options = Options {
            obfuscation: Obfuscation::OnRequest,
            ..Options::default()
        };
        let padded = Shape {
            include_obfuscation: true,
            ..shape(Api::Chat, true, options)
        };
        let texts: Vec<_> = (1..=40).map(|length| "a".repeat(length)).collect();
        let mut events = vec![delta(0, Delta::Role, FrameExtras::default())];
        events.extend(
            texts
                .iter()
                .map(|text| content(0, text, FrameExtras::default())),
        );
        events.push(stop(0, FrameExtras::default()));
        let lines = written(&padded, events);
        let padding = |line: &str| {
            let (_, after) = line.split_once(r#""obfuscation":""#)?;
            Some(after.split_once('"')?.0.to_owned())
        };
        assert_eq!(
            (padding(&lines[0]), padding(&lines[41])),
            (None, None),
            "neither role nor finish"
        );
        let paddings: Vec<_> = lines[1..41]
            .iter()
            .map(|line| padding(line).unwrap())
            .collect();
        for (text, padding) in texts.iter().zip(&paddings) {
            let delta = format!(r#""content":"{text}""#);
            assert_eq!((delta.len() + padding.len()) % 32, 0, "{delta} {padding}");
            assert!((1..=32).contains(&padding.len()), "{padding}");
            assert!(
                padding.bytes().all(|byte| byte.is_ascii_alphanumeric()),
                "{padding}"
            );
        }
        let mut letters: Vec<_> = paddings.concat().into_bytes();
        letters.sort_unstable();
        letters.dedup();
        assert!(
            letters.len() > 40,
            "random letters: {}",
            String::from_utf8_lossy(&letters)
        );
    }

    #[test]
    fn a_count_that_is_that_of_the_finish_is_sent_once() {
        for (api, role) in [(Api::Chat, true), (Api::Completions, false)] {
            let mut encoder = encoder(&counting(api), &Stamp::default());
            let mut write = |event| (frames(&mut *encoder, event), encoder.is_waiting());
            write(head());
            if role {
                let (frame, waits) = write(delta(0, Delta::Role, counted(true)));
                assert!(frame.contains("assistant") && !waits, "{frame}");
            }
            let (frame, waits) = write(content(0, "a", counted(false)));
            assert!(frame.contains(COUNT) && !waits, "{frame}");
            assert_eq!(write(content(0, "b", counted(true))), (String::new(), true));
            // The next frame of another kind releases it.
            let (frames, waits) = write(stop(1, FrameExtras::default()));
            assert_eq!(
                (frames.matches(COUNT).count(), frames.lines().count(), waits),
                (1, 2, false),
                "{frames}"
            );
            assert_eq!(write(content(0, "c", counted(true))), (String::new(), true));
            let extra = FrameExtras {
                choice: extras("x", "1"),
                ..FrameExtras::default()
            };
            let (frames, _) = write(stop(0, extra));
            assert_eq!(
                frames.lines().count(),
                2,
                "a finish with fields of its own has its own frame: {frames}"
            );
            assert_eq!(write(content(0, "d", counted(true))), (String::new(), true));
            let (frame, waits) = write(stop(0, counted(true)));
            assert!(
                frame.contains(COUNT) && frame.contains(r#""finish_reason":"stop""#),
                "{frame}"
            );
            assert_eq!((frame.lines().count(), waits), (1, false), "{frame}");
            assert_eq!(write(content(0, "e", counted(true))), (String::new(), true));
            let (frames, _) = write(Event::End);
            assert_eq!(
                (frames.lines().count(), frames.contains("[DONE]")),
                (2, true),
                "{frames}"
            );
        }
    }

    #[test]
    fn usage_stays_on_frames_only_where_clients_want_usage() {
        let silent = Shape {
            include_usage: false,
            ..counting(Api::Chat)
        };
        let lines = written(&silent, vec![content(0, "a", counted(false))]);
        assert!(!lines[0].contains("usage"), "{lines:?}");
    }

    /// Checks which encoders write the same bytes for the same delta, which the fast path relies on.
    #[test]
    fn frames_that_depend_on_their_delta_alone() {
        let options = Options {
            obfuscation: Obfuscation::OnRequest,
            ..Options::default()
        };
        let padded = Shape {
            include_obfuscation: true,
            ..shape(Api::Chat, true, options)
        };
        let plain = |api| shape(api, true, Options::default());
        let custom = |shape| Shape {
            custom_tools: vec!["c".to_owned()],
            ..shape
        };
        for (shape, is_plain, has_items) in [
            (plain(Api::Chat), true, false),
            (padded, false, false),
            (counting(Api::Chat), false, false),
            (plain(Api::Completions), true, false),
            (counting(Api::Completions), false, false),
            (custom(plain(Api::Chat)), true, false),
            (custom(counting(Api::Chat)), false, false),
            (plain(Api::Responses), false, true),
        ] {
            let encoder = encoder(&shape, &Stamp::default());
            assert_eq!(
                (encoder.is_plain(), encoder.response().is_some()),
                (is_plain, has_items),
                "{shape:?}"
            );
        }
        let mut renaming = encoder(&custom(counting(Api::Chat)), &Stamp::default());
        frames(&mut *renaming, head());
        assert!(!renaming.is_waiting());
        frames(&mut *renaming, content(0, "a", counted(true)));
        assert!(renaming.is_waiting());
    }

    /// Checks that only the call of the custom tool is unwrapped, not another call or that of another choice.
    #[test]
    fn custom_tools_and_functions_side_by_side() {
        let two = Shape {
            custom_tools: vec!["c".to_owned()],
            choices: 2,
            ..shape(Api::Chat, true, Options::default())
        };
        let start = |choice, slot, name| {
            let start = Delta::ToolStart {
                slot,
                id: "i",
                name,
                namespace: None,
                kind: ToolKind::Function,
            };
            delta(choice, start, FrameExtras::default())
        };
        let args = |choice, slot, text| {
            delta(
                choice,
                Delta::ToolArgs {
                    slot,
                    args: Text::plain(text),
                },
                FrameExtras::default(),
            )
        };
        let lines = written(
            &two,
            vec![
                start(0, 0, "c"),
                args(0, 0, r#"{"input":"in"}"#),
                start(1, 0, "f"),
                args(1, 0, "{}"),
                start(0, 1, "f"),
                args(0, 1, "[]"),
            ],
        );
        assert_eq!(lines[1], "", "the input is known at its end");
        assert!(
            lines[3].contains(r#""function":{"arguments":"{}"}"#),
            "{}",
            lines[3]
        );
        assert!(
            lines[4].contains(r#""custom":{"input":"in"}"#),
            "{}",
            lines[4]
        );
        assert!(
            lines[5].contains(r#""function":{"arguments":"[]"}"#),
            "{}",
            lines[5]
        );
    }

    #[test]
    fn lists_of_ids_are_joined() {
        let ids = |json| FrameExtras {
            choice_extensions: extras("token_ids", json),
            ..FrameExtras::default()
        };
        let prompt = |json| FrameExtras {
            choice_extensions: extras("prompt_logprobs", json),
            ..FrameExtras::default()
        };
        for api in [Api::Chat, Api::Completions] {
            for (lists, expected) in [
                (["[1]", "[2, 3]"], r#""token_ids":[1,2,3]"#),
                (["[]", "[1]"], r#""token_ids":[1]"#),
                (["[1]", "[]"], r#""token_ids":[1]"#),
            ] {
                let events = lists.map(|list| content(0, "a", ids(list))).into_iter();
                let lines = written(
                    &shape(api, false, Options::default()),
                    events.chain([Event::End]).collect(),
                );
                assert!(lines[2].contains(expected), "{lines:?}");
            }
            let events = ["[1]", "[2]"]
                .map(|list| content(0, "a", prompt(list)))
                .into_iter();
            let lines = written(
                &shape(api, false, Options::default()),
                events.chain([Event::End]).collect(),
            );
            assert!(
                lines[2].contains(r#""prompt_logprobs":[1]"#),
                "the first stays: {lines:?}"
            );
        }
    }

    #[test]
    fn completions() {
        let stream = shape(Api::Completions, true, Options::default());
        let options = Options {
            unknown_fields: UnknownFields::Pass,
            ..Options::default()
        };
        let whole = shape(Api::Completions, false, options);
        let offsets = written(
            &Shape {
                choices: 2,
                ..stream.clone()
            },
            vec![
                content(1, "ab", tokens(&["ab"])),
                content(0, "c", tokens(&["c"])),
                content(1, "d", tokens(&["d"])),
                content(0, "e", FrameExtras::default()),
                content(1, "f", tokens(&["f"])),
            ],
        );
        for (line, offset) in [(0, 0), (1, 0), (2, 2), (4, 3)] {
            assert!(
                offsets[line].contains(&format!(r#""text_offset":[{offset}]"#)),
                "{}",
                offsets[line]
            );
        }
        // Token ids without text have a frame.
        let bare = FrameExtras {
            choice_extensions: extras("token_ids", "[1]"),
            ..FrameExtras::default()
        };
        assert_eq!(
            written(&stream, vec![delta(0, Delta::Bare, bare)]),
            [r#"[{"text":"","index":0,"logprobs":null,"finish_reason":null,"token_ids":[1]}]}"#]
        );
        let chunk = FrameExtras {
            chunk_extensions: extras("prompt_token_ids", "[7]"),
            chunk: extras("x", "1"),
            ..FrameExtras::default()
        };
        let lines = written(
            &whole,
            vec![
                content(0, "a", chunk),
                stop(0, FrameExtras::default()),
                Event::End,
            ],
        );
        assert!(
            lines[2].ends_with(r#"],"prompt_token_ids":[7],"x_upstream":{"x":1}}"#),
            "{lines:?}"
        );
        // The legacy object has no service tier.
        for shape in [stream, whole] {
            let mut encoder = encoder(&shape, &Stamp::default());
            let mut out = OutputBuffer::default();
            for event in [
                head(),
                content(0, "a", FrameExtras::default()),
                stop(0, FrameExtras::default()),
                Event::End,
            ] {
                encoder.event(event, &mut out);
            }
            let text = String::from_utf8(out.to_vec()).unwrap();
            assert!(text.contains(r#""created":1,"choices":"#), "{text}");
        }
    }
}
