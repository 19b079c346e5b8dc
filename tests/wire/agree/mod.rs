//! Two engines, one canonical form: the same scenario recorded from both has the same shape, and one answer written
//! in the style of each gives the same bytes (property P5).

mod engines;

use crate::canonical;
use crate::canonical::{Frame, frames};
use crate::cases::{Answer, Case, Cut, captures};
use crate::seeded::seeded;
use bytes::Bytes;
use engines::Dialect;
use proptest::prelude::*;
use samewire::engine::{EngineIdentity, Front, named};
use samewire::plan::{Route, plan};
use samewire::request::ChatRequest;
use samewire::wire::{AnswerId, AnswerReader, AnswerWriter, Api, Ending, OutputBuffer, Stamp};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Reduces an answer to its shape, without what differs from run to run (fixtures/README.md, "Names"): ids, times,
/// models, fingerprints, texts, arguments, logprobs and counts. Adjacent frames of one kind count as one, because
/// texts are cut at random. Returns one list for each choice: their interleaving depends on speed.
fn shape(case: &Case, answer: &Answer) -> BTreeMap<u64, Vec<String>> {
    let mut shape: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    if answer.status != 200 {
        return BTreeMap::from([(0, vec![format!("HTTP {}", answer.status)])]);
    }
    if !case.streams() {
        let mut whole = serde_json::from_str(&answer.body).unwrap();
        mask(&mut whole);
        return BTreeMap::from([(0, vec![whole.to_string()])]);
    }
    for frame in frames(&answer.body).unwrap() {
        let (index, shown) = match frame {
            Frame::Done => (u64::MAX, "[DONE]".to_owned()),
            Frame::Error(error) => (u64::MAX, format!("error {}", error["error"]["code"])),
            // Engines differ in whether they send usage.
            Frame::Chunk(chunk) if chunk["choices"] == json!([]) => continue,
            Frame::Chunk(mut chunk) => {
                mask(&mut chunk);
                let choice = &chunk["choices"][0];
                // A frame with nothing but logprobs.
                if choice["delta"] == json!({}) && choice["finish_reason"].is_null() {
                    continue;
                }
                (choice["index"].as_u64().unwrap(), chunk.to_string())
            }
        };
        let list = shape.entry(index).or_default();
        if list.last() != Some(&shown) {
            list.push(shown);
        }
    }
    shape
}

fn mask(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                match (key.as_str(), &mut *value) {
                    ("logprobs", value) => *value = Value::Null,
                    ("index", _) => {}
                    (_, value @ Value::Number(_)) => *value = json!(0),
                    (
                        "id" | "model" | "content" | "reasoning_content" | "reasoning" | "text"
                        | "arguments" | "system_fingerprint",
                        Value::String(text),
                    ) => {
                        // Empty values are not masked.
                        if !text.is_empty() {
                            "…".clone_into(text);
                        }
                    }
                    (_, value) => mask(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(mask),
        _ => {}
    }
}

/// Engines whose scenarios of the same name must have the same shape. The others differ by what their servers do.
const NAMED: [&str; 2] = ["vllm", "sglang"];

#[test]
fn scenarios_of_one_name_have_one_shape() {
    let mut both: BTreeMap<String, Vec<Case>> = BTreeMap::new();
    for fixture in captures()
        .into_iter()
        .filter(|fixture| NAMED.contains(&&*fixture.case.engine))
    {
        let name = fixture
            .folder
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned();
        let mut case = fixture.case;
        if case.streams() {
            case.request["stream_options"] = json!({"include_usage": true});
        }
        both.entry(name).or_default().push(case);
    }
    both.retain(|_, cases| cases.len() == 2);
    assert!(both.len() > 40, "{} names on both engines", both.len());
    let mut wrong = Vec::new();
    for (name, cases) in &both {
        let [one, other] = [&cases[0], &cases[1]]
            .map(|case| shape(case, &case.clone().unparsed().run(&Cut::Whole)));
        if one != other {
            wrong.push(format!("{name}\n  {one:#?}\n  {other:#?}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Groups the frames by choice, in order; `None` holds the frames of no choice.
fn by_choice(body: &str) -> BTreeMap<Option<u64>, Vec<String>> {
    let mut all: BTreeMap<_, Vec<String>> = BTreeMap::new();
    for event in body.split_inclusive("\n\n") {
        let chunk: Value = event
            .strip_prefix("data: ")
            .and_then(|data| serde_json::from_str(data).ok())
            .unwrap_or_default();
        all.entry(chunk["choices"][0]["index"].as_u64())
            .or_default()
            .push(event.to_owned());
    }
    all
}

fn run(case: &Case) -> Answer {
    let answer = case.run(&Cut::Whole);
    assert_eq!(
        canonical::check(case, &answer),
        Ok(canonical::End::Complete),
        "{}\n{}",
        case.name,
        answer.body
    );
    answer
}

/// Merges the client's answer from several answers of an engine that gives one choice each. `picks` selects whose
/// bytes come next, `piece` how many.
fn merged(case: &Case, answers: &[Vec<u8>], picks: &[u8], piece: usize) -> String {
    let body = Bytes::from(case.request.to_string());
    let ask = ChatRequest::recall(Api::Chat, &body).unwrap();
    let identity = EngineIdentity {
        front: Front::Rust,
        ..named("vllm").unwrap().into()
    };
    let options = Arc::new(serde_json::from_value(case.options.clone()).unwrap());
    let plan = plan(&ask, &body, &Route::new(identity, options, 4 << 20)).unwrap();
    assert_eq!(plan.others.len() + 1, answers.len());
    let stamp = Stamp {
        id: AnswerId(0),
        now: case.now,
        seed: 1,
        ..Stamp::default()
    };
    let mut writer = AnswerWriter::merging(&plan.shape, &stamp);
    let reader = |choice| AnswerReader::of_choice(choice, plan.shape.clone(), stamp.clone());
    let mut readers: Vec<_> = (0..).take(answers.len()).map(reader).collect();
    let mut left: Vec<_> = answers.iter().map(Vec::as_slice).collect();
    let mut out = OutputBuffer::default();
    for pick in picks.iter().cycle() {
        let have_all_ended = readers.iter().all(|reader| reader.progress().ended);
        assert_eq!(writer.progress(readers[0].progress()).ended, have_all_ended);
        let open: Vec<_> = (0..left.len()).filter(|at| !left[*at].is_empty()).collect();
        let Some(at) = open.get(usize::from(*pick) % open.len().max(1)) else {
            break;
        };
        let (now, later) = left[*at].split_at(piece.min(left[*at].len()));
        readers[*at].push(now, &mut writer, &mut out);
        left[*at] = later;
        if later.is_empty() {
            readers[*at].finish(Ending::Clean, &mut writer, &mut out);
        }
    }
    String::from_utf8(out.to_vec()).unwrap()
}

proptest! {
    #![proptest_config(seeded(2_000))]

    /// Several answers of one choice each, in any pieces and any order, give the same bytes for each choice as one
    /// engine that gives all.
    #[test]
    fn choices_gathered_from_several_streams_equal_one_stream(reply in engines::reply(), piece in 1..400_usize) {
        let choices = reply.choices.len();
        if choices == 1 {
            return Ok(());
        }
        let case = reply.stream(Dialect::Python);
        let (answers, picks) = reply.one_stream_per_choice(Dialect::Rust);
        let body = merged(&case, &answers, picks, piece);
        let answer = Answer { status: 200, body };
        prop_assert_eq!(canonical::check(&case, &answer), Ok(canonical::End::Complete), "{}", answer.body);
        // Counts of reasoning tokens are summed, too.
        let one = run(&case).body.replace("\"reasoning_tokens\":2,", &format!("\"reasoning_tokens\":{},", 2 * choices));
        prop_assert_eq!(by_choice(&answer.body), by_choice(&one));
        prop_assert!(answer.body.ends_with("data: [DONE]\n\n"));
    }

    /// Equal tokens in equal chunks give equal bytes.
    #[test]
    fn equal_chunks_give_equal_bytes(reply in engines::reply()) {
        let first = run(&reply.stream(Dialect::Sglang));
        for dialect in Dialect::all_for(&reply) {
            let other = run(&reply.stream(dialect));
            if reply.choices.len() == 1 {
                prop_assert_eq!(&first, &other, "{:?}", dialect);
            } else {
                // The time at which a finish is sent depends on the engine's next chunk.
                prop_assert_eq!(by_choice(&first.body), by_choice(&other.body), "{:?}", dialect);
            }
        }
    }

    /// Equal tokens in other chunks, or all at once, give an equal answer once collected.
    #[test]
    fn other_chunks_give_an_equal_collected_answer(reply in engines::reply()) {
        let first = run(&reply.collected(Dialect::Sglang));
        for reply in [&reply, &reply.coarser()] {
            for dialect in Dialect::all_for(reply) {
                prop_assert_eq!(&first, &run(&reply.collected(dialect)), "{:?}", dialect);
            }
        }
        for dialect in [Dialect::Python, Dialect::Sglang] {
            prop_assert_eq!(&first, &run(&reply.whole(dialect)), "whole {:?}", dialect);
        }
    }
}
