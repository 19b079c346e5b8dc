//! Random sequences of markers and words: no panic, nothing lost, and independence of the cuts.

use super::{MARKERS, said, stream};
use crate::cases::Cut;
use crate::seeded::seeded;
use proptest::prelude::*;
use proptest::sample::select;
use samewire::wire::Api;

#[derive(Clone, Debug)]
enum Part {
    /// Marker, or text of a header.
    Markup(&'static str),
    /// Word that occurs in no header. It gets a number.
    Word,
}

fn parts() -> impl Strategy<Value = Vec<Part>> {
    let header = [
        "assistant",
        "analysis",
        "final",
        "commentary",
        " to=functions.f",
        "to=",
        "json",
        " python",
    ];
    let broken = [
        "<", "<|", "|>", "<|en", "<|chan", "nel|>", "\n", " ", "{}", "é",
    ];
    let header = select(header.into_iter().chain(broken).collect::<Vec<_>>());
    let part = prop_oneof![
        4 => select(MARKERS.to_vec()).prop_map(Part::Markup),
        3 => header.prop_map(Part::Markup),
        3 => Just(Part::Word),
    ];
    proptest::collection::vec(part, 0..24)
}

/// Returns the text, and those of its words that occur in no header.
fn written(parts: &[Part]) -> (String, Vec<String>) {
    let mut text = String::new();
    let mut due = Vec::new();
    for (number, part) in parts.iter().enumerate() {
        match part {
            Part::Markup(markup) => text.push_str(markup),
            Part::Word => text.push_str(&format!(" w{number}. ")),
        }
    }
    // A naive reading: a header reaches from <|start|>, <|channel|>, a role or a recipient to the next marker of
    // another kind.
    let mut header = false;
    // True where no message is open, so that `<|constrain|>` may begin a header.
    let mut outside = true;
    let mut before = "";
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let marker = MARKERS.iter().find(|marker| rest.starts_with(**marker));
        match marker {
            Some(&"<|start|>" | &"<|channel|>") => header = true,
            Some(&"<|constrain|>") => {
                header |= before.contains("to=") || before.trim() == "assistant";
                header |= outside && before.trim().is_empty();
            }
            Some(_) => header = false,
            None => {}
        }
        // Text before the first marker opens no message if it is blank.
        if let Some(marker) = marker {
            outside = matches!(
                *marker,
                "<|end|>" | "<|return|>" | "<|call|>" | "<|constrain|>"
            );
        }
        let next = rest.char_indices().skip(1).map(|(at, _)| at);
        let mut next =
            next.filter(|at| MARKERS.iter().any(|marker| rest[*at..].starts_with(marker)));
        let end = next.next().unwrap_or(rest.len());
        let text = rest[..end]
            .strip_prefix(marker.copied().unwrap_or(""))
            .unwrap();
        if !header {
            due.extend(words(text));
        }
        before = text;
        rest = &rest[end..];
    }
    (text, due)
}

fn words(text: &str) -> impl Iterator<Item = String> {
    text.split_whitespace()
        .filter(|word| word.starts_with('w') && word.ends_with('.'))
        .map(str::to_owned)
}

/// Returns everything that was sent, in order, including calls.
fn all_text(frames: &[String]) -> String {
    kinds(frames)
        .into_iter()
        .map(|(_, text)| text + " ")
        .collect()
}

proptest! {
    #![proptest_config(seeded(4_000))]

    #[test]
    fn nothing_is_lost(
        parts in parts(),
        finish in select(vec!["stop", "length"]),
        cuts in proptest::collection::vec(1usize..9, 1..5),
    ) {
        let (text, due) = written(&parts);
        // Messages from tools produce no output.
        prop_assume!(!text.contains("to=assistant"));
        let one = stream(Api::Chat, &[&text], finish);
        let frames = said(&one);
        let said_words: Vec<_> = words(&all_text(&frames)).collect();
        let mut told = said_words.iter();
        for word in &due {
            prop_assert!(told.any(|said| said == word), "{word} is lost or moved: {text:?} gave {frames:?}");
        }
        let mut known = said_words.clone();
        known.sort_unstable();
        known.dedup();
        prop_assert_eq!(known.len(), said_words.len(), "something is said twice: {:?}", text);
        // In pieces, the text of each kind is the same.
        let characters: Vec<_> = text.chars().collect();
        let mut pieces = Vec::new();
        let mut at = 0;
        for size in cuts.iter().cycle() {
            let end = (at + size).min(characters.len());
            pieces.push(characters[at..end].iter().collect::<String>());
            at = end;
            if at == characters.len() {
                break;
            }
        }
        let pieces: Vec<_> = pieces.iter().map(String::as_str).collect();
        let cut = stream(Api::Chat, &pieces, finish);
        prop_assert_eq!(kinds(&said(&cut)), kinds(&frames), "the cuts matter: {:?} in {:?}", text, pieces);
        for case in [one, cut] {
            let answer = case.run(&Cut::Whole);
            prop_assert_eq!(&case.run(&Cut::Bytes), &answer);
            let content: String = said(&case).iter().filter_map(|word| word.strip_prefix("c:")).collect();
            if !MARKERS.iter().any(|marker| content.contains(marker)) {
                prop_assert_eq!(&case.fed_back(&answer.body).run(&Cut::Whole), &answer, "{:?} again", text);
            }
        }
    }

    #[test]
    fn text_without_markers_is_content(text in "[ a-z<|>=\\n\"é]{0,40}|\\PC{0,40}", size in 1usize..20) {
        prop_assume!(!MARKERS.iter().any(|marker| text.contains(marker)));
        let characters: Vec<_> = text.chars().collect();
        let pieces: Vec<String> = characters.chunks(size).map(|piece| piece.iter().collect()).collect();
        let pieces: Vec<_> = pieces.iter().map(String::as_str).collect();
        let frames = said(&stream(Api::Chat, &pieces, "stop"));
        let (finish, frames) = frames.split_last().unwrap();
        prop_assert_eq!(finish, "stop");
        let content: Option<String> = frames.iter().map(|word| word.strip_prefix("c:")).collect();
        prop_assert_eq!(content.as_deref(), Some(text.as_str()));
    }
}

/// Returns kinds and texts, with adjacent frames of a kind joined.
fn kinds(frames: &[String]) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = Vec::new();
    for frame in frames {
        let (kind, text) = frame.split_once(':').unwrap_or((frame, ""));
        match all.last_mut() {
            Some((last, before)) if *last == kind => before.push_str(text),
            _ => all.push((kind.to_owned(), text.to_owned())),
        }
    }
    all
}
