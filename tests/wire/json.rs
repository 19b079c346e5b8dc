//! The JSON reader compared with a strict reference: both accept the same texts and find the same pieces in them.

use crate::laws::json::agree;
use crate::seeded::seeded;
use proptest::prelude::*;
use std::path::Path;

/// Collects the JSON of every fixture: whole files, and the data of `data` lines.
fn recorded(place: &Path, all: &mut Vec<String>) {
    for entry in std::fs::read_dir(place).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            recorded(&path, all);
        } else if let Ok(text) = std::fs::read_to_string(&path) {
            match path.extension().and_then(|extension| extension.to_str()) {
                Some("json") => all.push(text),
                Some("sse") => {
                    all.extend(
                        text.lines()
                            .filter_map(|line| line.strip_prefix("data: "))
                            .map(Into::into),
                    );
                }
                _ => {}
            }
        }
    }
}

#[test]
fn reads_what_the_reference_reads_of_fixtures_whole_and_broken() {
    let mut all = Vec::new();
    recorded(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures"),
        &mut all,
    );
    all.sort();
    all.dedup();
    let (mut whole, mut broken) = (0, 0);
    for (seed, text) in all.iter().enumerate() {
        whole += usize::from(agree(text));
        // Varied positions and texts, more than a hundred thousand in all.
        let step = 1 + text.len() / 16;
        for at in (seed % step..text.len()).step_by(step) {
            broken += usize::from(text.get(..at).is_some_and(|cut| !agree(cut)));
            for bit in 0..8 {
                let mut bytes = text.clone().into_bytes();
                bytes[at] ^= 1 << bit;
                broken +=
                    usize::from(String::from_utf8(bytes).is_ok_and(|flipped| !agree(&flipped)));
            }
        }
    }
    assert!(
        whole > 1000 && broken > 10_000,
        "{whole} whole, {broken} broken"
    );
}

#[test]
fn reads_what_the_reference_reads_at_every_place_of_a_string() {
    for before in 0..20 {
        for first in 0..=0xff {
            let (first, rest) = (char::from(first), "b".repeat(20 - before));
            agree(&format!("\"{}{first}{rest}\"", "a".repeat(before)));
        }
        for special in ["\\\"", "\\\\", "\"", "\\", "\u{1f}"] {
            for next in 0..0x80 {
                agree(&format!(
                    "\"{}{special}{}bcdefgh\"",
                    "a".repeat(before),
                    char::from(next)
                ));
            }
        }
    }
}

#[test]
fn numbers_and_words() {
    for text in [
        "0",
        "-0",
        "00",
        "01",
        "-",
        "-01",
        "1.",
        ".1",
        "1.5",
        "-1.50",
        "1e5",
        "1E+5",
        "1e-05",
        "1e",
        "1e+",
        "+1",
        "1.e1",
        "0x1",
        "1 ",
        " 1",
        "1,",
        "4294967295",
        "4294967296",
        "18446744073709551615",
        "18446744073709551616",
        "null",
        "nul",
        "nulll",
        "true",
        "false",
        "True",
        "NaN",
        "Infinity",
        "",
        " ",
        "\u{feff}1",
        "[1,]",
        "[,]",
        "{\"a\":1,}",
        "{,}",
        "{\"a\"}",
        "{a:1}",
        "[1 2]",
        "[]]",
        "{}{}",
        "[1}",
        "\u{a0}1",
        "\u{b}1",
        "[1]\0",
    ] {
        agree(text);
    }
}

#[test]
fn escapes_in_strings_and_keys() {
    for escape in [
        r"\n",
        r"\/",
        r"\x",
        r"\u00e9",
        r"\u00E9",
        r"\u00g9",
        r"\u00e",
        r"\u",
        r"\ud83d\ude00",
        r"\ud83d",
        r"\ude00",
        r"\ud83d\n",
        r"\ud83d\u0061",
        r"\ud83dx",
        r"\ufffd",
        r"\u0000",
    ] {
        agree(&format!("\"a{escape}\""));
        agree(&format!("{{\"a{escape}\":{{\"b{escape}\":1}}}}"));
    }
}

const TOKENS: &[&str] = &[
    "{", "}", "[", "]", ",", ":", "{\"", "\":", "\"", "\"a\"", "\"\\", "\\u", "\\ud83d", "\\ude00",
    "\\n", "\\/", "\\x", "00", "0", "12", "-", ".", "e", "E", "+", "null", "true", "false", "nul",
    " ", "\n", "\t", "\r", "é", "😀", "\u{1}", "\u{7f}", "/",
];

fn value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        "-?(0|[1-9][0-9]{0,4})(\\.[0-9]{1,3})?([eE][+-]?[0-9]{1,2})?",
        prop::sample::select(vec!["null", "true", "false"]).prop_map(str::to_owned),
        any::<String>().prop_map(|text| serde_json::to_string(&text).unwrap()),
        "\"(\\\\u[0-9a-fA-F]{4}|\\\\[\"\\\\/bfnrt]|[ !#-\\[\\]-~é]){0,12}\"",
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        let member = ("\"(\\\\u[0-9a-f]{4}|[a-c]){0,3}\"", inner.clone());
        let join = |all: Vec<String>| all.join(" ,\n");
        prop_oneof![
            prop::collection::vec(inner, 0..5).prop_map(move |all| format!("[{}\t]", join(all))),
            prop::collection::vec(
                member.prop_map(|(key, value)| format!("{key}:{value}")),
                0..5
            )
            .prop_map(move |all| format!(" {{ {}}}", join(all))),
        ]
    })
}

proptest! {
    #![proptest_config(seeded(4_096))]

    #[test]
    fn reads_what_the_reference_reads_of_tokens(tokens in prop::collection::vec(prop::sample::select(TOKENS), 0..10)) {
        agree(&tokens.concat());
    }

    #[test]
    fn reads_what_the_reference_reads_of_values(value in value(), at in any::<prop::sample::Index>(), byte in 0..0x80_u8) {
        prop_assert!(agree(&value));
        let mut bytes = value.into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(changed) = String::from_utf8(bytes) {
            agree(&changed);
        }
    }
}
