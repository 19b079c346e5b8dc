//! An example for each rule: members of a request, or a message.

use crate::table;

pub struct Row {
    /// Name of the rule.
    pub rule: &'static str,
    /// Engines and versions that need the rule.
    pub within: Vec<&'static str>,
    /// Engines and versions that do not: the request stays unchanged for them.
    pub outside: Vec<&'static str>,
    pub before: &'static str,
    pub after: &'static str,
}

pub fn rows() -> Vec<Row> {
    let row = |(head, [before, after]): (&'static str, [&'static str; 2])| {
        let (rule, engines) = head.split_once(": ").unwrap();
        let (within, outside) = engines.split_once("; not ").unwrap_or((engines, ""));
        let names = |list: &'static str| list.split(", ").filter(|name| !name.is_empty()).collect();
        Row {
            rule,
            within: names(within),
            outside: names(outside),
            before,
            after,
        }
    };
    table::rows(ROWS).into_iter().map(row).collect()
}

/// The rule, the engines that need it, and those that do not; below them the request before and after it.
const ROWS: &str = r##"
null_members: lmdeploy, vllm, sglang, auto, litellm; not generic
    "n":null,"top_k":null,"stream":null
    "top_k":null
max_tokens: transformers, vllm 0.6.0, vllm 0.6.3; not vllm 0.6.4, vllm, generic
    "max_completion_tokens":5
    "max_tokens":5
max_tokens_twice: vllm 0.6.3, transformers
    "max_completion_tokens":5,"max_tokens":9
    "max_tokens":5
max_tokens_twice: vllm, llamacpp, tensorrt_llm, lmdeploy, openai, auto, litellm, generic
    "max_tokens":9,"max_completion_tokens":5
    "max_completion_tokens":5
max_tokens_twice: sglang, ollama
    "max_tokens":9,"max_completion_tokens":5
    "max_completion_tokens":5,"max_tokens":5
max_tokens: ollama, sglang 0.4.6, sglang; not generic, auto
    "max_completion_tokens": 5 ,"top_k":1
    "max_completion_tokens": 5 ,"top_k":1,"max_tokens":5
fields_of_the_service: tensorrt_llm, transformers, vllm 0.6.4.post1; not vllm 0.6.5, vllm, sglang, auto, generic
    "store":true,"top_k":1,"metadata":{"a":"b"},"prompt_cache_key":"k"
    "top_k":1
fields_of_later_versions: vllm 0.6.4; not vllm 0.6.5, vllm
    "reasoning_effort":"low","top_k":1
    "top_k":1
fields_without_effect: transformers; not generic
    "user":"u","top_k":1
    "top_k":1
choices: transformers; not generic, vllm
    "n":1,"top_k":1
    "top_k":1
fan_out: ollama, vllm rust 0.22.0, vllm rust; not vllm, vllm 0.19.0, sglang, auto, generic
    "n": 2,"top_k":1
    "n": 1,"top_k":1
fan_out: transformers; not generic
    "n":2,"top_k":1
    "top_k":1
fan_out: vllm 0.19.1, vllm 0.6.0; not vllm 0.20.0, vllm, sglang, generic
    "stream":true,"n":2,"tools":[{"type":"function","function":{"name":"f"}}],"stream_options":{"include_usage":true}
    "stream":true,"n":1,"tools":[{"type":"function","function":{"name":"f"}}],"stream_options":{"include_usage":true}
no_stream_options: transformers; not generic
    "stream":true,"stream_options":{"include_usage":true}
    "stream":true
empty_stops: vllm, sglang, auto, litellm; not generic
    "stop":["","a",""],"top_k":1
    "stop":["a"],"top_k":1
empty_stops: vllm, sglang, auto, litellm; not generic
    "stop":"","top_k":1
    "top_k":1
constraints: vllm, vllm 0.12.0; not vllm 0.11.2, generic
    "guided_json":{"type":"object"},"top_k":1
    "top_k":1,"structured_outputs":{"json":{"type":"object"}}
constraints: vllm 0.10.2, vllm 0.6.0; not vllm 0.11.0, vllm
    "structured_outputs":{"regex":"a+"},"top_k":1
    "top_k":1,"guided_regex":"a+"
constraints: sglang, sglang 0.4.0; not generic
    "guided_json":"{\"type\":\"object\"}"
    "response_format":{"type":"json_schema","json_schema":{"name":"schema","schema":{"type":"object"}}}
constraints: sglang; not generic
    "structured_outputs":{"grammar":"root ::= \"a\""}
    "ebnf":"root ::= \"a\""
constraints: sglang; not generic
    "guided_choice":["a|b","c"]
    "regex":"(a\\|b|c)"
schema_name: lmdeploy, vllm, sglang, auto, litellm; not generic
    "response_format":{"type":"json_schema","json_schema":{ "schema":{"x":1.50}}}
    "response_format":{"type":"json_schema","json_schema":{"name":"schema", "schema":{"x":1.50}}}
reasoning_object: vllm, vllm 0.22.0, sglang 0.5.1, sglang 0.5.2, sglang; not auto, generic
    "reasoning":{"effort":"high"},"top_k":1
    "top_k":1,"reasoning_effort":"high"
reasoning_object: vllm 0.22.0, sglang 0.5.10, sglang; not auto, generic
    "reasoning":{"enabled":false}
    "reasoning_effort":"none"
reasoning_object: sglang 0.5.2, sglang 0.5.9; not generic
    "reasoning":{"enabled":false,"effort":"high"},"top_k":1
    "top_k":1,"chat_template_kwargs":{"enable_thinking":false,"thinking":false}
reasoning_object: sglang 0.5.2, sglang 0.5.11; not generic
    "reasoning":{"effort":"xhigh"}
    "reasoning_effort":"high"
reasoning_object: sglang 0.5.2, sglang 0.5.11; not generic
    "reasoning":{"enabled":true,"effort":"minimal"}
    "reasoning":{"enabled":true,"effort":"minimal"},"reasoning_effort":"low"
thinking_switch: vllm, vllm 0.19.0; not generic, openai, lmdeploy
    "thinking":{"type":"enabled","budget_tokens":2048},"seed":1
    "seed":1,"chat_template_kwargs":{"enable_thinking":true,"thinking":true},"thinking_token_budget":2048
thinking_switch: vllm 0.18.0, sglang, llamacpp; not generic, openai
    "thinking":{"type":"disabled","budget_tokens":2048}
    "chat_template_kwargs":{"enable_thinking":false,"thinking":false}
thinking_switch: vllm, sglang, llamacpp; not generic
    "enable_thinking":false,"chat_template_kwargs":{"enable_thinking":true}
    "chat_template_kwargs":{"enable_thinking":true,"thinking":false}
thinking_switch: vllm, sglang, llamacpp; not generic
    "enable_thinking":"false","thinking":5,"think":""
    "thinking":5,"think":"","chat_template_kwargs":{"enable_thinking":false,"thinking":false}
thinking_switch: vllm; not generic
    "thinking":{"type":"enabled","budget_tokens":-1}
    "chat_template_kwargs":{"enable_thinking":true,"thinking":true}
thinking_switch: vllm, sglang, llamacpp; not generic
    "think":"low","thinking":{"type":"adaptive"}
    "reasoning_effort":"low","chat_template_kwargs":{"enable_thinking":true,"thinking":true}
no_reasoning: transformers, transformers 5.23.0, lmdeploy, vllm 0.21.0, vllm 0.9.0, sglang 0.5.9; not vllm, vllm 0.22.0, sglang, sglang 0.5.10, auto
    "reasoning_effort":"none","top_k":1
    "top_k":1,"chat_template_kwargs":{"enable_thinking":false,"thinking":false}
no_reasoning: vllm 0.21.0; not vllm
    "reasoning_effort":"none","chat_template_kwargs":{ "x":1,"thinking":true}
    "chat_template_kwargs":{ "x":1,"thinking":true,"enable_thinking":false}
no_reasoning: vllm 0.21.0; not vllm
    "reasoning_effort":"none","chat_template_kwargs":{"x":{"y":1}}
    "chat_template_kwargs":{"x":{"y":1},"enable_thinking":false,"thinking":false}
effort: lmdeploy, vllm 0.10.1, vllm 0.17.0, sglang 0.5.1; not vllm 0.10.0, vllm 0.21.0, vllm, sglang 0.5.0, sglang
    "reasoning_effort":"minimal"
    "reasoning_effort":"low"
effort: vllm 0.18.0, vllm 0.20.2, sglang 0.5.10, sglang 0.5.11; not vllm 0.21.0, sglang 0.5.16, sglang 0.5.12
    "reasoning_effort":"max"
    "reasoning_effort":"high"
effort: sglang 0.5.12, sglang 0.5.15; not sglang 0.5.16, vllm
    "reasoning_effort":"xhigh"
    "reasoning_effort":"high"
effort_harmony: vllm, vllm 0.21.0; not sglang, generic, vllm 0.10.0
    "model":"gpt-oss-20b","messages":[{"role":"user","content":"a"}],"reasoning_effort":"minimal"
    "model":"gpt-oss-20b","messages":[{"role":"user","content":"a"}],"reasoning_effort":"low"
reasoning_key: ollama, vllm, vllm 0.21.0; not sglang, auto, generic
    {"role":"assistant","reasoning_content":"r","content":"c"}
    {"role":"assistant","reasoning":"r","content":"c"}
reasoning_key: ollama, vllm, vllm 0.21.0; not auto, generic
    {"role":"assistant","content":"c","reasoning":null,"reasoning_content":"r"}
    {"role":"assistant","content":"c","reasoning":"r"}
reasoning_key: llamacpp, lmdeploy, sglang; not auto, generic
    {"role":"assistant","reasoning":"r","reasoning_content":"","content":"c"}
    {"role":"assistant","reasoning_content":"r","content":"c"}
reasoning_key: llamacpp, lmdeploy, sglang; not vllm, auto, generic
    {"role":"assistant","reasoning":"r","content":"c"}
    {"role":"assistant","reasoning_content":"r","content":"c"}
legacy_functions: llamacpp, lmdeploy, ollama, tensorrt_llm, vllm, sglang, auto, litellm; not generic
    "functions":[{"name":"f"}],"function_call":{"name":"f"},"top_k":1
    "top_k":1,"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"function","function":{"name":"f"}}
legacy_functions: vllm, sglang; not generic
    "messages":[{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}},{"role":"function","name":"f","content":"1"}]
    "messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"call00000","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","name":"f","content":"1","tool_call_id":"call00000"}]
empty_tools: tensorrt_llm, vllm, sglang, auto, litellm; not generic
    "tools":[ ],"tool_choice":"auto","parallel_tool_calls":true,"top_k":1
    "top_k":1
allowed_tools: llamacpp, ollama, tensorrt_llm, vllm, sglang, auto, litellm; not generic
    "tools":[{"type":"function","function":{"name":"f"}}, {"type":"function", "function":{"name":"g"}}],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"g"}}]}}
    "tools":[{"type":"function", "function":{"name":"g"}}],"tool_choice":"required"
choice_none: transformers, vllm, vllm 0.6.0, vllm 0.21.0; not sglang, auto, generic
    "tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"none","top_k":1
    "top_k":1
choice_without_tools: vllm, sglang, auto, litellm; not generic
    "tool_choice":"auto","top_k":1
    "top_k":1
custom_tools: llamacpp, lmdeploy, ollama, tensorrt_llm, vllm, sglang, auto, litellm; not generic
    "tools":[{"type":"custom","custom":{"name":"c","description":"d","format":{"type":"text"}}},{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"custom","custom":{"name":"c"}}
    "tools":[{"type":"function","function":{"name":"c","description":"d","parameters":{"type":"object","properties":{"input":{"type":"string"}},"required":["input"],"additionalProperties":false}}},{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"function","function":{"name":"c"}}
custom_tools: vllm, auto, litellm; not generic
    {"role":"assistant","content":"","tool_calls":[{"id":"1","type":"custom","custom":{"name":"c","input":"a\"b"}}]}
    {"role":"assistant","content":"","tool_calls":[{"id":"1","type":"function","function":{"name":"c","arguments":"{\"input\":\"a\\\"b\"}"}}]}
developer_role: llamacpp, lmdeploy, ollama, tensorrt_llm, transformers, vllm 0.6.0, vllm 0.22.3, sglang 0.5.6, sglang 0.5.7, sglang, auto, litellm; not vllm 0.23.0, vllm, generic
    {"role":"developer","content":"d"}
    {"role":"system","content":"d"}
developer_role: vllm 0.22.3, sglang; not vllm 0.23.0, generic
    {"role":"system","content":"s"},{"role":"developer","content":"d"}
    {"role":"system","content":"s\n\nd"}
empty_tool_calls: llamacpp, lmdeploy, ollama, tensorrt_llm, transformers, vllm, sglang, auto, litellm; not generic
    {"role":"assistant","tool_calls":null,"content":"c"}
    {"role":"assistant","content":"c"}
empty_tool_calls: vllm, sglang; not generic
    {"role":"assistant","content":"c","tool_calls":[]}
    {"role":"assistant","content":"c"}
content_beside_calls: sglang, auto, litellm; not vllm, generic
    {"role":"assistant","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]}
    {"role":"assistant","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}],"content":""}
arguments_object: llamacpp, lmdeploy, ollama, tensorrt_llm, transformers, vllm, sglang, auto, litellm; not generic
    {"role":"assistant","content":"","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":""}},{"id":"2","type":"function","function":{"name":"f","arguments":"[\"a\"]"}},{"id":"3","type":"function","function":{"name":"f","arguments":" {\"a\" :1}"}}]}
    {"role":"assistant","content":"","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"2","type":"function","function":{"name":"f","arguments":"{\"_raw\":\"[\\\"a\\\"]\"}"}},{"id":"3","type":"function","function":{"name":"f","arguments":" {\"a\" :1}"}}]}
arguments_object: llamacpp, lmdeploy, ollama, tensorrt_llm, transformers, vllm, sglang, auto, litellm; not generic
    {"role":"assistant","content":null,"function_call":{"name":"f","arguments":""}}
    {"role":"assistant","content":null,"tool_calls":[{"id":"call00000","type":"function","function":{"name":"f","arguments":"{}"}}]}
tool_message_text: llamacpp, lmdeploy, ollama, tensorrt_llm, transformers, vllm, sglang, auto, litellm; not generic
    {"role":"tool","tool_call_id":"1","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}
    {"role":"tool","tool_call_id":"1","content":"a\nb"}
part_input_text: llamacpp, ollama, lmdeploy, vllm 0.9.2, vllm 0.10.0, vllm, sglang, auto, litellm; not generic
    {"role":"user","content":[{"type":"input_text","text":"a"},{"type":"image_url","image_url":{"url":"u"}}]}
    {"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"u"}}]}
part_input_text: vllm 0.9.2, vllm, sglang; not generic
    {"role":"user","content":[{"type":"input_text","text":"a"},{"type":"text","text":"b"}]}
    {"role":"user","content":"a\nb"}
part_output_text: llamacpp, ollama, lmdeploy, vllm 0.11.0, vllm, sglang, auto, litellm; not generic
    {"role":"assistant","content":[{"type":"output_text","text":"a"},{"type":"output_text","text":"b"}]}
    {"role":"assistant","content":"ab"}
part_refusal: llamacpp, ollama, lmdeploy, sglang, sglang 0.4.0; not vllm, auto, generic
    {"role":"assistant","content":[{"refusal":"no","type":"refusal"}]}
    {"role":"assistant","content":"no"}
part_input_image: llamacpp, ollama, lmdeploy, vllm 0.9.2, vllm 0.10.0, vllm, sglang, auto, litellm; not generic
    {"role":"user","content":[{"type":"input_image","image_url":"u","detail":"low"},{"type":"text","text":"a"}]}
    {"role":"user","content":[{"type":"image_url","image_url":{"url":"u","detail":"low"}},{"type":"text","text":"a"}]}
go_on: vllm, vllm 0.6.0; not auto, generic
    "messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"} ]
    "messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"} ],"continue_final_message":true,"add_generation_prompt":false
go_on: sglang, sglang 0.5.8; not auto, generic
    "messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]
    "messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}],"continue_final_message":true
null_members: openai; not generic
    "n":null,"tools":null,"seed":1
    "seed":1
fields_of_engines: openai; not generic, vllm, sglang, auto
    "top_k":1,"seed":1,"chat_template_kwargs":{"a":1},"cache_salt":"s","min_tokens":5
    "seed":1,"min_tokens":5
constraints: openai; not generic
    "guided_json":{"type":"object"},"guided_regex":"a+"
    "guided_regex":"a+","response_format":{"type":"json_schema","json_schema":{"name":"schema","schema":{"type":"object"}}}
constraints: openai; not generic
    "structured_outputs":{"json":{"type":"object"}},"seed":1
    "seed":1,"response_format":{"type":"json_schema","json_schema":{"name":"schema","schema":{"type":"object"}}}
schema_name: openai; not generic
    "response_format":{"type":"json_schema","json_schema":{"schema":{}}}
    "response_format":{"type":"json_schema","json_schema":{"name":"schema","schema":{}}}
reasoning_object: openai; not generic
    "reasoning":{"effort":"low"},"seed":1
    "seed":1,"reasoning_effort":"low"
no_reasoning_in_messages: openai; not generic, auto
    {"role":"assistant","reasoning_content":"r","content":"c"}
    {"role":"assistant","content":"c"}
empty_tools: openai; not generic
    "tools":[ ],"tool_choice":"auto","parallel_tool_calls":true,"seed":1
    "seed":1
choice_without_tools: openai; not generic
    "tool_choice":"auto","seed":1
    "seed":1
empty_tool_calls: openai; not generic
    {"role":"assistant","content":"c","tool_calls":[]}
    {"role":"assistant","content":"c"}
reasoning_object: transformers; not generic
    "reasoning":{"enabled":false},"seed":1
    "seed":1,"chat_template_kwargs":{"enable_thinking":false,"thinking":false}
legacy_functions: transformers; not generic
    "functions":[{"name":"f"}],"function_call":"auto","seed":1
    "seed":1,"tools":[{"type":"function","function":{"name":"f"}}]
allowed_tools: transformers; not generic
    "tools":[{"type":"function","function":{"name":"f"}}, {"type":"function", "function":{"name":"g"}}],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"g"}}]}}
    "tools":[{"type":"function", "function":{"name":"g"}}]
custom_tools: transformers; not generic
    "tools":[{"type":"custom","custom":{"name":"c"}}]
    "tools":[{"type":"function","function":{"name":"c","parameters":{"type":"object","properties":{"input":{"type":"string"}},"required":["input"],"additionalProperties":false}}}]
"##;
