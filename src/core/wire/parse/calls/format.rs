//! Formats in which models write calls, as data for the grammars (engines F.2).

use super::literal::LiteralForm;
use super::named::NamedForm;
use super::notation::Quotes;
use super::tagged_form::{Keys, TaggedForm};

/// Format for calls: the markers they begin with, and the grammars that may follow.
#[derive(Debug)]
pub(in crate::wire::parse) struct Format {
    /// Markers that begin a call or a section of calls, and end reasoning.
    pub(in crate::wire::parse) starts: &'static [&'static str],
    /// Markers that may begin a call as well, but also occur in reasoning and therefore do not end it.
    pub(in crate::wire::parse) fences: &'static [&'static str],
    /// Characters that may begin a call without a marker, at the very beginning of an answer only.
    pub(in crate::wire::parse) bare: &'static str,
    /// Forms to try in order; the first that recognises a call is used.
    pub(in crate::wire::parse) forms: &'static [Form],
}

/// Grammar with the parameters of one format.
#[derive(Debug)]
pub(in crate::wire::parse) enum Form {
    Json(JsonForm),
    Named(NamedForm),
    Tagged(TaggedForm),
    Literal(LiteralForm),
}

/// Parameters of a JSON format.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::wire::parse) struct JsonForm {
    /// Key of the function name; empty if the name is itself the key of the arguments.
    pub(in crate::wire::parse) name: &'static str,
    /// Marker after the last object; empty if there is none.
    pub(in crate::wire::parse) end: &'static str,
    /// True if the objects may be written as a list.
    pub(in crate::wire::parse) list: bool,
    /// Characters allowed between objects that are not in a list.
    pub(in crate::wire::parse) separators: &'static str,
}

impl Form {
    /// Returns the marks that each call in this form has; none of them is empty.
    fn marks(&self) -> Vec<&'static str> {
        let mut all = match self {
            Self::Json(form) => vec![form.end],
            Self::Named(form) => vec![form.call, form.separator],
            Self::Tagged(form) => vec![form.name.0, form.key.0, form.end],
            Self::Literal(form) => vec![form.end],
        };
        all.retain(|mark| !mark.trim().is_empty());
        all
    }

    /// Returns the markers that end a value, a call or a section; none of them is empty.
    pub(in crate::wire::parse) fn ends(&self) -> Vec<&'static str> {
        let mut all = match self {
            Self::Json(form) => vec![form.end],
            Self::Named(form) => vec![form.end, form.close],
            Self::Tagged(form) if form.keys == Keys::Elements => {
                [&[form.end], form.closes].concat()
            }
            Self::Tagged(form) => [&[form.value.1, form.end], form.closes].concat(),
            Self::Literal(form) => vec![form.end],
        };
        all.retain(|mark| !mark.is_empty());
        all
    }
}

impl Format {
    /// Returns the marks with which a call may begin; for calls without a marker, their first characters.
    pub(in crate::wire::parse) fn beginnings(&self) -> impl Iterator<Item = &'static str> {
        let bare = self.bare;
        let characters = bare
            .char_indices()
            .filter_map(move |(at, sign)| bare.get(at..at + sign.len_utf8()));
        let marks = self.starts.iter().chain(self.fences).copied();
        marks.chain(characters)
    }

    /// Returns how much of this format a prompt shows: the bytes of the marks of a form of which each is shown, with
    /// those of a mark that begins it; 0 if no form is.
    pub(in crate::wire::parse) fn shown(&self, is_shown: impl Fn(&str) -> bool) -> usize {
        let starts = self.starts.iter().filter(|start| is_shown(start));
        let Some(start) = starts.map(|start| start.len()).max() else {
            return 0;
        };
        let of_form = |form: &Form| {
            let marks = form.marks();
            let is_whole = marks.iter().all(|mark| is_shown(mark));
            is_whole.then(|| marks.iter().map(|mark| mark.len()).sum::<usize>())
        };
        let most = self.forms.iter().filter_map(of_form).max();
        most.map_or(0, |most| start + most)
    }
}

const fn marked(starts: &'static [&'static str], forms: &'static [Form]) -> Format {
    Format {
        starts,
        fences: &[],
        bare: "",
        forms,
    }
}

/// Returns the form for objects with a name and arguments, closed by the marker `end`.
const fn objects(end: &'static str) -> JsonForm {
    JsonForm {
        name: "name",
        end,
        list: true,
        separators: "",
    }
}

const TAGGED_JSON: JsonForm = objects("</tool_call>");

const QWEN3_CODER_FORM: TaggedForm = TaggedForm {
    opens: &["<tool_call>"],
    name: ("<function=", ">"),
    attributes: "",
    end: "</function>",
    key: ("<parameter=", ">"),
    kind: ("", ""),
    value: ("", "</parameter>"),
    closes: &["</tool_call>"],
    keys: Keys::Plain,
    lines: true,
    xml: false,
};

const GLM_FORM: TaggedForm = TaggedForm {
    opens: &[],
    name: ("<tool_call>", "\n"),
    end: "</tool_call>",
    key: ("<arg_key>", "</arg_key>"),
    value: ("<arg_value>", "</arg_value>"),
    closes: &[],
    lines: false,
    ..QWEN3_CODER_FORM
};

const TOOL_CALL_STARTS: &[&str] = &["<tool_call>", "<function="];

/// Format of Qwen's models, in `<tool_call>`: an object with `name` and `arguments`, or
/// `<function=NAME><parameter=KEY>value</parameter></function>`, which may lack the outer tag. The first character
/// tells which.
pub(in crate::wire::parse) static QWEN_CALLS: Format = marked(
    TOOL_CALL_STARTS,
    &[Form::Json(TAGGED_JSON), Form::Tagged(QWEN3_CODER_FORM)],
);

/// Format of Apertus: a list of objects, each with the name of a function as its only key.
pub(in crate::wire::parse) static APERTUS: Format = marked(
    &["<|tools_prefix|>"],
    &[Form::Json(JsonForm {
        name: "",
        ..objects("<|tools_suffix|>")
    })],
);

/// Objects in a tag of Google's, which Qwen's models write at times.
pub(in crate::wire::parse) static TOOL_CODE: Format =
    marked(&["<tool_code>"], &[Form::Json(objects("</tool_code>"))]);

/// [`QWEN_CALLS`], and GLM's `NAME<arg_key>k</arg_key><arg_value>v</arg_value>` in the same tag.
pub(in crate::wire::parse) static TOOL_CALL: Format = marked(
    TOOL_CALL_STARTS,
    &[
        Form::Json(TAGGED_JSON),
        Form::Tagged(QWEN3_CODER_FORM),
        Form::Tagged(GLM_FORM),
    ],
);

/// Format like [`QWEN_CALLS`] whose values have no line break of their own at their ends.
pub(in crate::wire::parse) static MIMO: Format = marked(
    TOOL_CALL_STARTS,
    &[
        Form::Json(TAGGED_JSON),
        Form::Tagged(TaggedForm {
            lines: false,
            ..QWEN3_CODER_FORM
        }),
    ],
);

const HY_FORM: TaggedForm = TaggedForm {
    opens: &["<tool_calls>"],
    name: ("<tool_call>", "<tool_sep>"),
    closes: &["</tool_calls>"],
    ..GLM_FORM
};

/// Format of Hy 3, with a marker after the name, and of Hy 4, without.
pub(in crate::wire::parse) static HY: Format = marked(
    &["<tool_calls>", "<tool_call>"],
    &[
        Form::Tagged(HY_FORM),
        Form::Tagged(TaggedForm {
            name: ("<tool_call>", "\n"),
            ..HY_FORM
        }),
    ],
);

pub(in crate::wire::parse) static IQUEST: Format = marked(
    &["<iquest_tool_call>"],
    &[Form::Tagged(TaggedForm {
        name: ("<iquest_tool_call>", "\n"),
        end: "</iquest_tool_call>",
        ..GLM_FORM
    })],
);

const MINIMAX_FORM: TaggedForm = TaggedForm {
    opens: &["<minimax:tool_call>"],
    name: ("<invoke name=\"", "\">"),
    end: "</invoke>",
    key: ("<parameter name=\"", "\">"),
    value: ("", "</parameter>"),
    closes: &["</minimax:tool_call>"],
    ..QWEN3_CODER_FORM
};

/// Format of MiniMax M2, whose models also write single quotes.
pub(in crate::wire::parse) static MINIMAX: Format = marked(
    &["<minimax:tool_call>"],
    &[
        Form::Tagged(MINIMAX_FORM),
        Form::Tagged(TaggedForm {
            name: ("<invoke name='", "'>"),
            key: ("<parameter name='", "'>"),
            ..MINIMAX_FORM
        }),
    ],
);

/// Format of Muse: like [`MINIMAX`], with a word in each tag, and with values as they are.
pub(in crate::wire::parse) static ATEM: Format = marked(
    &["<atem:function_calls>"],
    &[Form::Tagged(TaggedForm {
        opens: &["<atem:function_calls>"],
        name: ("<atem:invoke name=\"", "\">"),
        end: "</atem:invoke>",
        key: ("<atem:parameter name=\"", "\">"),
        value: ("", "</atem:parameter>"),
        closes: &["</atem:function_calls>"],
        lines: false,
        ..MINIMAX_FORM
    })],
);

/// Format of Beam: parameters alone, in a message for the tool. The reader of messages adds the call around them.
pub(in crate::wire::parse) static RFL: Format = marked(
    &["<rfl:call name=\""],
    &[Form::Tagged(TaggedForm {
        opens: &[],
        name: ("<rfl:call name=\"", "\">"),
        end: "</rfl:call>",
        key: ("<rfl:parameter name=\"", "\">"),
        value: ("", "</rfl:parameter>"),
        closes: &[],
        ..MINIMAX_FORM
    })],
);

/// Format of Inkling: an object after a token.
pub(in crate::wire::parse) static INKLING_CALLS: Format = Format {
    bare: "{",
    ..marked(
        &["<|content_invoke_tool_json|>"],
        &[Form::Json(objects(""))],
    )
};

/// Format of dots: like [`MINIMAX`], or an object.
pub(in crate::wire::parse) static DOTS: Format = marked(
    &["<dots_function_call>"],
    &[
        Form::Tagged(TaggedForm {
            opens: &["<dots_function_call>"],
            closes: &["</dots_function_call>"],
            ..MINIMAX_FORM
        }),
        Form::Json(objects("</dots_function_call>")),
    ],
);

const MINIMAX_M3_FORM: TaggedForm = TaggedForm {
    opens: &["]<]minimax[>[<tool_call>"],
    name: ("]<]minimax[>[<invoke name=\"", "\">"),
    end: "]<]minimax[>[</invoke>",
    key: ("]<]minimax[>[<", ">"),
    value: ("", "]<]minimax[>[</"),
    closes: &["]<]minimax[>[</tool_call>"],
    keys: Keys::Elements,
    lines: false,
    ..QWEN3_CODER_FORM
};

/// Format like [`MINIMAX`], with a token before each tag and with tags named after the parameters. Models leave out a
/// bracket of the first tag at times.
pub(in crate::wire::parse) static MINIMAX_M3: Format = marked(
    &["]<]minimax[>[<tool_call>"],
    &[
        Form::Tagged(MINIMAX_M3_FORM),
        Form::Tagged(TaggedForm {
            name: ("]<]minimax[>[invoke name=\"", "\">"),
            ..MINIMAX_M3_FORM
        }),
    ],
);

/// Returns the form whose tags have this word, in sections with these names.
macro_rules! typed {
    ($word:literal: $($section:literal),*) => {
        TaggedForm {
            opens: &[$(concat!("<", $word, $section, ">")),*],
            name: (concat!("<", $word, "invoke name=\""), "\">"),
            end: concat!("</", $word, "invoke>"),
            key: (concat!("<", $word, "parameter name=\""), "\">"),
            value: ("", concat!("</", $word, "parameter>")),
            closes: &[$(concat!("</", $word, $section, ">")),*],
            keys: Keys::Typed {
                attribute: "\" string=\"",
                string: "true",
            },
            lines: false,
            ..QWEN3_CODER_FORM
        }
    };
}

/// Format of DeepSeek V3.2 and V4, whose outer tags differ and may be missing. Models also write it with other bars.
pub(in crate::wire::parse) static DSML: Format = marked(
    &[
        "<｜DSML｜function_calls>",
        "<｜DSML｜tool_calls>",
        "<｜DSML｜invoke name=\"",
        "<|DSML|tool_calls>",
        "<｜｜DSML｜｜tool_calls>",
    ],
    &[
        Form::Tagged(typed!("｜DSML｜": "function_calls", "tool_calls")),
        Form::Tagged(typed!("|DSML|": "tool_calls")),
        Form::Tagged(typed!("｜｜DSML｜｜": "tool_calls")),
    ],
);

/// Format of DeepSeek V4.1: like [`DSML`], with a space before each word.
pub(in crate::wire::parse) static DSML_SPACED: Format = marked(
    &["<｜DSML｜ calls>", "<｜DSML｜ invoke name=\""],
    &[Form::Tagged(typed!("｜DSML｜ ": "calls"))],
);

pub(in crate::wire::parse) static GIGACHAT35: Format = marked(
    &["<｜GCML｜tool_calls>"],
    &[Form::Tagged(typed!("｜GCML｜": "tool_calls"))],
);

/// Format of Kimi K3: elements between tokens, with attributes.
pub(in crate::wire::parse) static KIMI_K3: Format = marked(
    &["<|open|>tools<|sep|>", "<|open|>call tool=\""],
    &[Form::Tagged(TaggedForm {
        opens: &["<|open|>tools<|sep|>"],
        name: ("<|open|>call tool=\"", "\""),
        attributes: "<|sep|>",
        end: "<|close|>call<|sep|>",
        key: ("<|open|>argument key=\"", "<|sep|>"),
        value: ("", "<|close|>argument<|sep|>"),
        closes: &["<|close|>tools<|sep|>"],
        keys: Keys::Typed {
            attribute: "\" type=\"",
            string: "string",
        },
        lines: false,
        ..QWEN3_CODER_FORM
    })],
);

/// Format of K2 Horizon: like GLM's, with a type that may come before a value.
pub(in crate::wire::parse) static K2_HORIZON: Format = marked(
    &["<ifm|tool_calls>", "<ifm|tool_call>"],
    &[Form::Tagged(TaggedForm {
        opens: &["<ifm|tool_calls>"],
        name: ("<ifm|tool_call>", "\n"),
        end: "</ifm|tool_call>",
        key: ("<ifm|arg_key>", "</ifm|arg_key>"),
        kind: ("<ifm|arg_type>", "</ifm|arg_type>"),
        value: ("<ifm|arg_value>", "</ifm|arg_value>"),
        closes: &["</ifm|tool_calls>"],
        ..GLM_FORM
    })],
);

/// Format of MiniCPM 5: XML.
pub(in crate::wire::parse) static MINICPM5: Format = marked(
    &["<function name=\""],
    &[Form::Tagged(TaggedForm {
        opens: &[],
        name: ("<function name=\"", "\">"),
        end: "</function>",
        key: ("<param name=\"", "\">"),
        value: ("", "</param>"),
        closes: &[],
        lines: false,
        xml: true,
        ..QWEN3_CODER_FORM
    })],
);

/// Format of GigaChat 3: one object after a token, or after the words that the token replaced.
pub(in crate::wire::parse) static GIGACHAT3: Format = marked(
    &[
        "<|function_call|>",
        "function call<|role_sep|>\n",
        "<|message_sep|>\n\nfunction call<|role_sep|>\n",
    ],
    &[Form::Json(objects(""))],
);

const DEEPSEEK_FORM: NamedForm = NamedForm {
    section: "<｜tool▁calls▁begin｜>",
    call: "<｜tool▁call▁begin｜>",
    prefix: "",
    separator: "<｜tool▁sep｜>",
    id: "",
    numbered: false,
    brace: false,
    fenced: false,
    end: "<｜tool▁call▁end｜>",
    close: "<｜tool▁calls▁end｜>",
};

const DEEPSEEK_STARTS: &[&str] = &["<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"];

/// Format of DeepSeek V3: a name and a fenced block between tokens.
pub(in crate::wire::parse) static DEEPSEEK_V3: Format = marked(
    DEEPSEEK_STARTS,
    &[Form::Named(NamedForm {
        prefix: "function<｜tool▁sep｜>",
        separator: "\n",
        fenced: true,
        ..DEEPSEEK_FORM
    })],
);

/// Format of DeepSeek V3.1: a name and JSON between tokens.
pub(in crate::wire::parse) static DEEPSEEK_V31: Format =
    marked(DEEPSEEK_STARTS, &[Form::Named(DEEPSEEK_FORM)]);

const KIMI_FORM: NamedForm = NamedForm {
    section: "<|tool_calls_section_begin|>",
    call: "<|tool_call_begin|>",
    prefix: "",
    separator: "<|tool_call_argument_begin|>",
    id: "",
    numbered: true,
    brace: false,
    fenced: false,
    end: "<|tool_call_end|>",
    close: "<|tool_calls_section_end|>",
};

/// Format of Kimi K2, whose models also write the section in the singular.
pub(in crate::wire::parse) static KIMI_K2: Format = marked(
    &[
        "<|tool_calls_section_begin|>",
        "<|tool_call_section_begin|>",
        "<|tool_call_begin|>",
    ],
    &[
        Form::Named(KIMI_FORM),
        Form::Named(NamedForm {
            section: "<|tool_call_section_begin|>",
            close: "<|tool_call_section_end|>",
            ..KIMI_FORM
        }),
    ],
);

/// Format `[TOOL_CALLS]` with a list of objects, or with a name, `[ARGS]` and JSON for each call.
pub(in crate::wire::parse) static MISTRAL: Format = marked(
    &["[TOOL_CALLS]"],
    &[
        Form::Json(objects("")),
        Form::Named(NamedForm {
            section: "",
            call: "[TOOL_CALLS]",
            prefix: "",
            separator: "[ARGS]",
            id: "[CALL_ID]",
            numbered: false,
            brace: true,
            fenced: false,
            end: "",
            close: "",
        }),
    ],
);

/// Format of objects with `name` and `parameters`, one after another, with or without a marker.
pub(in crate::wire::parse) static LLAMA3: Format = Format {
    starts: &["<|python_tag|>"],
    fences: &[],
    bare: "{[",
    forms: &[Form::Json(JsonForm {
        separators: ";,",
        ..objects("")
    })],
};

/// List of objects that engines without a grammar for the model's own format request if a call is required.
pub(in crate::wire::parse) static REQUIRED: Format = Format {
    starts: &[],
    fences: &[],
    bare: "[{",
    forms: &[Form::Json(objects(""))],
};

pub(in crate::wire::parse) static INTERNLM: Format = marked(
    &["<|action_start|><|plugin|>", "<|action_start|> <|plugin|>"],
    &[Form::Json(JsonForm {
        list: false,
        ..objects("<|action_end|>")
    })],
);

pub(in crate::wire::parse) static GRANITE: Format = marked(
    &["<|tool_call|>", "<tool_call>", "<function_call>"],
    &[Form::Json(TAGGED_JSON)],
);

/// Format of Jamba and Hunyuan: a list of objects in `<tool_calls>`.
pub(in crate::wire::parse) static TOOL_CALLS: Format =
    marked(&["<tool_calls>"], &[Form::Json(objects("</tool_calls>"))]);

pub(in crate::wire::parse) static COHERE: Format = marked(
    &["<|START_ACTION|>"],
    &[Form::Json(JsonForm {
        name: "tool_name",
        ..objects("<|END_ACTION|>")
    })],
);

pub(in crate::wire::parse) static PHI4: Format = marked(
    &["functools", "<|tool_call|>"],
    &[Form::Json(objects("<|/tool_call|>"))],
);

pub(in crate::wire::parse) static LONGCAT: Format = marked(
    &["<longcat_tool_call>"],
    &[Form::Json(objects("</longcat_tool_call>"))],
);

pub(in crate::wire::parse) static PLAMO3: Format = marked(
    &[
        "<|plamo:begin_tool_requests:plamo|>",
        "<|plamo:begin_tool_request:plamo|>",
    ],
    &[Form::Named(NamedForm {
        section: "<|plamo:begin_tool_requests:plamo|>",
        call: "<|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>",
        prefix: "",
        separator: "<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>",
        id: "",
        numbered: false,
        brace: false,
        fenced: false,
        end: "<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>",
        close: "<|plamo:end_tool_requests:plamo|>",
    })],
);

/// List of objects, with or without a fenced block around it.
pub(in crate::wire::parse) static XLAM: Format = Format {
    starts: &["[TOOL_CALLS]"],
    fences: &["```json", "```"],
    bare: "[{",
    forms: &[Form::Json(objects("```"))],
};

pub(in crate::wire::parse) static SEED: Format = marked(
    &["<seed:tool_call>"],
    &[Form::Tagged(TaggedForm {
        opens: &["<seed:tool_call>"],
        closes: &["</seed:tool_call>"],
        ..QWEN3_CODER_FORM
    })],
);

pub(in crate::wire::parse) static STEP3: Format = marked(
    &["<｜tool_calls_begin｜>", "<｜tool_call_begin｜>"],
    &[Form::Tagged(TaggedForm {
        opens: &[
            "<｜tool_calls_begin｜>",
            "<｜tool_call_begin｜>function<｜tool_sep｜>",
        ],
        name: ("<steptml:invoke name=\"", "\">"),
        end: "</steptml:invoke>",
        key: ("<steptml:parameter name=\"", "\">"),
        value: ("", "</steptml:parameter>"),
        closes: &["<｜tool_call_end｜>", "<｜tool_calls_end｜>"],
        lines: false,
        ..QWEN3_CODER_FORM
    })],
);

const fn python(end: &'static str) -> LiteralForm {
    LiteralForm {
        prefix: "",
        body: ('(', ')'),
        equals: '=',
        quotes: Quotes::Python,
        end,
    }
}

/// Format `[f(a=1, b="x"), g()]`.
pub(in crate::wire::parse) static PYTHONIC: Format = Format {
    starts: &["<|python_start|>"],
    fences: &[],
    bare: "[",
    forms: &[
        Form::Literal(python("<|python_end|>")),
        Form::Json(objects("<|python_end|>")),
    ],
};

/// Format of OLMo 3: Python calls, one on each line.
pub(in crate::wire::parse) static OLMO3: Format = marked(
    &["<function_calls>"],
    &[Form::Literal(python("</function_calls>"))],
);

pub(in crate::wire::parse) static LFM2: Format = marked(
    &["<|tool_call_start|>"],
    &[
        Form::Literal(python("<|tool_call_end|>")),
        Form::Json(objects("<|tool_call_end|>")),
    ],
);

const GEMMA_FORM: LiteralForm = LiteralForm {
    prefix: "call:",
    body: ('{', '}'),
    equals: ':',
    quotes: Quotes::Mark("<|\"|>"),
    end: "<tool_call|>",
};

/// Format `call:NAME{key:<|"|>text<|"|>,n:1}`.
pub(in crate::wire::parse) static GEMMA4: Format =
    marked(&["<|tool_call>"], &[Form::Literal(GEMMA_FORM)]);

pub(in crate::wire::parse) static FUNCTIONGEMMA: Format = marked(
    &["<start_function_call>"],
    &[Form::Literal(LiteralForm {
        quotes: Quotes::Mark("<escape>"),
        end: "<end_function_call>",
        ..GEMMA_FORM
    })],
);
