//! Texts that users of engines have reported, rebuilt in neutral words, with what a client must get.

use crate::texts::{said, stream};
use samewire::wire::TemplateFacts;
use serde::Deserialize;
use serde_json::Value;

/// Text that an engine left in the content of a stream.
#[derive(Deserialize)]
struct Reported {
    name: String,
    parser: String,
    /// Engine, if that matters.
    engine: Option<String>,
    /// Members of the request: model, tools and switches.
    request: Value,
    /// Facts about the chat template.
    #[serde(default)]
    facts: TemplateFacts,
    text: String,
    finish: String,
    /// Reasoning and content, without white space at their ends.
    reasoning: String,
    content: String,
    /// Names and arguments.
    calls: Vec<(String, Value)>,
}

#[test]
fn reported_texts_come_out_as_clients_need_them_however_they_are_cut() {
    let all: Vec<Reported> = serde_json::from_str(include_str!("reported.json")).unwrap();
    for reported in all {
        let letters: Vec<_> = reported.text.split_inclusive(|_: char| true).collect();
        for pieces in [letters, vec![&*reported.text]] {
            let mut case = stream(&reported.parser, &pieces, &reported.finish);
            case.template = reported.facts;
            case.engine = reported.engine.clone().unwrap_or(case.engine);
            for (key, value) in reported.request.as_object().unwrap() {
                case.request[key] = value.clone();
            }
            let said = said(&case);
            let value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
            let calls: Vec<_> = said
                .calls
                .iter()
                .map(|(name, all)| (name.clone(), value(all)))
                .collect();
            let expected = (&*reported.reasoning, &*reported.content, &reported.calls);
            assert_eq!(
                (said.reasoning.trim(), said.content.trim(), &calls),
                expected,
                "{}: {}",
                reported.name,
                reported.text
            );
        }
    }
}
