//! Writers of tool calls, one for each format that models use.

use serde_json::{Map, Value};

pub type Call = (String, Map<String, Value>);

/// Names of the formats in these tests, each with the parser that reads it.
pub const FORMATS: [(&str, &str); 53] = [
    ("hermes", "hermes"),
    ("hermes", "qwen3"),
    ("qwen3_coder", "qwen3"),
    ("glm45", "glm47"),
    ("llama3_json", "llama3_json"),
    ("python_tag", "llama3_json"),
    ("pythonic", "pythonic"),
    ("llama4", "llama4_pythonic"),
    ("llama3_json", "pythonic"),
    ("olmo3", "olmo3"),
    ("lfm2", "lfm2"),
    ("mistral", "mistral"),
    ("mistral_ids", "mistral"),
    ("mistral_bare", "mistral"),
    ("mistral_old", "mistral"),
    ("deepseek_v3", "deepseek_v3"),
    ("deepseek_v31", "deepseek_v31"),
    ("deepseek_v32", "deepseek_v32"),
    ("deepseek_v4", "deepseek_v4"),
    ("kimi_k2", "kimi_k2"),
    ("qwen3_coder", "qwen3_coder"),
    ("glm45", "glm45"),
    ("minimax_m2", "minimax_m2"),
    ("minimax_m3", "minimax_m3"),
    ("seed_oss", "seed_oss"),
    ("step3", "step3"),
    ("gemma4", "gemma4"),
    ("internlm", "internlm"),
    ("granite", "granite"),
    ("jamba", "hunyuan_a13b"),
    ("phi4_mini_json", "phi4_mini_json"),
    ("hy_v3", "hy_v3"),
    ("cohere", "cohere_command3"),
    ("cohere", "cohere_command4"),
    ("qwen3_coder", "hermes"),
    ("hermes", "qwen3_coder"),
    ("glm45", "qwen3"),
    ("mimo", "mimo"),
    ("deepseek_v41", "deepseek_v41"),
    ("gigachat35", "gigachat35"),
    ("hy_v4", "hy_v4"),
    ("iquest_q1", "iquest_q1"),
    ("dots", "dots"),
    ("longcat", "longcat"),
    ("plamo3", "plamo3"),
    ("kimi_k3", "kimi_k3"),
    ("k2_horizon", "k2_horizon"),
    ("minicpm5", "minicpm5"),
    ("apertus", "apertus2509"),
    ("hy_suffixed", "hy_v3"),
    ("muse", "muse"),
    ("beam", "beam"),
    ("inkling", "inkling"),
];

/// Returns true for formats in which each call is a message, whose tokens cannot be text.
pub fn is_message(format: &str) -> bool {
    ["muse", "beam", "inkling"].contains(&format)
}

/// Returns true for formats that must be alone, because only their beginning identifies them.
pub fn stands_alone(format: &str) -> bool {
    ["llama3_json", "pythonic"].contains(&format)
}

/// Returns the end-of-turn token of formats whose marks are tool tokens only if the engine shows special tokens.
pub fn turn(parser: &str) -> &'static str {
    match parser {
        "mistral" => "</s>",
        "kimi_k2" => "<|im_end|>",
        "gemma4" => "<turn|>",
        "cohere_command3" | "cohere_command4" => "<|END_OF_TURN_TOKEN|>",
        _ if parser.starts_with("deepseek") => "<｜end▁of▁sentence｜>",
        _ => "",
    }
}

fn json(arguments: &Map<String, Value>) -> String {
    Value::Object(arguments.clone()).to_string()
}

fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), ToOwned::to_owned)
}

fn object(key: &str, (name, arguments): &Call) -> String {
    format!(
        "{{\"name\": {}, \"{key}\": {}}}",
        Value::from(name.as_str()),
        json(arguments)
    )
}

/// Writes a call with its parameters in tags.
fn tagged(
    call: (&str, &str),
    key: (&str, &str),
    value: (&str, &str),
    (name, arguments): &Call,
) -> String {
    let all = arguments.iter();
    let all = all.map(|(k, v)| format!("{}{k}{}{}{}{}", key.0, key.1, value.0, plain(v), value.1));
    format!("{}{name}{}{}", call.0, call.1, all.collect::<String>())
}

/// Writes a value in Python syntax.
fn python(value: &Value) -> String {
    let join = |all: Vec<String>| all.join(", ");
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => {
            let text = text
                .replace('\\', "\\\\")
                .replace('\'', "\\'")
                .replace('\n', "\\n");
            format!("'{text}'")
        }
        Value::Array(all) => format!("[{}]", join(all.iter().map(python).collect())),
        Value::Object(all) => {
            format!(
                "{{{}}}",
                join(
                    all.iter()
                        .map(|(k, v)| format!("'{k}': {}", python(v)))
                        .collect()
                )
            )
        }
    }
}

fn python_call((name, arguments): &Call) -> String {
    let all: Vec<_> = arguments
        .iter()
        .map(|(key, value)| format!("{key}={}", python(value)))
        .collect();
    format!("{name}({})", all.join(", "))
}

/// Writes a value in Gemma's syntax.
fn gemma(value: &Value) -> String {
    match value {
        Value::String(text) => format!("<|\"|>{text}<|\"|>"),
        Value::Array(all) => format!("[{}]", all.iter().map(gemma).collect::<Vec<_>>().join(",")),
        Value::Object(all) => gemma_object(all),
        other => other.to_string(),
    }
}

fn gemma_object(all: &Map<String, Value>) -> String {
    let all: Vec<_> = all
        .iter()
        .map(|(key, value)| format!("{key}:{}", gemma(value)))
        .collect();
    format!("{{{}}}", all.join(","))
}

/// Writes a list of calls in a format.
pub fn written(format: &str, calls: &[Call]) -> String {
    let each = |one: &dyn Fn(&Call) -> String| calls.iter().map(one).collect::<Vec<_>>();
    match format {
        "mistral" => each(&|(name, all)| format!("[TOOL_CALLS]{name}[ARGS]{}", json(all))).concat(),
        "mistral_ids" => {
            each(&|(name, all)| format!("[TOOL_CALLS]{name}[CALL_ID]a1b2c3d4e[ARGS]{}", json(all)))
                .concat()
        }
        "mistral_bare" => each(&|(name, all)| format!("[TOOL_CALLS]{name}{}", json(all))).concat(),
        "deepseek_v3" | "deepseek_v31" | "kimi_k2" => named(format, calls),
        "qwen3_coder" | "mimo" | "glm45" | "hy_v3" | "minimax_m2" | "dots" | "minimax_m3"
        | "seed_oss" | "step3" => in_tags(format, calls),
        "hy_v4" => format!(
            "<tool_calls>{}</tool_calls>",
            each(&|call| unbroken("tool_call", call)).concat()
        ),
        "hy_suffixed" => hy_suffixed(calls),
        "muse" | "beam" | "inkling" => each(&|call| message(format, call)).concat(),
        "iquest_q1" => each(&|call| unbroken("iquest_tool_call", call)).join("\n"),
        "deepseek_v32" => typed("｜DSML｜", "function_calls", calls),
        "deepseek_v4" => typed("｜DSML｜", "tool_calls", calls),
        "deepseek_v41" => typed("｜DSML｜ ", "calls", calls),
        "gigachat35" => typed("｜GCML｜", "tool_calls", calls),
        "plamo3" => plamo(calls),
        "kimi_k3" => kimi_k3(calls),
        "k2_horizon" => k2_horizon(calls),
        "minicpm5" => each(&minicpm).join("\n"),
        "pythonic" => format!("[{}]", each(&python_call).join(", ")),
        "llama4" => format!(
            "<|python_start|>[{}]<|python_end|>",
            each(&python_call).join(", ")
        ),
        "olmo3" => format!(
            "<function_calls>\n{}\n</function_calls>",
            each(&python_call).join("\n")
        ),
        "lfm2" => format!(
            "<|tool_call_start|>[{}]<|tool_call_end|>",
            each(&python_call).join(", ")
        ),
        "gemma4" => {
            each(&|(name, all)| format!("<|tool_call>call:{name}{}<tool_call|>", gemma_object(all)))
                .concat()
        }
        _ => objects(format, calls),
    }
}

/// Writes each call as an object with a name and arguments.
fn objects(format: &str, calls: &[Call]) -> String {
    let each = |one: &dyn Fn(&Call) -> String| calls.iter().map(one).collect::<Vec<_>>();
    let list = |between: &str| each(&|call| object("arguments", call)).join(between);
    match format {
        "hermes" => {
            each(&|call| format!("<tool_call>\n{}\n</tool_call>", object("arguments", call)))
                .join("\n")
        }
        "longcat" => each(&|call| {
            format!(
                "<longcat_tool_call>\n{}\n</longcat_tool_call>",
                object("arguments", call)
            )
        })
        .join("\n"),
        "llama3_json" => each(&|call| object("parameters", call)).join("; "),
        "python_tag" => format!(
            "<|python_tag|>{}",
            each(&|call| object("parameters", call)).join("; ")
        ),
        "mistral_old" => format!("[TOOL_CALLS] [{}]", list(", ")),
        "internlm" => each(&|call| {
            format!(
                "<|action_start|><|plugin|>\n{}<|action_end|>",
                object("parameters", call)
            )
        })
        .join("\n"),
        "granite" => format!("<|tool_call|>[{}]", list(", ")),
        "jamba" => format!("<tool_calls>[\n{}\n]</tool_calls>", list(",\n")),
        "cohere" => {
            let call = |(at, (name, all)): (usize, &Call)| {
                let name = Value::from(name.as_str());
                format!(
                    "    {{\"tool_call_id\": \"{at}\", \"tool_name\": {name}, \"parameters\": {}}}",
                    json(all)
                )
            };
            let all: Vec<_> = calls.iter().enumerate().map(call).collect();
            format!("<|START_ACTION|>[\n{}\n]<|END_ACTION|>", all.join(",\n"))
        }
        "phi4_mini_json" => format!("functools[{}]", list(", ")),
        "apertus" => {
            let call =
                |(name, all): &Call| format!("{{{}: {}}}", Value::from(name.as_str()), json(all));
            format!(
                "<|tools_prefix|>[{}]<|tools_suffix|>",
                each(&call).join(", ")
            )
        }
        other => panic!("{other}"),
    }
}

/// Writes each call as a name and JSON between tokens.
fn named(format: &str, calls: &[Call]) -> String {
    let each = |one: &dyn Fn(usize, &Call) -> String| {
        calls
            .iter()
            .enumerate()
            .map(|(at, call)| one(at, call))
            .collect::<Vec<_>>()
    };
    let deepseek = |all: String| format!("<｜tool▁calls▁begin｜>{all}<｜tool▁calls▁end｜>");
    match format {
        "deepseek_v3" => deepseek(
            each(&|_, (name, all)| {
                let call = format!("function<｜tool▁sep｜>{name}\n```json\n{}\n```", json(all));
                format!("<｜tool▁call▁begin｜>{call}<｜tool▁call▁end｜>")
            })
            .join("\n"),
        ),
        "deepseek_v31" => deepseek(
            each(&|_, (name, all)| {
                format!(
                    "<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{}<｜tool▁call▁end｜>",
                    json(all)
                )
            })
            .concat(),
        ),
        _ => format!(
            "<|tool_calls_section_begin|>{}<|tool_calls_section_end|>",
            each(&|at, (name, all)| {
                let head = format!("functions.{name}:{at}<|tool_call_argument_begin|>");
                format!("<|tool_call_begin|>{head}{}<|tool_call_end|>", json(all))
            })
            .concat()
        ),
    }
}

/// Writes each call with its parameters in separate tags.
fn in_tags(format: &str, calls: &[Call]) -> String {
    let each = |one: &dyn Fn(&Call) -> String| calls.iter().map(one).collect::<Vec<_>>();
    match format {
        "qwen3_coder" | "mimo" | "seed_oss" => {
            let (tag, key, value) = match format {
                "qwen3_coder" => ("tool_call", ">\n", "\n</parameter>\n"),
                "mimo" => ("tool_call", ">", "</parameter>\n"),
                _ => ("seed:tool_call", ">", "</parameter>\n"),
            };
            each(&|call| {
                let inner = tagged(
                    ("<function=", ">\n"),
                    ("<parameter=", key),
                    ("", value),
                    call,
                );
                format!("<{tag}>\n{inner}</function>\n</{tag}>")
            })
            .join("\n")
        }
        "glm45" => each(&|call| {
            let inner = tagged(
                ("", "\n"),
                ("<arg_key>", "</arg_key>\n"),
                ("<arg_value>", "</arg_value>\n"),
                call,
            );
            format!("<tool_call>{inner}</tool_call>")
        })
        .join("\n"),
        "hy_v3" => {
            let call = |call: &Call| {
                let key = ("<arg_key>", "</arg_key>\n");
                let inner = tagged(
                    ("", "<tool_sep>\n"),
                    key,
                    ("<arg_value>", "</arg_value>\n"),
                    call,
                );
                format!("<tool_call>{inner}</tool_call>\n")
            };
            format!("<tool_calls>\n{}</tool_calls>", each(&call).concat())
        }
        "minimax_m2" | "dots" => {
            let section = if format == "dots" {
                "dots_function_call"
            } else {
                "minimax:tool_call"
            };
            let call = |call: &Call| {
                let key = ("<parameter name=\"", "\">");
                tagged(
                    ("<invoke name=\"", "\">\n"),
                    key,
                    ("", "</parameter>\n"),
                    call,
                ) + "</invoke>"
            };
            format!("<{section}>\n{}\n</{section}>", each(&call).join("\n"))
        }
        "minimax_m3" => {
            let call = |(name, all): &Call| {
                let all = all
                    .iter()
                    .map(|(k, v)| format!("]<]minimax[>[<{k}>{}]<]minimax[>[</{k}>", plain(v)));
                let all: String = all.collect();
                format!("]<]minimax[>[<invoke name=\"{name}\">{all}]<]minimax[>[</invoke>")
            };
            format!(
                "]<]minimax[>[<tool_call>\n{}\n]<]minimax[>[</tool_call>",
                each(&call).join("\n")
            )
        }
        _ => {
            let call = |call: &Call| {
                let (name, key) = (
                    ("<steptml:invoke name=\"", "\">"),
                    ("<steptml:parameter name=\"", "\">"),
                );
                let inner = tagged(name, key, ("", "</steptml:parameter>"), call);
                let begin = "<｜tool_call_begin｜>function<｜tool_sep｜>";
                format!("{begin}{inner}</steptml:invoke><｜tool_call_end｜>")
            };
            format!(
                "<｜tool_calls_begin｜>\n{}\n<｜tool_calls_end｜>",
                each(&call).join("\n")
            )
        }
    }
}

/// Writes a call in a tag, without line breaks.
fn unbroken(tag: &str, call: &Call) -> String {
    let inner = tagged(
        ("", ""),
        ("<arg_key>", "</arg_key>"),
        ("<arg_value>", "</arg_value>"),
        call,
    );
    format!("<{tag}>{inner}</{tag}>")
}

/// Writes calls as a checkpoint of HY 3 does that has a suffix in its tags.
fn hy_suffixed(calls: &[Call]) -> String {
    let tag = |name: &str, inner: &str| format!("<{name}:opensource>{inner}</{name}:opensource>\n");
    let call = |(name, all): &Call| {
        let all = all
            .iter()
            .map(|(key, value)| tag("arg_key", key) + &tag("arg_value", &plain(value)));
        let inner = format!("{name}<tool_sep:opensource>\n{}", all.collect::<String>());
        tag("tool_call", &inner)
    };
    let all: String = calls.iter().map(call).collect();
    tag("tool_calls", &format!("\n{all}")).trim_end().to_owned()
}

/// Writes a call as a message for its tool.
fn message(format: &str, call: &Call) -> String {
    let (name, all) = call;
    let parameters = |prefix: &str, before: &str| {
        let (key, value) = (
            format!("<{prefix}:parameter name=\""),
            format!("{before}</{prefix}:parameter>\n"),
        );
        tagged(
            ("", ""),
            (&key, &format!("\">{before}")),
            ("", &value),
            &(String::new(), all.clone()),
        )
    };
    match format {
        "muse" => format!(
            "<|start|>assistant to={name}<|message|><atem:function_calls>\n<atem:invoke name=\"{name}\">\n{}</atem:invoke>\n</atem:function_calls><|eom|>",
            parameters("atem", "")
        ),
        "beam" => format!(
            "<|start|>assistant to={name}<|channel|>analysis <|constrain|>xml<|message|>{}<|end|>",
            parameters("rfl", "\n")
        ),
        _ => format!(
            "<|message_model|>{name}<|content_invoke_tool_json|>{}<|end_message|>",
            object("args", call)
        ),
    }
}

fn plamo(calls: &[Call]) -> String {
    let tag = |end: &str, name: &str| format!("<|plamo:{end}_{name}:plamo|>");
    let call = |(name, all): &Call| {
        [
            tag("begin", "tool_request"),
            tag("begin", "tool_name"),
            name.clone(),
            tag("end", "tool_name"),
            tag("begin", "tool_arguments"),
            format!("<|plamo:constrain|>json<|plamo:msg|>{}", json(all)),
            tag("end", "tool_arguments"),
            tag("end", "tool_request"),
        ]
        .concat()
    };
    let all: String = calls.iter().map(call).collect();
    tag("begin", "tool_requests") + &all + &tag("end", "tool_requests")
}

/// Writes calls in tags that begin with a word, whose parameters tell if they are strings.
fn typed(word: &str, section: &str, calls: &[Call]) -> String {
    let call = |(name, all): &Call| {
        let all = all.iter().map(|(k, v)| {
            let text = v.is_string();
            format!(
                "<{word}parameter name=\"{k}\" string=\"{text}\">{}</{word}parameter>\n",
                plain(v)
            )
        });
        format!(
            "<{word}invoke name=\"{name}\">\n{}</{word}invoke>\n",
            all.collect::<String>()
        )
    };
    let all: String = calls.iter().map(call).collect();
    format!("<{word}{section}>\n{all}</{word}{section}>")
}

/// Returns the name of a value's type in a schema.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn kimi_k3(calls: &[Call]) -> String {
    let element = |name: &str, attributes: &str, inner: &str| {
        format!("<|open|>{name}{attributes}<|sep|>{inner}<|close|>{name}<|sep|>")
    };
    let call = |(at, (name, all)): (usize, &Call)| {
        let all = all.iter().map(|(key, value)| {
            let attributes = format!(" key=\"{key}\" type=\"{}\"", kind(value));
            element("argument", &attributes, &plain(value))
        });
        let attributes = format!(" tool=\"{name}\" index=\"{}\"", at + 1);
        element("call", &attributes, &all.collect::<String>())
    };
    element(
        "tools",
        "",
        &calls.iter().enumerate().map(call).collect::<String>(),
    )
}

fn k2_horizon(calls: &[Call]) -> String {
    let call = |(name, all): &Call| {
        let all = all.iter().enumerate().map(|(at, (key, value))| {
            let kind = match at % 2 {
                0 => format!("<ifm|arg_type>{}</ifm|arg_type>", kind(value)),
                _ => String::new(),
            };
            let value = plain(value);
            format!(
                "<ifm|arg_key>{key}</ifm|arg_key>\n{kind}<ifm|arg_value>{value}</ifm|arg_value>\n"
            )
        });
        let all: String = all.collect();
        format!("<ifm|tool_call>{name}\n{all}</ifm|tool_call>\n")
    };
    let all: String = calls.iter().map(call).collect();
    format!("<ifm|tool_calls>\n{all}</ifm|tool_calls>")
}

/// Writes a call as XML, with text in CDATA sections and with entities.
fn minicpm((name, all): &Call) -> String {
    let all = all.iter().map(|(key, value)| {
        let text = plain(value);
        let text = match text.len() % 2 {
            0 if value.is_string() => format!("<![CDATA[{text}]]>"),
            _ => text
                .replace('&', "&amp;")
                .replace('<', "&lt;")
                .replace('>', "&gt;"),
        };
        format!("<param name=\"{key}\">{text}</param>")
    });
    format!(
        "<function name=\"{name}\">{}</function>",
        all.collect::<String>()
    )
}
