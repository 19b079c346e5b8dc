//! Families by the names of parsers, as the option `parser` takes them, and by the names of models.

use super::families::{FAMILIES, UNKNOWN};
use super::family::Family;
use std::cell::RefCell;

/// Returns true if `name` is the name of a parser, so that the option `parser` can be checked.
pub(in crate::wire) fn is_parser_name(name: &str) -> bool {
    named(name).is_some()
}

/// Returns the names of all parsers, aliases included, in the order of [`FAMILIES`].
pub(in crate::wire) fn names() -> impl Iterator<Item = &'static str> {
    FAMILIES.iter().flat_map(|family| family.names).copied()
}

/// Sample of parser names for error messages; config/samewire.toml lists all of them.
pub(in crate::wire) const EXAMPLES: &str = "qwen3, hermes, qwen3_coder, deepseek_r1, deepseek_v31, kimi_k2, glm45, mistral, llama3_json, pythonic, gemma4, \u{2026}";

/// Returns the family with this configuration name; `None` if there is none.
pub(super) fn named(name: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|family| family.names.contains(&name))
}

/// Returns true unless this is the family of unknown models.
pub(super) fn is_known(family: &Family) -> bool {
    *family != UNKNOWN
}

/// Returns the first family that fits a model's name, compared in lower case; if none fits, the one for unknown
/// models.
pub(super) fn of_model(model: &str) -> &'static Family {
    /// Number of models whose families a thread remembers.
    const REMEMBERED: usize = 16;
    thread_local! {
        static FOUND: RefCell<Vec<(String, &'static Family)>> = const { RefCell::new(Vec::new()) };
    }
    FOUND.with_borrow_mut(|found| {
        if let Some((_, family)) = found.iter().find(|(known, _)| known == model) {
            return *family;
        }
        let lower = model.to_ascii_lowercase();
        let is_one = |family: &&Family| family.models.iter().any(|pattern| fits(&lower, pattern));
        let family = FAMILIES.iter().find(is_one).unwrap_or(&UNKNOWN);
        // Clients choose the name.
        found.truncate(REMEMBERED - 1);
        found.insert(0, (model.to_owned(), family));
        family
    })
}

/// Returns true if a model's name has the parts of a pattern in order. The first of them begins a word, and no digit
/// follows a digit at the end of one.
fn fits(model: &str, pattern: &str) -> bool {
    let is_word = |sign: Option<char>| sign.is_some_and(char::is_alphanumeric);
    let mut from = 0;
    pattern.split('*').enumerate().all(|(index, part)| {
        let places = model.match_indices(part).filter(|(at, _)| *at >= from);
        let ends_in_digit = part.ends_with(|sign: char| sign.is_ascii_digit());
        let place = places.map(|(at, _)| at).find(|at| {
            let before = model
                .get(..*at)
                .and_then(|before| before.chars().next_back());
            let after = model
                .get(at + part.len()..)
                .and_then(|after| after.chars().next());
            let begins = index > 0 || !is_word(part.chars().next()) || !is_word(before);
            begins && !(ends_in_digit && after.is_some_and(|sign| sign.is_ascii_digit()))
        });
        from = place.map_or(from, |at| at + part.len());
        place.is_some()
    })
}

#[cfg(test)]
mod tests {
    use super::super::calls::format::Form;
    use super::*;
    use crate::wire::repair::Tail;

    /// Returns the row of a family for engines F.3.
    fn row(family: &Family) -> String {
        use crate::wire::parse::family::BlockOpening;
        let code = |text: &str| format!("`{}`", text.trim().replace('|', "\\|"));
        let codes = |all: Vec<&str>| all.into_iter().map(code).collect::<Vec<_>>().join(", ");
        let mut reasoning = match (family.think.start, family.messages.is_some()) {
            _ if family.harmony => vec!["Harmony".to_owned()],
            (_, true) => vec!["messages".to_owned()],
            ("<think>", _) => Vec::new(),
            (start, _) => vec![code(start)],
        };
        match family.think.opened {
            BlockOpening::Never => {}
            BlockOpening::OnRequest => reasoning.push("if wanted".to_owned()),
            BlockOpening::Always => reasoning.push("opened".to_owned()),
        }
        let calls = family
            .calls
            .iter()
            .flat_map(|format| format.beginnings().next());
        let cells = [
            codes(family.names.to_vec()),
            family.models.join(", ").replace('*', "\\*"),
            reasoning.join(", "),
            codes(calls.collect()),
        ];
        format!("| {} |\n", cells.join(" | "))
    }

    /// Checks that engines F.3 has these rows; the message of a failure is the table.
    #[test]
    fn the_document_has_a_row_for_each_family() {
        let document = include_str!("../../../../docs/engines.md");
        let head = "| `parser` | models | reasoning | calls begin with |\n|---|---|---|---|\n";
        let table = format!(
            "\n\n{head}{}\n",
            FAMILIES.iter().map(row).collect::<String>()
        );
        let (_, section) = document.split_once("### F.3").unwrap();
        let (section, _) = section.split_once("## G. ").unwrap();
        assert!(section.ends_with(&table), "{table}");
    }

    #[test]
    fn models_are_of_families() {
        for (model, name) in [
            ("Qwen/Qwen3-8B", "qwen3"),
            ("Qwen/Qwen3-Coder-480B-A35B-Instruct", "qwen3_coder"),
            ("Qwen/Qwen3-30B-A3B-Thinking-2507", "qwen3_thinking"),
            ("Qwen/Qwen3.5-397B-A17B", "qwen3_5"),
            ("Qwen/Qwen2.5-7B-Instruct", "hermes"),
            ("deepseek-ai/DeepSeek-R1-0528", "deepseek_r1"),
            ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "deepseek_r1"),
            ("deepseek-ai/DeepSeek-V3-0324", "deepseek_v3"),
            ("deepseek-ai/DeepSeek-V3.1", "deepseek_v31"),
            ("deepseek-ai/DeepSeek-V3.2-Exp", "deepseek_v32"),
            ("moonshotai/Kimi-K2-Thinking", "kimi_k2_thinking"),
            ("moonshotai/Kimi-K2-Instruct", "kimi_k2"),
            ("Qwen/Qwen3-VL-235B-A22B-Thinking", "qwen3_thinking"),
            ("deepseek-ai/DeepSeek-V4.1-Flash", "deepseek_v41"),
            ("zai-org/GLM-4.6", "glm45"),
            ("MiniMaxAI/MiniMax-M2", "minimax_m2"),
            ("mistralai/Magistral-Small-2509", "mistral"),
            ("meta-llama/Llama-3.3-70B-Instruct", "llama3_json"),
            ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "pythonic"),
            ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B", "nemotron_v3"),
            ("openai/gpt-oss-120b", "gpt_oss"),
            ("teknium/OpenHermes-2.5-Mistral-7B", "hermes"),
            ("NousResearch/DeepHermes-3-Llama-3-8B-Preview", "hermes"),
            ("a/checkpoint-step-5", "auto"),
            ("stepfun-ai/Step-5-Flash", "step5"),
            ("a/checkpoint-step-500", "auto"),
            ("a/sapling-3b", "auto"),
            ("a/mimosa-7b", "auto"),
            ("somebody/else", "auto"),
        ] {
            assert_eq!(of_model(model).names[0], name, "{model}");
        }
    }

    #[test]
    fn names_are_of_one_family_each() {
        let names: Vec<_> = FAMILIES.iter().flat_map(|family| family.names).collect();
        for (at, name) in names.iter().enumerate() {
            assert!(!names[..at].contains(name), "{name}");
        }
    }

    /// `repair_arguments` removes the end of a call, a section or a turn that an engine leaves after arguments.
    #[test]
    fn ends_of_each_family_are_marks_after_arguments() {
        for family in FAMILIES.iter().chain([&UNKNOWN]) {
            let ends = family
                .calls
                .iter()
                .flat_map(|format| format.forms)
                .flat_map(Form::ends);
            for mark in ends.chain(family.turns.iter().copied()) {
                assert_eq!(Tail::of(mark), Tail::Marks, "{mark}");
            }
        }
    }

    #[test]
    fn flags_are_those_of_the_engine() {
        let family = named("qwen3").unwrap();
        for (engine, reasoning, calls, flags) in [
            ("vllm", true, false, Some("--reasoning-parser qwen3")),
            (
                "vllm",
                true,
                true,
                Some(
                    "--reasoning-parser qwen3 --enable-auto-tool-choice --tool-call-parser hermes",
                ),
            ),
            ("sglang", false, true, Some("--tool-call-parser qwen25")),
            ("generic", true, true, None),
            ("vllm", false, false, None),
        ] {
            assert_eq!(family.flags(engine, reasoning, calls).as_deref(), flags);
        }
    }
}
