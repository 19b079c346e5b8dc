//! Model families, as data: a row for each (engines F).

use super::calls::format::{
    APERTUS, ATEM, COHERE, DEEPSEEK_V3, DEEPSEEK_V31, DOTS, DSML, DSML_SPACED, FUNCTIONGEMMA,
    GEMMA4, GIGACHAT3, GIGACHAT35, GRANITE, HY, INKLING_CALLS, INTERNLM, IQUEST, K2_HORIZON,
    KIMI_K2, KIMI_K3, LFM2, LLAMA3, LONGCAT, MIMO, MINICPM5, MINIMAX, MINIMAX_M3, MISTRAL, OLMO3,
    PHI4, PLAMO3, PYTHONIC, QWEN_CALLS, RFL, SEED, STEP3, TOOL_CALL, TOOL_CALLS, TOOL_CODE, XLAM,
};
use super::family::BlockOpening::{Always, Never, OnRequest};
use super::family::{Family, NONE, PLAIN, Special, both, each, tags, think};
use super::message_form::{BEAM, INKLING, MUSE};

/// Family of gpt-oss. Its markers are all special tokens.
pub(super) const GPT_OSS: Family = Family {
    names: &["gpt_oss", "gpt-oss", "openai_gptoss", "openai"],
    models: &["gpt-oss", "gpt_oss"],
    harmony: true,
    special: Special::All,
    engines: each(("openai_gptoss", "openai"), ("gpt-oss", "gpt-oss")),
    ..PLAIN
};

/// Fields common to Cohere's Command models.
const COMMAND: Family = Family {
    think: tags(OnRequest, "<|START_THINKING|>", "<|END_THINKING|>"),
    calls: &[&COHERE],
    special: Special::All,
    turns: &["<|END_OF_TURN_TOKEN|>"],
    ..PLAIN
};

/// Fields common to Qwen's models, and to others that write calls and turns in the same way.
const QWEN: Family = Family {
    calls: &[&QWEN_CALLS, &TOOL_CODE],
    turns: IM_TURNS,
    ..PLAIN
};

/// Fields common to DeepSeek's models.
const DEEPSEEK: Family = Family {
    special: Special::Calls,
    turns: DEEPSEEK_TURNS,
    ..PLAIN
};

/// Fields common to DeepSeek V4's models.
const V4: Family = Family {
    think: think(OnRequest),
    calls: &[&DSML],
    engines: each(
        ("deepseek_v4", "deepseek_v4"),
        ("deepseek-v4", "deepseekv4"),
    ),
    ..DEEPSEEK
};

/// Fields common to Poolside's models.
const LAGUNA: Family = Family {
    calls: &[&TOOL_CALL],
    engines: both("poolside_v1", "poolside_v1"),
    ..PLAIN
};

/// Fields common to MiMo's models.
const MIMO_MODELS: Family = Family {
    calls: &[&MIMO],
    turns: IM_TURNS,
    engines: both("mimo", "mimo"),
    ..PLAIN
};

/// Fields common to GigaChat 3.5's models.
const GIGACHAT35_MODELS: Family = Family {
    calls: &[&GIGACHAT35],
    turns: GIGACHAT_TURNS,
    ..PLAIN
};

/// Fields common to K2 Horizon's models.
const K2: Family = Family {
    calls: &[&K2_HORIZON],
    engines: both("k2_horizon", "k2_horizon"),
    ..PLAIN
};

/// Fields common to Kimi K2's models.
const KIMI: Family = Family {
    think: think(OnRequest),
    calls: &[&KIMI_K2],
    special: Special::Calls,
    turns: &["<|im_end|>", "[EOS]", "[EOT]"],
    engines: both("kimi_k2", "kimi_k2"),
    ..PLAIN
};

const DEEPSEEK_TURNS: &[&str] = &["<｜end▁of▁sentence｜>"];
/// vLLM puts spaces between special tokens unless a request says otherwise.
const K3_TURNS: &[&str] = &[
    "<|close|>message<|sep|>",
    "<|close|> message <|sep|>",
    "<|close|> response <|sep|>",
];
const LLAMA_TURNS: &[&str] = &["<|eom_id|>", "<|eot_id|>", "<|eot|>"];
const IM_TURNS: &[&str] = &["<|im_end|>", "<|endoftext|>"];
const GLM_TURNS: &[&str] = &["<|user|>", "<|observation|>", "<|endoftext|>"];
const GIGACHAT_TURNS: &[&str] = &["<|message_sep|>", "</s>"];
const GRANITE_TURNS: &[&str] = &["<|end_of_text|>", "<|endoftext|>"];

/// Known families in order of precedence: the first one that fits a model's name is used. A family whose models' names
/// contain those of another comes before it.
pub(super) static FAMILIES: &[Family] = &[
    GPT_OSS,
    Family {
        names: &["nemotron_v3", "nemotron_3"],
        models: &["nemotron-3", "nemotron_3"],
        think: think(Always),
        engines: each(
            ("nemotron_v3", "qwen3_coder"),
            ("nemotron_3", "qwen3_coder"),
        ),
        ..QWEN
    },
    Family {
        names: &["step3p5"],
        models: &[
            "step-3.5", "step3.5", "step3p5", "step-3.7", "step3.7", "step3p7",
        ],
        think: think(Always),
        engines: both("step3p5", "step3p5"),
        ..QWEN
    },
    Family {
        names: &["qwen3_5_small"],
        models: &["qwen3.5-0.8b"],
        think: think(OnRequest),
        engines: both("qwen3", "qwen3_coder"),
        ..QWEN
    },
    Family {
        names: &["qwen3_5"],
        models: &["qwen3.5", "qwen3.6", "qwen3.8"],
        think: think(Always),
        engines: both("qwen3", "qwen3_coder"),
        ..QWEN
    },
    Family {
        names: &["qwen3_coder", "qwen3_xml"],
        models: &["qwen3-coder"],
        engines: both("", "qwen3_coder"),
        ..QWEN
    },
    Family {
        names: &["qwen3_thinking", "qwen3-thinking"],
        models: &["thinking-2507", "qwen3-vl*thinking", "qwen3-next*thinking"],
        think: think(Always),
        engines: each(("qwen3", "hermes"), ("qwen3-thinking", "qwen25")),
        ..QWEN
    },
    Family {
        names: &["qwen3_instruct"],
        models: &["instruct-2507"],
        engines: each(("", "hermes"), ("", "qwen25")),
        ..QWEN
    },
    Family {
        names: &["qwen3", "qwen3_json"],
        models: &["qwen3"],
        calls: &[&TOOL_CALL],
        serves_several: true,
        engines: each(("qwen3", "hermes"), ("qwen3", "qwen25")),
        ..QWEN
    },
    Family {
        names: &["deepseek_v41", "deepseek-v41", "deepseekv41"],
        models: &["deepseek-v4.1"],
        think: think(Always),
        calls: &[&DSML_SPACED],
        engines: each(
            ("deepseek_v41", "deepseek_v41"),
            ("deepseek-v41", "deepseekv41"),
        ),
        ..DEEPSEEK
    },
    // vLLM opens the block unless the request switches thinking off.
    Family {
        names: &["deepseek_v4_thinking"],
        models: &["deepseek-v4"],
        think: think(Always),
        ..V4
    },
    // Chosen only by configuration.
    Family {
        names: &["deepseek_v4", "deepseekv4", "deepseek-v4"],
        ..V4
    },
    Family {
        names: &["deepseek_v32", "deepseekv32"],
        models: &["deepseek-v3.2"],
        think: think(OnRequest),
        calls: &[&DSML],
        engines: each(
            ("deepseek_v3", "deepseek_v32"),
            ("deepseek-v3", "deepseekv32"),
        ),
        ..DEEPSEEK
    },
    Family {
        names: &["deepseek_v31", "deepseekv31", "deepseek-v3"],
        models: &["deepseek-v3.1"],
        think: think(OnRequest),
        calls: &[&DEEPSEEK_V3, &DEEPSEEK_V31],
        engines: each(
            ("deepseek_v3", "deepseek_v31"),
            ("deepseek-v3", "deepseekv31"),
        ),
        ..DEEPSEEK
    },
    Family {
        names: &["deepseek_r1", "deepseek-r1"],
        models: &["deepseek-r1", "qwq"],
        think: think(Always),
        calls: &[&DEEPSEEK_V3, &QWEN_CALLS],
        engines: each(
            ("deepseek_r1", "deepseek_v3"),
            ("deepseek-r1", "deepseekv3"),
        ),
        ..DEEPSEEK
    },
    Family {
        names: &["deepseek_v3", "deepseekv3"],
        models: &["deepseek-v3"],
        calls: &[&DEEPSEEK_V3, &DEEPSEEK_V31],
        engines: each(("", "deepseek_v3"), ("", "deepseekv3")),
        ..DEEPSEEK
    },
    // Before `mistral` and `llama3_json`: names of Hermes models often contain that of their base model.
    Family {
        names: &["hermes", "qwen25", "qwen"],
        models: &["*hermes", "qwen2.5", "qwen2"],
        engines: both("", "hermes"),
        ..QWEN
    },
    Family {
        names: &["glm47"],
        models: &["glm-4.7", "glm-5"],
        think: think(Always),
        calls: &[&TOOL_CALL],
        turns: GLM_TURNS,
        engines: both("glm45", "glm47"),
        ..PLAIN
    },
    Family {
        names: &["glm45", "glm"],
        models: &["glm-4.5", "glm-4.6"],
        calls: &[&TOOL_CALL],
        turns: GLM_TURNS,
        engines: both("glm45", "glm45"),
        ..PLAIN
    },
    Family {
        names: &["kimi_k3"],
        models: &["kimi-k3"],
        think: tags(Always, "<|open|>think<|sep|>", "<|close|>think<|sep|>"),
        answer: ("<|open|>response<|sep|>", "<|close|>response<|sep|>"),
        calls: &[&KIMI_K3],
        special: Special::All,
        turns: K3_TURNS,
        engines: both("kimi_k3", "kimi_k3"),
        ..PLAIN
    },
    Family {
        names: &["k2_horizon"],
        models: &["k2-horizon"],
        think: tags(Never, "<ifm|think>", "</ifm|think>"),
        ..K2
    },
    // Chosen only by configuration or by a prompt: its template opens one of three blocks, by the effort.
    Family {
        names: &["k2_horizon_medium"],
        think: tags(Never, "<ifm|think_fast>", "</ifm|think_fast>"),
        ..K2
    },
    Family {
        names: &["k2_horizon_low"],
        think: tags(Never, "<ifm|think_faster>", "</ifm|think_faster>"),
        ..K2
    },
    Family {
        names: &["minicpm5"],
        models: &["minicpm5", "minicpm-5"],
        think: think(Always),
        calls: &[&MINICPM5],
        turns: &["<|im_end|>"],
        engines: both("", "minicpm5"),
        ..PLAIN
    },
    Family {
        names: &["kimi_k2_thinking"],
        models: &["kimi-k2-thinking", "kimi-k2.5", "kimi-k2.6"],
        think: think(Always),
        ..KIMI
    },
    Family {
        names: &["kimi_k2"],
        models: &["kimi-k2"],
        serves_several: true,
        ..KIMI
    },
    Family {
        names: &["kimi"],
        models: &["kimi-vl", "kimi-1.5"],
        think: tags(Never, "◁think▷", "◁/think▷"),
        engines: each(NONE, ("kimi", "")),
        ..PLAIN
    },
    Family {
        names: &["minimax_m3", "minimax-m3"],
        models: &["minimax-m3"],
        think: tags(OnRequest, "<mm:think>", "</mm:think>"),
        calls: &[&MINIMAX_M3],
        special: Special::Calls,
        turns: &["[e~["],
        engines: each(("minimax_m3", "minimax_m3"), ("minimax-m3", "minimax-m3")),
        ..PLAIN
    },
    Family {
        names: &[
            "minimax_m2",
            "minimax-m2",
            "minimax",
            "minimax_m2_append_think",
            "minimax-append-think",
        ],
        models: &["minimax-m2"],
        think: think(Always),
        calls: &[&MINIMAX],
        turns: &["[e~["],
        engines: each(("minimax_m2", "minimax_m2"), ("minimax", "minimax-m2")),
        ..PLAIN
    },
    Family {
        names: &["mistral"],
        models: &["mistral", "magistral", "devstral", "ministral"],
        think: tags(Never, "[THINK]", "[/THINK]"),
        calls: &[&MISTRAL],
        special: Special::All,
        turns: &["</s>"],
        engines: both("mistral", "mistral"),
        ..PLAIN
    },
    Family {
        names: &["pythonic", "llama4_pythonic"],
        models: &["llama-4", "llama4"],
        calls: &[&PYTHONIC, &LLAMA3],
        special: Special::Calls,
        turns: LLAMA_TURNS,
        engines: each(("", "llama4_pythonic"), ("", "pythonic")),
        ..PLAIN
    },
    Family {
        names: &["llama3_json", "llama4_json", "llama3"],
        models: &["llama-3", "llama3"],
        calls: &[&LLAMA3, &QWEN_CALLS],
        special: Special::Calls,
        turns: LLAMA_TURNS,
        engines: each(("", "llama3_json"), ("", "llama3")),
        ..PLAIN
    },
    Family {
        names: &["olmo3"],
        models: &["olmo-3", "olmo3"],
        think: think(Always),
        calls: &[&OLMO3],
        engines: each(("olmo3", "olmo3"), NONE),
        ..PLAIN
    },
    Family {
        names: &["lfm2"],
        models: &["lfm2"],
        calls: &[&LFM2],
        special: Special::Calls,
        turns: &["<|im_end|>"],
        engines: both("", "lfm2"),
        ..PLAIN
    },
    Family {
        names: &["gemma4"],
        models: &["gemma-4", "gemma4"],
        think: tags(Never, "<|channel>thought\n", "<channel|>").or(&["<|channel>\n", "thought\n"]),
        calls: &[&GEMMA4],
        special: Special::All,
        turns: &["<turn|>", "<eos>", "<channel|>"],
        engines: both("gemma4", "gemma4"),
        ..PLAIN
    },
    Family {
        names: &["functiongemma"],
        models: &["functiongemma"],
        calls: &[&FUNCTIONGEMMA],
        special: Special::Calls,
        turns: &["<end_of_turn>", "<eos>"],
        engines: each(("", "functiongemma"), NONE),
        ..PLAIN
    },
    Family {
        names: &["internlm", "interns1"],
        models: &["internlm", "intern-s1"],
        calls: &[&INTERNLM],
        special: Special::Calls,
        turns: IM_TURNS,
        engines: each(("", "internlm"), ("interns1", "interns1")),
        ..PLAIN
    },
    Family {
        names: &["granite_thinking_parser"],
        models: &["granite-4.2"],
        think: think(Always),
        calls: &[&QWEN_CALLS],
        special: Special::Calls,
        turns: GRANITE_TURNS,
        engines: both("granite_thinking_parser", "qwen3_coder"),
        ..PLAIN
    },
    Family {
        names: &["granite", "granite4", "granite-20b-fc"],
        models: &["granite"],
        think: tags(Never, "Here is my thought process:", "Here is my response:"),
        calls: &[&GRANITE],
        special: Special::Calls,
        turns: GRANITE_TURNS,
        engines: each(("granite", "granite"), NONE),
        ..PLAIN
    },
    Family {
        names: &["apertus2509", "apertus"],
        models: &["apertus"],
        think: tags(Never, "<|inner_prefix|>", "<|inner_suffix|>"),
        calls: &[&APERTUS],
        special: Special::All,
        turns: &["<|assistant_end|>"],
        engines: each(("", "apertus"), ("apertus2509", "apertus2509")),
        ..PLAIN
    },
    Family {
        names: &["jamba"],
        models: &["jamba"],
        calls: &[&TOOL_CALLS, &MISTRAL],
        special: Special::Calls,
        engines: each(("", "jamba"), NONE),
        ..PLAIN
    },
    Family {
        names: &["hunyuan_a13b", "hunyuan"],
        models: &["hunyuan"],
        answer: ("<answer>", "</answer>"),
        calls: &[&TOOL_CALLS, &HY],
        engines: each(("hunyuan_a13b", "hunyuan_a13b"), NONE),
        ..PLAIN
    },
    Family {
        names: &["hy_v3"],
        models: &["/hy3", "hy3-preview", "hy-v3"],
        think: think(OnRequest),
        calls: &[&HY],
        special: Special::Calls,
        suffixed: true,
        engines: each(("hy_v3", "hy_v3"), ("hunyuan", "hunyuan")),
        ..PLAIN
    },
    Family {
        names: &["cohere_command3"],
        models: &["command-a", "command-r7b"],
        answer: ("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
        engines: each(("cohere_command3", "cohere_command3"), NONE),
        ..COMMAND
    },
    // Chosen only by configuration.
    Family {
        names: &["cohere_command4"],
        answer: ("<|START_TEXT|>", "<|END_TEXT|>"),
        engines: both("cohere_command4", "cohere_command4"),
        ..COMMAND
    },
    Family {
        names: &["phi4_mini_json"],
        models: &["phi-4"],
        calls: &[&PHI4],
        engines: each(("", "phi4_mini_json"), NONE),
        ..PLAIN
    },
    Family {
        names: &["xlam"],
        models: &["xlam"],
        calls: &[&XLAM, &QWEN_CALLS],
        engines: each(("", "xlam"), NONE),
        ..PLAIN
    },
    Family {
        names: &["ernie45"],
        models: &["ernie-4.5"],
        think: think(Always),
        answer: ("<response>", "</response>"),
        calls: &[&QWEN_CALLS],
        engines: each(("ernie45", "ernie45"), NONE),
        ..PLAIN
    },
    Family {
        names: &["seed_oss"],
        models: &["seed-oss"],
        think: tags(Never, "<seed:think>", "</seed:think>"),
        calls: &[&SEED],
        turns: &["<seed:eos>"],
        engines: each(("seed_oss", "seed_oss"), NONE),
        ..PLAIN
    },
    Family {
        names: &["step3"],
        models: &["step3"],
        think: think(Always),
        calls: &[&STEP3],
        special: Special::Calls,
        turns: &["<|im_end|>"],
        engines: both("step3", "step3"),
        ..PLAIN
    },
    Family {
        names: &["ling3"],
        models: &["ling-3", "ling3"],
        think: think(Always),
        calls: &[&TOOL_CALL],
        turns: &["<|role_end|>"],
        engines: both("ling3", "ling3"),
        ..PLAIN
    },
    Family {
        names: &["poolside_v1_thinking"],
        models: &["laguna-s"],
        think: think(Always),
        ..LAGUNA
    },
    Family {
        names: &["poolside_v1"],
        models: &["laguna"],
        think: think(OnRequest),
        serves_several: true,
        ..LAGUNA
    },
    Family {
        names: &["hy_v4"],
        models: &["/hy4", "hy4-", "hy-v4"],
        think: think(Always),
        calls: &[&HY],
        special: Special::Calls,
        suffixed: true,
        engines: each(("hy_v4", "hy_v4"), ("hunyuan", "hunyuan")),
        ..PLAIN
    },
    Family {
        names: &["mimo_thinking"],
        models: &["mimo-v2.5"],
        think: think(Always),
        ..MIMO_MODELS
    },
    Family {
        names: &["mimo"],
        models: &["mimo-"],
        think: think(OnRequest),
        serves_several: true,
        ..MIMO_MODELS
    },
    Family {
        names: &["step5"],
        models: &["stepfun*step-5", "stepfun*step5"],
        think: think(Always),
        engines: each(("step5", "step5"), NONE),
        ..QWEN
    },
    Family {
        names: &["nanbeige"],
        models: &["nanbeige"],
        think: think(OnRequest),
        engines: each(NONE, ("nanbeige", "nanbeige")),
        ..QWEN
    },
    Family {
        names: &["trinity"],
        models: &["trinity"],
        engines: each(NONE, ("", "trinity")),
        ..QWEN
    },
    Family {
        names: &["spark25"],
        models: &["spark2_5", "spark2.5", "spark-x2.5"],
        calls: &[&TOOL_CALL],
        engines: each(NONE, ("qwen3", "spark25")),
        ..PLAIN
    },
    Family {
        names: &["iquest_q1"],
        models: &["iquest-q1"],
        think: think(Always),
        calls: &[&IQUEST],
        turns: &["<|im_end|>", "<|iquest_end|>"],
        engines: each(NONE, ("iquest_q1", "iquest_q1")),
        ..PLAIN
    },
    Family {
        names: &["gigachat35"],
        models: &["gigachat3.5*reasoning", "gigachat35*reasoning"],
        think: think(Always),
        engines: each(NONE, ("gigachat35", "gigachat35")),
        ..GIGACHAT35_MODELS
    },
    Family {
        names: &["gigachat35_instruct"],
        models: &["gigachat3.5", "gigachat35"],
        engines: each(NONE, ("", "gigachat35")),
        ..GIGACHAT35_MODELS
    },
    Family {
        names: &["gigachat3"],
        models: &["gigachat3"],
        calls: &[&GIGACHAT3],
        special: Special::Calls,
        turns: GIGACHAT_TURNS,
        engines: both("", "gigachat3"),
        ..PLAIN
    },
    Family {
        names: &["dots"],
        models: &["dots.llm2", "dots3", "dots-3"],
        calls: &[&DOTS],
        engines: each(("", "dots"), ("dots", "dots")),
        ..PLAIN
    },
    Family {
        names: &["longcat"],
        models: &["longcat"],
        think: tags(OnRequest, "<longcat_think>", "</longcat_think>"),
        calls: &[&LONGCAT],
        special: Special::Calls,
        turns: &["<longcat_s>"],
        engines: each(("", "longcat"), NONE),
        ..PLAIN
    },
    Family {
        names: &["plamo3"],
        models: &["plamo-3", "plamo3"],
        think: tags(
            Always,
            "<|plamo:begin_think:plamo|>",
            "<|plamo:end_think:plamo|>",
        ),
        calls: &[&PLAMO3],
        special: Special::All,
        turns: &["<|plamo:tag|>"],
        engines: each(("plamo3", "plamo3"), NONE),
        ..PLAIN
    },
    Family {
        names: &["holo2"],
        models: &["holo2"],
        think: think(Always),
        engines: each(("holo2", ""), NONE),
        ..QWEN
    },
    Family {
        names: &["muse", "muse_glimmer", "musespark1x"],
        models: &["muse-glimmer", "muse-spark"],
        messages: Some(&MUSE),
        calls: &[&ATEM],
        special: Special::All,
        engines: both("muse", "muse"),
        ..PLAIN
    },
    Family {
        names: &["inkling"],
        models: &["inkling"],
        messages: Some(&INKLING),
        calls: &[&INKLING_CALLS],
        special: Special::All,
        engines: both("inkling", "inkling"),
        ..PLAIN
    },
    // Chosen only by configuration or by a prompt.
    Family {
        names: &["beam"],
        messages: Some(&BEAM),
        calls: &[&RFL],
        special: Special::All,
        engines: both("beam", "beam"),
        ..PLAIN
    },
    Family {
        names: &["minicpmv"],
        models: &["minicpm-v", "minicpmv"],
        think: think(OnRequest),
        engines: each(("minicpmv", "qwen3_coder"), NONE),
        ..QWEN
    },
];

/// Family of unknown models: contains the formats that cannot be confused with each other or with prose.
pub(super) static UNKNOWN: Family = Family {
    names: &["auto"],
    think: think(Never),
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
    turns: &[
        "<|im_end|>",
        "<|endoftext|>",
        "<｜end▁of▁sentence｜>",
        "<end_of_turn>",
        "<|eot_id|>",
    ],
    ..PLAIN
};
