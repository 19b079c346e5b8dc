//! Model families, as data: their names, how they write reasoning and calls, and the engine flags that parse these
//! (engines F).

use super::calls::format::{
    COHERE, DEEPSEEK_V3, DEEPSEEK_V31, DSML, FUNCTIONGEMMA, Format, GEMMA4, GLM, GRANITE, HERMES,
    HY, INTERNLM, KIMI_K2, LFM2, LLAMA3, MINIMAX, MINIMAX_M3, MISTRAL, OLMO3, PHI4, PYTHONIC,
    QWEN3_CODER, SEED, STEP3, TOOL_CALL, TOOL_CALLS, XLAM,
};
use std::cell::RefCell;

/// Family of models that share one output format, and what is needed to parse it.
#[derive(Debug)]
pub(super) struct Family {
    /// Names for the configuration: those of the engines' parsers, the one used in logs first.
    pub(super) names: &'static [&'static str],
    /// Substrings of the family's model names, in lower case.
    pub(super) models: &'static [&'static str],
    /// True if the model writes Harmony (wire-format 6). The fields about reasoning, answer and calls are then
    /// ignored.
    pub(super) harmony: bool,
    /// Tags around the reasoning; `None` if the models do not reason.
    pub(super) think: Option<Tags>,
    /// Markers around the answer that follows the reasoning; empty if there are none.
    pub(super) answer: (&'static str, &'static str),
    /// Formats in which the models write calls.
    pub(super) calls: &'static [&'static Format],
    /// Which markers are special tokens.
    pub(super) special: Special,
    /// Markers that end a turn. They are visible only if special tokens are shown.
    pub(super) turns: &'static [&'static str],
    /// Names of vLLM's parsers for the family.
    pub(super) vllm: Parsers,
    /// Names of SGLang's parsers for the family.
    pub(super) sglang: Parsers,
}

/// Tags around reasoning, and how the chat template treats the first one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tags {
    /// Cases in which the template opens the block.
    pub(super) opened: BlockOpening,
    /// Tag before the reasoning.
    pub(super) start: &'static str,
    /// Tag after the reasoning.
    pub(super) end: &'static str,
}

/// Behaviour of the chat template: if it opens the reasoning block, the start tag is missing from the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockOpening {
    /// Never opened: a model that reasons writes the start tag itself.
    Never,
    /// Opened only if the request switches reasoning on.
    OnRequest,
    /// Opened unless the request switches reasoning off.
    Always,
}

/// Markers that are special tokens. Engines omit these from the text unless the request asks for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Special {
    None,
    /// Call markers only.
    Calls,
    /// Markers of calls and of reasoning.
    All,
}

/// Names of an engine's parsers for reasoning and calls, as its flags take them; empty if it has none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parsers {
    pub(super) reasoning: &'static str,
    pub(super) calls: &'static str,
}

const fn parsers(reasoning: &'static str, calls: &'static str) -> Parsers {
    Parsers { reasoning, calls }
}

const fn tags(opened: BlockOpening, start: &'static str, end: &'static str) -> Option<Tags> {
    Some(Tags { opened, start, end })
}

const fn think(opened: BlockOpening) -> Option<Tags> {
    tags(opened, "<think>", "</think>")
}

const NONE: Parsers = parsers("", "");

/// Defaults for the fields that a family does not set.
const PLAIN: Family = Family {
    names: &[],
    models: &[],
    harmony: false,
    think: None,
    answer: ("", ""),
    calls: &[],
    special: Special::None,
    turns: &[],
    vllm: NONE,
    sglang: NONE,
};

/// Family of gpt-oss. Its markers are all special tokens.
pub(super) const GPT_OSS: Family = Family {
    names: &["gpt_oss", "gpt-oss", "openai_gptoss", "openai"],
    models: &["gpt-oss", "gpt_oss"],
    harmony: true,
    special: Special::All,
    vllm: parsers("openai_gptoss", "openai"),
    sglang: parsers("gpt-oss", "gpt-oss"),
    ..PLAIN
};

/// Fields common to Cohere's Command models.
const COMMAND: Family = Family {
    think: tags(
        BlockOpening::OnRequest,
        "<|START_THINKING|>",
        "<|END_THINKING|>",
    ),
    calls: &[&COHERE],
    special: Special::All,
    turns: &["<|END_OF_TURN_TOKEN|>"],
    ..PLAIN
};

const DEEPSEEK_TURNS: &[&str] = &["<｜end▁of▁sentence｜>"];
const LLAMA_TURNS: &[&str] = &["<|eom_id|>", "<|eot_id|>", "<|eot|>"];
const IM_TURNS: &[&str] = &["<|im_end|>", "<|endoftext|>"];
const GRANITE_TURNS: &[&str] = &["<|end_of_text|>", "<|endoftext|>"];

/// Known families in order of precedence: the first one that fits a model's name is used.
pub(super) static FAMILIES: &[Family] = &[
    GPT_OSS,
    Family {
        names: &["nemotron_v3", "nemotron_3"],
        models: &["nemotron-3", "nemotron_3"],
        think: think(BlockOpening::Always),
        calls: &[&QWEN3_CODER],
        vllm: parsers("nemotron_v3", "qwen3_coder"),
        sglang: parsers("nemotron_3", "qwen3_coder"),
        ..PLAIN
    },
    // Before `step3`: `step3p5` contains that name.
    Family {
        names: &["step3p5"],
        models: &["step-3.5", "step3.5", "step3p5"],
        think: think(BlockOpening::Always),
        calls: &[&QWEN3_CODER],
        vllm: parsers("step3p5", "step3p5"),
        sglang: parsers("step3p5", "step3p5"),
        ..PLAIN
    },
    // Before `qwen3`, whose name it contains.
    Family {
        names: &["qwen3_5"],
        models: &["qwen3.5", "qwen3.6"],
        think: think(BlockOpening::Always),
        calls: &[&QWEN3_CODER],
        vllm: parsers("qwen3", "qwen3_coder"),
        sglang: parsers("qwen3", "qwen3_coder"),
        ..PLAIN
    },
    // Before `qwen3`, whose name it contains.
    Family {
        names: &["qwen3_coder", "qwen3_xml"],
        models: &["qwen3-coder"],
        calls: &[&QWEN3_CODER],
        vllm: parsers("", "qwen3_coder"),
        sglang: parsers("", "qwen3_coder"),
        ..PLAIN
    },
    // Before `qwen3`, whose name these models' names contain.
    Family {
        names: &["qwen3_thinking", "qwen3-thinking"],
        models: &["thinking-2507"],
        think: think(BlockOpening::Always),
        calls: &[&HERMES],
        vllm: parsers("qwen3", "hermes"),
        sglang: parsers("qwen3-thinking", "qwen25"),
        ..PLAIN
    },
    // Before `qwen3`, whose name these models' names contain.
    Family {
        names: &["qwen3_instruct"],
        models: &["instruct-2507"],
        calls: &[&HERMES],
        vllm: parsers("", "hermes"),
        sglang: parsers("", "qwen25"),
        ..PLAIN
    },
    Family {
        names: &["qwen3", "qwen3_json"],
        models: &["qwen3"],
        think: think(BlockOpening::Never),
        calls: &[&TOOL_CALL],
        vllm: parsers("qwen3", "hermes"),
        sglang: parsers("qwen3", "qwen25"),
        ..PLAIN
    },
    // Before `deepseek_v3`, whose name it contains.
    Family {
        names: &[
            "deepseek_v32",
            "deepseek_v4",
            "deepseekv32",
            "deepseekv4",
            "deepseek-v4",
        ],
        models: &["deepseek-v3.2", "deepseek-v4"],
        think: think(BlockOpening::OnRequest),
        calls: &[&DSML],
        special: Special::Calls,
        turns: DEEPSEEK_TURNS,
        vllm: parsers("deepseek_v3", "deepseek_v32"),
        sglang: parsers("deepseek-v3", "deepseekv32"),
        ..PLAIN
    },
    // Before `deepseek_v3`, whose name it contains.
    Family {
        names: &["deepseek_v31", "deepseekv31", "deepseek-v3"],
        models: &["deepseek-v3.1"],
        think: think(BlockOpening::OnRequest),
        calls: &[&DEEPSEEK_V31],
        special: Special::Calls,
        turns: DEEPSEEK_TURNS,
        vllm: parsers("deepseek_v3", "deepseek_v31"),
        sglang: parsers("deepseek-v3", "deepseekv31"),
        ..PLAIN
    },
    Family {
        names: &["deepseek_r1", "deepseek-r1"],
        models: &["deepseek-r1", "qwq"],
        think: think(BlockOpening::Always),
        calls: &[&DEEPSEEK_V3, &HERMES],
        special: Special::Calls,
        turns: DEEPSEEK_TURNS,
        vllm: parsers("deepseek_r1", "deepseek_v3"),
        sglang: parsers("deepseek-r1", "deepseekv3"),
        ..PLAIN
    },
    Family {
        names: &["deepseek_v3", "deepseekv3"],
        models: &["deepseek-v3"],
        calls: &[&DEEPSEEK_V3],
        special: Special::Calls,
        turns: DEEPSEEK_TURNS,
        vllm: parsers("", "deepseek_v3"),
        sglang: parsers("", "deepseekv3"),
        ..PLAIN
    },
    // Before `mistral` and `llama3_json`: names of Hermes models often contain that of their base model.
    Family {
        names: &["hermes", "qwen25", "qwen"],
        models: &["hermes", "qwen2.5", "qwen2"],
        calls: &[&HERMES],
        vllm: parsers("", "hermes"),
        sglang: parsers("", "hermes"),
        ..PLAIN
    },
    Family {
        names: &["glm47"],
        models: &["glm-4.7", "glm-5"],
        think: think(BlockOpening::Always),
        calls: &[&GLM],
        vllm: parsers("glm45", "glm47"),
        sglang: parsers("glm45", "glm47"),
        ..PLAIN
    },
    Family {
        names: &["glm45", "glm"],
        models: &["glm-4.5", "glm-4.6"],
        think: think(BlockOpening::Never),
        calls: &[&GLM],
        vllm: parsers("glm45", "glm45"),
        sglang: parsers("glm45", "glm45"),
        ..PLAIN
    },
    Family {
        names: &["kimi_k2"],
        models: &["kimi-k2"],
        think: think(BlockOpening::OnRequest),
        calls: &[&KIMI_K2],
        special: Special::Calls,
        turns: &["<|im_end|>", "[EOS]"],
        vllm: parsers("kimi_k2", "kimi_k2"),
        sglang: parsers("kimi_k2", "kimi_k2"),
        ..PLAIN
    },
    Family {
        names: &["kimi"],
        models: &["kimi-vl", "kimi-1.5"],
        think: tags(BlockOpening::Never, "◁think▷", "◁/think▷"),
        sglang: parsers("kimi", ""),
        ..PLAIN
    },
    Family {
        names: &["minimax_m3", "minimax-m3"],
        models: &["minimax-m3"],
        think: tags(BlockOpening::OnRequest, "<mm:think>", "</mm:think>"),
        calls: &[&MINIMAX_M3],
        special: Special::Calls,
        turns: &["[e~["],
        vllm: parsers("minimax_m3", "minimax_m3"),
        sglang: parsers("minimax-m3", "minimax-m3"),
        ..PLAIN
    },
    Family {
        names: &["minimax_m2", "minimax-m2", "minimax"],
        models: &["minimax-m2"],
        think: think(BlockOpening::Always),
        calls: &[&MINIMAX],
        vllm: parsers("minimax_m2", "minimax_m2"),
        sglang: parsers("minimax", "minimax-m2"),
        ..PLAIN
    },
    Family {
        names: &["mistral"],
        models: &["mistral", "magistral", "devstral", "ministral"],
        think: tags(BlockOpening::Never, "[THINK]", "[/THINK]"),
        calls: &[&MISTRAL],
        special: Special::All,
        turns: &["</s>"],
        vllm: parsers("mistral", "mistral"),
        sglang: parsers("mistral", "mistral"),
        ..PLAIN
    },
    Family {
        names: &["pythonic", "llama4_pythonic"],
        models: &["llama-4", "llama4"],
        calls: &[&PYTHONIC, &LLAMA3],
        special: Special::Calls,
        turns: LLAMA_TURNS,
        vllm: parsers("", "llama4_pythonic"),
        sglang: parsers("", "pythonic"),
        ..PLAIN
    },
    Family {
        names: &["llama3_json", "llama4_json", "llama3"],
        models: &["llama-3", "llama3"],
        calls: &[&LLAMA3],
        special: Special::Calls,
        turns: LLAMA_TURNS,
        vllm: parsers("", "llama3_json"),
        sglang: parsers("", "llama3"),
        ..PLAIN
    },
    Family {
        names: &["olmo3"],
        models: &["olmo-3", "olmo3"],
        think: think(BlockOpening::Always),
        calls: &[&OLMO3],
        vllm: parsers("olmo3", "olmo3"),
        ..PLAIN
    },
    Family {
        names: &["lfm2"],
        models: &["lfm2"],
        think: think(BlockOpening::Never),
        calls: &[&LFM2],
        special: Special::Calls,
        turns: &["<|im_end|>"],
        vllm: parsers("", "lfm2"),
        sglang: parsers("", "lfm2"),
        ..PLAIN
    },
    Family {
        names: &["gemma4"],
        models: &["gemma-4", "gemma4"],
        think: tags(BlockOpening::Never, "<|channel>thought\n", "<channel|>"),
        calls: &[&GEMMA4],
        special: Special::All,
        turns: &["<turn|>", "<eos>"],
        vllm: parsers("gemma4", "gemma4"),
        sglang: parsers("gemma4", "gemma4"),
        ..PLAIN
    },
    Family {
        names: &["functiongemma"],
        models: &["functiongemma"],
        calls: &[&FUNCTIONGEMMA],
        special: Special::Calls,
        turns: &["<end_of_turn>", "<eos>"],
        vllm: parsers("", "functiongemma"),
        ..PLAIN
    },
    Family {
        names: &["internlm", "interns1"],
        models: &["internlm", "intern-s1"],
        think: think(BlockOpening::Never),
        calls: &[&INTERNLM],
        special: Special::Calls,
        turns: IM_TURNS,
        vllm: parsers("", "internlm"),
        sglang: parsers("", "interns1"),
        ..PLAIN
    },
    Family {
        names: &["granite", "granite4", "granite-20b-fc"],
        models: &["granite"],
        think: tags(
            BlockOpening::Never,
            "Here is my thought process:",
            "Here is my response:",
        ),
        calls: &[&GRANITE],
        special: Special::Calls,
        turns: GRANITE_TURNS,
        vllm: parsers("granite", "granite"),
        ..PLAIN
    },
    // Chosen only by configuration.
    Family {
        names: &["granite_thinking_parser"],
        think: think(BlockOpening::OnRequest),
        calls: &[&GRANITE],
        special: Special::Calls,
        turns: GRANITE_TURNS,
        vllm: parsers("granite_thinking_parser", "granite"),
        sglang: parsers("granite_thinking_parser", ""),
        ..PLAIN
    },
    Family {
        names: &["apertus2509"],
        models: &["apertus"],
        think: tags(BlockOpening::Never, "<|inner_prefix|>", "<|inner_suffix|>"),
        special: Special::All,
        turns: &["<|assistant_end|>"],
        sglang: parsers("apertus2509", ""),
        ..PLAIN
    },
    Family {
        names: &["jamba"],
        models: &["jamba"],
        calls: &[&TOOL_CALLS],
        vllm: parsers("", "jamba"),
        ..PLAIN
    },
    Family {
        names: &["hunyuan_a13b", "hunyuan"],
        models: &["hunyuan"],
        think: think(BlockOpening::Never),
        answer: ("<answer>", "</answer>"),
        calls: &[&TOOL_CALLS],
        vllm: parsers("hunyuan_a13b", "hunyuan_a13b"),
        sglang: parsers("hunyuan", ""),
        ..PLAIN
    },
    Family {
        names: &["hy_v3"],
        models: &["/hy3", "hy3-preview", "hy-v3"],
        think: think(BlockOpening::OnRequest),
        calls: &[&HY],
        special: Special::Calls,
        vllm: parsers("hy_v3", "hy_v3"),
        ..PLAIN
    },
    Family {
        names: &["cohere_command3"],
        models: &["command-a", "command-r7b"],
        answer: ("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
        vllm: parsers("cohere_command3", "cohere_command3"),
        ..COMMAND
    },
    // Chosen only by configuration.
    Family {
        names: &["cohere_command4"],
        answer: ("<|START_TEXT|>", "<|END_TEXT|>"),
        vllm: parsers("cohere_command4", "cohere_command4"),
        sglang: parsers("cohere_command4", ""),
        ..COMMAND
    },
    Family {
        names: &["phi4_mini_json"],
        models: &["phi-4"],
        calls: &[&PHI4],
        vllm: parsers("", "phi4_mini_json"),
        ..PLAIN
    },
    Family {
        names: &["xlam"],
        models: &["xlam"],
        think: think(BlockOpening::Never),
        calls: &[&XLAM, &HERMES],
        vllm: parsers("", "xlam"),
        ..PLAIN
    },
    Family {
        names: &["ernie45"],
        models: &["ernie-4.5"],
        think: think(BlockOpening::Always),
        answer: ("<response>", "</response>"),
        calls: &[&HERMES],
        vllm: parsers("ernie45", "ernie45"),
        ..PLAIN
    },
    Family {
        names: &["seed_oss"],
        models: &["seed-oss"],
        think: tags(BlockOpening::Never, "<seed:think>", "</seed:think>"),
        calls: &[&SEED],
        vllm: parsers("seed_oss", "seed_oss"),
        ..PLAIN
    },
    Family {
        names: &["step3"],
        models: &["step3"],
        think: think(BlockOpening::Always),
        calls: &[&STEP3],
        special: Special::Calls,
        turns: &["<|im_end|>"],
        vllm: parsers("step3", "step3"),
        sglang: parsers("step3", "step3"),
        ..PLAIN
    },
];

/// Family of unknown models: contains the formats that cannot be confused with each other or with prose.
static UNKNOWN: Family = Family {
    names: &["auto"],
    think: think(BlockOpening::Never),
    calls: &[
        &TOOL_CALL,
        &DSML,
        &DEEPSEEK_V3,
        &DEEPSEEK_V31,
        &KIMI_K2,
        &MISTRAL,
        &MINIMAX,
        &INTERNLM,
        &SEED,
    ],
    special: Special::Calls,
    turns: &["<|im_end|>", "<｜end▁of▁sentence｜>"],
    ..PLAIN
};

impl Family {
    /// Returns the family with this configuration name; `None` if there is none.
    pub(super) fn named(name: &str) -> Option<&'static Self> {
        FAMILIES.iter().find(|family| family.names.contains(&name))
    }

    /// Returns the first family that fits a model's name, compared in lower case; if none fits, the one for unknown
    /// models.
    pub(super) fn of_model(model: &str) -> &'static Self {
        /// Number of models whose families a thread remembers.
        const REMEMBERED: usize = 16;
        thread_local! {
            static FOUND: RefCell<Vec<(String, &'static Family)>> = const { RefCell::new(Vec::new()) };
        }
        FOUND.with_borrow_mut(|found| {
            if let Some((_, family)) = found.iter().find(|(known, _)| known == model) {
                return *family;
            }
            let family = Self::search(model);
            // Clients choose the name.
            found.truncate(REMEMBERED - 1);
            found.insert(0, (model.to_owned(), family));
            family
        })
    }

    fn search(model: &str) -> &'static Self {
        let model = model.to_ascii_lowercase();
        let is_one = |family: &&Self| family.models.iter().any(|part| model.contains(part));
        FAMILIES.iter().find(is_one).unwrap_or(&UNKNOWN)
    }

    /// Returns true unless this is the family of unknown models.
    pub(super) fn is_known(&self) -> bool {
        self.names != UNKNOWN.names
    }

    /// Returns the flags with which this engine would have parsed reasoning and calls itself; `None` for other
    /// engines, or if it has no such parser.
    pub(super) fn flags(&self, engine: &str, reasoning: bool, calls: bool) -> Option<String> {
        let (parsers, auto) = match engine {
            "vllm" => (self.vllm, "--enable-auto-tool-choice "),
            "sglang" => (self.sglang, ""),
            _ => return None,
        };
        let mut flags = Vec::new();
        if reasoning && !parsers.reasoning.is_empty() {
            flags.push(format!("--reasoning-parser {}", parsers.reasoning));
        }
        if calls && !parsers.calls.is_empty() {
            flags.push(format!("{auto}--tool-call-parser {}", parsers.calls));
        }
        (!flags.is_empty()).then(|| flags.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::super::calls::format::Form;
    use super::*;
    use crate::wire::repair::Tail;

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
            ("moonshotai/Kimi-K2-Thinking", "kimi_k2"),
            ("zai-org/GLM-4.6", "glm45"),
            ("MiniMaxAI/MiniMax-M2", "minimax_m2"),
            ("mistralai/Magistral-Small-2509", "mistral"),
            ("meta-llama/Llama-3.3-70B-Instruct", "llama3_json"),
            ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "pythonic"),
            ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B", "nemotron_v3"),
            ("openai/gpt-oss-120b", "gpt_oss"),
            ("somebody/else", "auto"),
        ] {
            assert_eq!(Family::of_model(model).names[0], name, "{model}");
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
            let forms = family.calls.iter().flat_map(|format| format.forms);
            let ends = forms.flat_map(|form| match form {
                Form::Json(form) => vec![form.end],
                Form::Named(form) => vec![form.end, form.close],
                Form::Tagged(form) => [&[form.end], form.closes].concat(),
                Form::Literal(form) => vec![form.end],
            });
            for mark in ends
                .chain(family.turns.iter().copied())
                .filter(|mark| !mark.is_empty())
            {
                assert_eq!(Tail::of(mark), Tail::Marks, "{mark}");
            }
        }
    }

    #[test]
    fn flags_are_those_of_the_engine() {
        let family = Family::named("qwen3").unwrap();
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
