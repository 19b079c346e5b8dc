//! Tools, the tool choice, and the mapping of names back to the client's (wire-format 4.2).

use super::{chat, read, refusal, request, sent};
use samewire::request::responses::{CalledTool, ChatInputs};
use samewire::wire::event::ToolKind;

const HI: &str = r#"{"role":"user","content":"hi"}"#;
/// Tool of each kind; the tests below refer to their positions.
const TOOLS: &str = r#"{"type":"function","name":"f","description":"d\u0041","strict":false,"parameters":{ "b":1, "a":[] }},{"type":"custom","name":"c"},{"type":"namespace","name":"ns","description":"x","tools":[{"type":"function","name":"f"},{"type":"custom","name":"g","description":"e"}]},{"type":"web_search"},{"type":"mcp","server_label":"s"}"#;
const F: &str = r#"{"type":"function","function":{"name":"f","description":"dA","parameters":{ "b":1, "a":[] },"strict":false}}"#;
const C: &str = r#"{"type":"function","function":{"name":"c","parameters":{"type":"object","properties":{"input":{"type":"string"}},"required":["input"],"additionalProperties":false}}}"#;
const NS_F: &str = r#"{"type":"function","function":{"name":"ns__f"}}"#;
const NS_G: &str = r#"{"type":"function","function":{"name":"ns__g","description":"e","parameters":{"type":"object","properties":{"input":{"type":"string"}},"required":["input"],"additionalProperties":false}}}"#;

fn with(choice: &str) -> String {
    request(&format!(r#""input":"hi","tools":[{TOOLS}]{choice}"#))
}

#[test]
fn tools_and_choices_are_sent_to_the_engine() {
    let all = [F, C, NS_F, NS_G].join(",");
    let named = |name: &str| format!(r#"{{"type":"function","function":{{"name":"{name}"}}}}"#);
    let allowed = |mode: &str, tools: &str| {
        format!(r#"{{"type":"allowed_tools","mode":"{mode}","tools":[{tools}]}}"#)
    };
    for (choice, tools, written) in [
        (String::new(), all.clone(), String::new()),
        ("\"none\"".to_owned(), all.clone(), "\"none\"".to_owned()),
        ("\"auto\"".to_owned(), all.clone(), "\"auto\"".to_owned()),
        (
            "\"required\"".to_owned(),
            all.clone(),
            "\"required\"".to_owned(),
        ),
        (
            r#"{"type":"function","name":"f"}"#.to_owned(),
            all.clone(),
            named("f"),
        ),
        (
            r#"{"type":"custom","name":"c"}"#.to_owned(),
            all.clone(),
            named("c"),
        ),
        (
            r#"{"type":"function","namespace":"ns","name":"f"}"#.to_owned(),
            all.clone(),
            named("ns__f"),
        ),
        (
            r#"{"type":"custom","name":"ns__g"}"#.to_owned(),
            all,
            named("ns__g"),
        ),
        (
            allowed("auto", r#"{"type":"function","name":"f"}"#),
            F.to_owned(),
            "\"auto\"".to_owned(),
        ),
        (
            allowed(
                "required",
                r#"{"type":"custom","name":"c"},{"type":"web_search"}"#,
            ),
            C.to_owned(),
            "\"required\"".to_owned(),
        ),
        (
            allowed("required", r#"{"type":"namespace","name":"ns"}"#),
            [NS_F, NS_G].join(","),
            "\"required\"".to_owned(),
        ),
    ] {
        let body = with(&if choice.is_empty() {
            String::new()
        } else {
            format!(",\"tool_choice\":{choice}")
        });
        let rest = if written.is_empty() {
            written
        } else {
            format!(",\"tool_choice\":{written}")
        };
        let sent = |engine: &str| sent(engine, "{}", &body, &ChatInputs::default()).unwrap();
        assert_eq!(
            sent("auto"),
            chat(HI, &format!(",\"tools\":[{tools}]{rest}")),
            "{choice}"
        );
        if choice == "\"none\"" {
            assert_eq!(
                sent("vllm"),
                chat(HI, ""),
                "it would have them in its prompt"
            );
        }
    }
    // No allowed tool can be offered, and no call is required.
    let body = with(&format!(
        ",\"tool_choice\":{}",
        allowed("auto", r#"{"type":"mcp","server_label":"s"}"#)
    ));
    assert_eq!(
        sent("vllm", "{}", &body, &ChatInputs::default()).unwrap(),
        chat(HI, "")
    );
}

#[test]
fn left_out_and_named_or_refused() {
    let asked = read(&with("")).unwrap();
    assert_eq!(asked.dropped, ["tools[3].web_search", "tools[4].mcp"]);
    let echo = format!("{:?}", asked.echo());
    assert!(
        !echo.contains("web_search") && !echo.contains("mcp") && echo.contains("namespace"),
        "{echo}"
    );
    let kinds = [
        "web_search",
        "web_search_2025_08_26",
        "web_search_preview",
        "code_interpreter",
        "file_search",
        "computer",
        "computer_use_preview",
        "image_generation",
        "local_shell",
        "shell",
        "apply_patch",
        "tool_search",
        "mcp",
        "programmatic_tool_calling",
        "one_of_tomorrow",
    ];
    for kind in kinds {
        let body = request(&format!(r#""input":"hi","tools":[{{"type":"{kind}"}}]"#));
        assert_eq!(read(&body).unwrap().dropped, [format!("tools[0].{kind}")]);
        assert_eq!(
            sent("auto", "{}", &body, &ChatInputs::default()).unwrap(),
            chat(HI, "")
        );
        let (param, code, _) = refusal(sent(
            "auto",
            r#"{"unsupported_tools":"reject"}"#,
            &body,
            &ChatInputs::default(),
        ));
        assert_eq!(
            (param.as_deref(), code.as_deref()),
            (Some("tools[0].type"), Some("unsupported_value"))
        );
    }
    let body = request(
        r#""input":"hi","tools":[{"type":"namespace","name":"n","tools":[{"type":"mcp"}]}]"#,
    );
    assert_eq!(read(&body).unwrap().dropped, ["tools[0].tools[0].mcp"]);
}

/// A tool choice that needs a tool which is left out.
#[test]
fn choices_that_cannot_be_met() {
    let only = r#""input":"hi","tools":[{"type":"web_search"},{"type":"mcp"}]"#;
    for (body, param, message) in [
        (
            with(r#","tool_choice":{"type":"web_search"}"#),
            "tools[3].type",
            "Unsupported value for 'tools[3].type': the engine does not serve tools of type web_search.",
        ),
        (
            with(r#","tool_choice":{"type":"mcp","server_label":"s"}"#),
            "tools[4].type",
            "Unsupported value for 'tools[4].type': the engine does not serve tools of type mcp.",
        ),
        (
            request(&format!(r#"{only},"tool_choice":"required""#)),
            "tools[0].type",
            "Unsupported value for 'tools[0].type': the engine does not serve tools of type web_search.",
        ),
        (
            with(
                r#","tool_choice":{"type":"allowed_tools","mode":"required","tools":[{"type":"mcp"}]}"#,
            ),
            "tools[4].type",
            "Unsupported value for 'tools[4].type': the engine does not serve tools of type mcp.",
        ),
    ] {
        let expected = (
            Some(param.to_owned()),
            Some("unsupported_value".to_owned()),
            message.to_owned(),
        );
        assert_eq!(refusal(read(&body)), expected, "{body}");
    }
}

#[test]
fn grammars_are_told() {
    let body = request(
        r#""input":"hi","tools":[{"type":"custom","name":"c","format":{"type":"grammar","syntax":"lark","definition":"start: \"a\"\n"}}]"#,
    );
    let tool = r#"{"type":"function","function":{"name":"c","parameters":{"type":"object","properties":{"input":{"type":"string","description":"It must match this grammar (lark):\nstart: \"a\"\n"}},"required":["input"],"additionalProperties":false}}}"#;
    let sent = sent("auto", "{}", &body, &ChatInputs::default()).unwrap();
    assert_eq!(sent, chat(HI, &format!(",\"tools\":[{tool}]")));
}

fn called(namespace: Option<&str>, name: &str, kind: ToolKind) -> CalledTool {
    CalledTool {
        namespace: namespace.map(str::to_owned),
        name: name.to_owned(),
        kind,
    }
}

#[test]
fn called_names_lead_to_the_declared_tools() {
    let tools = read(&with("")).unwrap().tools;
    for (wire, expected) in [
        ("f", called(None, "f", ToolKind::Function)),
        ("c", called(None, "c", ToolKind::Custom)),
        ("ns__f", called(Some("ns"), "f", ToolKind::Function)),
        ("ns__g", called(Some("ns"), "g", ToolKind::Custom)),
        ("made up", called(None, "made up", ToolKind::Function)),
    ] {
        assert_eq!(tools.called(wire), expected);
    }
    assert_eq!(
        tools.iter().map(|(wire, _)| wire).collect::<Vec<_>>(),
        ["f", "c", "ns__f", "ns__g"]
    );
    assert_eq!(tools.forced(), None);
    let forced = read(&with(
        r#","tool_choice":{"type":"function","namespace":"ns","name":"f"}"#,
    ))
    .unwrap();
    assert_eq!(forced.tools.forced(), Some("ns__f"));
}

/// Names that are too long or already taken get a hash, always the same one.
#[test]
fn long_or_taken_names_get_a_stable_hash() {
    let long = "é".repeat(70);
    let body = request(&format!(
        r#""input":"hi","tools":[{{"type":"namespace","name":"a","tools":[{{"type":"function","name":"{long}"}},{{"type":"function","name":"b__c"}}]}},
        {{"type":"namespace","name":"a__b","tools":[{{"type":"function","name":"c"}}]}},{{"type":"function","name":"a__b__c"}}]"#
    ));
    let tools = read(&body).unwrap().tools;
    let wires: Vec<_> = tools.iter().map(|(wire, _)| wire.to_owned()).collect();
    assert_eq!(wires[0].chars().count(), 64);
    assert!(wires[0].starts_with("a__é"), "{wires:?}");
    assert_eq!(wires[3], "a__b__c", "outside namespaces names stay");
    let mut apart = wires.clone();
    apart.sort();
    apart.dedup();
    assert_eq!(apart.len(), 4, "{wires:?}");
    for (wire, called) in tools.iter() {
        assert_eq!(tools.called(wire), *called);
    }
    assert_eq!(
        tools.called(&wires[2]),
        called(Some("a__b"), "c", ToolKind::Function)
    );
    assert!(
        read(&body)
            .unwrap()
            .tools
            .iter()
            .map(|(wire, _)| wire)
            .eq(wires.iter())
    );
    // Calls of earlier turns have the same names, whether or not the tool is offered again.
    let call = format!(
        r#"{{"type":"function_call","namespace":"a","name":"{long}","call_id":"c","arguments":"{{}}"}}"#
    );
    let sent = sent(
        "auto",
        "{}",
        &request(&format!(r#""input":[{call}]"#)),
        &ChatInputs::default(),
    )
    .unwrap();
    assert!(
        sent.contains(&format!(r#""function":{{"name":"{}""#, wires[0])),
        "{sent}"
    );
}

/// Tools declared in the input, as newer clients send them, and those of earlier turns.
#[test]
fn tools_declared_in_input_items_are_offered() {
    let more = r#"{"type":"additional_tools","role":"developer","tools":[{"type":"custom","name":"c"},{"type":"web_search"}]}"#;
    let earlier = r#"{"type":"additional_tools","id":"at_1","role":"developer","tools":[{"type":"namespace","name":"ns","tools":[{"type":"function","name":"f"}]},{"type":"function","name":"f","description":"old"},{"type":"mcp","server_label":"s"}]}"#;
    let body = request(&format!(
        r#""tools":[{{"type":"function","name":"f","description":"d\u0041","strict":false,"parameters":{{ "b":1, "a":[] }}}}],"input":[{more},{{"role":"user","content":"hi"}}],"tool_choice":{{"type":"custom","name":"c"}}"#
    ));
    let mut asked = read(&body).unwrap();
    assert_eq!(asked.dropped, ["input[0].tools[1].web_search"]);
    assert!(asked.ignored.is_empty());
    asked.add_earlier_tools([earlier, HI].into_iter()).unwrap();
    let takes = samewire::engine::named("vllm").unwrap().takes;
    let sent = asked
        .chat(&ChatInputs::default(), &takes, &super::options("{}"))
        .unwrap();
    let choice = r#"{"type":"function","function":{"name":"c"}}"#;
    let expected = chat(
        HI,
        &format!(",\"tools\":[{F},{C},{NS_F}],\"tool_choice\":{choice}"),
    );
    assert_eq!(std::str::from_utf8(&sent).unwrap(), expected);
    assert_eq!(asked.tools.called("ns__f").namespace.as_deref(), Some("ns"));
    assert_eq!(asked.tools.called("c").kind, ToolKind::Custom);
    for (item, param) in [
        (
            r#"{"type":"additional_tools","role":"developer"}"#,
            "input[0].tools",
        ),
        (
            r#"{"type":"additional_tools","tools":[{"type":"function"}]}"#,
            "input[0].tools[0].name",
        ),
        (
            r#"{"type":"additional_tools","tools":[{"name":"f"}]}"#,
            "input[0].tools[0].type",
        ),
    ] {
        let body = request(&format!(
            r#""input":[{item},{{"role":"user","content":"hi"}}]"#
        ));
        assert_eq!(refusal(read(&body)).0.as_deref(), Some(param), "{item}");
    }
}
