//! `samewire diff` as users run it: the built binary over recorded exchanges and over broken ones.

use crate::folder::Folder;
use serde_json::Value;
use std::process::Command;

/// Result of a run: exit code, stdout, stderr.
type Ran = (i32, String, String);

fn diff(arguments: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_samewire"));
    command
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .arg("diff")
        .args(arguments)
        .env("COLUMNS", "120");
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

fn json(arguments: &[&str]) -> (i32, Value) {
    let (code, output, errors) = diff(&[arguments, &["--json"]].concat());
    assert_eq!(errors, "");
    (code, serde_json::from_str(&output).unwrap())
}

/// Returns the differences in shape of the only pair, as `kind path: a | b`.
fn shape(result: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let of = |one: &Value| {
        format!(
            "{} {}: {} | {}",
            text(&one["kind"]),
            text(&one["path"]),
            text(&one["a"]),
            text(&one["b"])
        )
    };
    result["pairs"][0]["shape"]
        .as_array()
        .unwrap()
        .iter()
        .map(of)
        .collect()
}

#[test]
fn two_engines_differ_in_these_fields() {
    let (code, result) = json(&["fixtures/vllm/text", "fixtures/sglang/text"]);
    assert_eq!(code, 1);
    assert_eq!(result["same_shape"], false);
    assert_eq!(
        shape(&result),
        [
            "null choices[].delta.reasoning_content: missing | null",
            "null choices[].matched_stop: missing | null",
            "null prompt_text: null | missing",
            "null prompt_token_ids: null | missing",
            "field choices[].delta.tool_calls: [] | missing",
            "null choices[].token_ids: null | missing",
            "field choices[].matched_stop: missing | number",
            "null choices[].stop_reason: null | missing",
            "field system_fingerprint: string | missing",
        ]
    );
    let tokens = &result["pairs"][0]["shape"][5];
    assert_eq!(
        tokens["frames_a"],
        serde_json::json!({"count": 7, "first": 2})
    );
    assert_eq!(
        tokens["frames_b"],
        serde_json::json!({"count": 9, "first": 2})
    );
}

#[test]
fn a_merged_finish_is_told_as_such() {
    let (code, result) = json(&[
        "fixtures/vllm/gptoss-published",
        "fixtures/sglang/gptoss-published",
    ]);
    assert_eq!(code, 1);
    let found = shape(&result);
    assert_eq!(
        found[0],
        "together finish_reason + reasoning: together | apart"
    );
    assert!(
        found.contains(&"name choices[].delta.reasoning: reasoning | reasoning_content".to_owned())
    );
    assert!(
        found.contains(&"changes created: constant | 2 values".to_owned()),
        "{found:?}"
    );
}

#[test]
fn the_document_shows_the_real_output() {
    let document = std::fs::read_to_string("docs/troubleshoot.md").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_samewire"));
    command
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("COLUMNS", "100");
    let arguments = [
        "diff",
        "fixtures/vllm/gptoss-published",
        "fixtures/sglang/gptoss-published",
    ];
    let output = String::from_utf8(command.args(arguments).output().unwrap().stdout).unwrap();
    assert!(document.contains(&format!("samewire {}\n", arguments.join(" "))));
    assert!(
        document.contains(&format!("```text\n{output}```\n")),
        "{output}"
    );
}

#[test]
fn canonical_answers_of_two_engines_have_one_shape() {
    for scenario in ["text", "same-answer-tool", "reasoning-usage"] {
        let [a, b] =
            ["vllm", "sglang"].map(|engine| format!("fixtures/{engine}/{scenario}/chat.sse"));
        let (code, result) = json(&[&a, &b]);
        assert_eq!((code, shape(&result)), (0, Vec::new()), "{scenario}");
        let words = result["pairs"][0]["words"].as_array().unwrap();
        assert!(
            words.iter().any(|word| word["path"] == "created"),
            "the words differ: {scenario}"
        );
    }
}

#[test]
fn every_recording_has_the_shape_of_itself() {
    for engine in [
        "vllm",
        "sglang",
        "llamacpp",
        "lmdeploy",
        "transformers",
        "described",
    ] {
        let folder = format!("fixtures/{engine}");
        let (code, result) = json(&[&folder, &folder]);
        let pairs = result["pairs"].as_array().unwrap();
        assert_eq!(code, 0, "{engine}");
        assert!(
            pairs.len() > 2
                && pairs
                    .iter()
                    .all(|pair| pair["words"] == serde_json::json!([])),
            "{engine}"
        );
    }
}

#[test]
fn folders_are_paired_by_name() {
    let (code, result) = json(&["fixtures/vllm", "fixtures/sglang"]);
    assert_eq!(code, 1);
    let pairs = result["pairs"].as_array().unwrap();
    assert!(pairs.iter().any(|pair| pair["name"] == "text"));
    let has = |side: &str, name: &str| {
        result[side]
            .as_array()
            .unwrap()
            .iter()
            .any(|one| one == name)
    };
    assert!(has("only_a", "stop-string") && has("only_b", "abort") && !has("only_a", "text"));
    let (_, text, _) = diff(&["fixtures/vllm", "fixtures/sglang"]);
    assert!(
        text.contains("only in A")
            && text.contains(&format!("of {} have the same shape", pairs.len())),
        "{text}"
    );
}

#[test]
fn words_are_shown_on_request() {
    let files = [
        "fixtures/vllm/text/chat.sse",
        "fixtures/sglang/text/chat.sse",
    ];
    let (code, text, _) = diff(&files);
    assert_eq!(code, 0);
    assert!(
        text.contains("words differ, too: text, ids, times, model") && !text.contains("Hello"),
        "{text}"
    );
    let (_, text, _) = diff(&[&files[..], &["--words"]].concat());
    assert!(
        text.contains("The answer is 4.") && text.contains("Hello! Two plus two is four."),
        "{text}"
    );
    let (_, result) = json(&files);
    assert!(result["pairs"][0]["words"][0].get("a").is_none());
    let (_, result) = json(&[&files[..], &["--words"]].concat());
    assert_eq!(result["pairs"][0]["words"][0]["a"], "The answer is 4.");
}

#[test]
fn output_fits_the_terminal_and_steers_it_nowhere() {
    let folder = Folder::new();
    let event = |field: &str| {
        format!("data: {{\"type\":\"\\u001b[2J\\u202eevil\",\"{field}\":\"\\u0007\\u200f\"}}\n\n")
    };
    let (a, b) = (
        folder.file("a.sse", &event("\\u001b]0;x")),
        folder.file("b.sse", &event("b")),
    );
    for arguments in [
        &[&a, &b, "--words"][..],
        &[
            "fixtures/vllm/same-answer-tool",
            "fixtures/sglang/same-answer-tool",
        ],
    ] {
        for width in [40, 80] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_samewire"));
            command
                .current_dir(env!("CARGO_MANIFEST_DIR"))
                .arg("diff")
                .args(arguments);
            let output = command.env("COLUMNS", width.to_string()).output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            let is_steering = |letter: char| {
                letter != '\n' && letter.is_control() || "\u{202e}\u{200f}".contains(letter)
            };
            assert!(!text.contains(is_steering), "{text:?}");
            let table = text.lines().filter(|line| line.starts_with("  "));
            for line in table.filter(|line| !line.contains("words differ")) {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
        }
    }
}

/// A folder may be somebody else's: a link in it leads to no file of this machine.
#[test]
fn links_out_of_a_folder_are_not_followed() {
    let folder = Folder::new();
    let request = "{\"path\": \"/v1/chat/completions\"}";
    folder.file("good/request.json", request);
    folder.file("good/upstream.txt", "a");
    folder.file("elsewhere/secret", "CANARY");
    folder.file("within/request.json", request);
    folder.file("within/data", "a");
    std::os::unix::fs::symlink("data", folder.path("within/upstream.txt")).unwrap();
    folder.file("file/request.json", request);
    std::os::unix::fs::symlink("../elsewhere/secret", folder.path("file/upstream.txt")).unwrap();
    std::fs::create_dir(folder.path("above")).unwrap();
    std::os::unix::fs::symlink("../good", folder.path("above/scenario")).unwrap();
    let at = |name: &str| folder.path(name).display().to_string();
    assert_eq!(diff(&[&at("good"), &at("within")]).0, 0);
    // Links that form a cycle lead nowhere.
    folder.file("cycle/a/request.json", request);
    folder.file("cycle/a/upstream.txt", "a");
    for name in ["x", "y", "z"] {
        std::os::unix::fs::symlink(".", folder.path(&format!("cycle/{name}"))).unwrap();
    }
    assert_eq!(diff(&[&at("cycle"), &at("cycle")]).0, 0);
    for (one, other) in [("file", "good"), ("above", "above")] {
        let (code, output, errors) = diff(&[&at(one), &at(other)]);
        assert_eq!((code, output.as_str()), (2, ""), "{one}");
        assert!(
            errors.contains("leads out of the folder") && !errors.contains("CANARY"),
            "{errors}"
        );
    }
}

#[test]
fn broken_captures_are_named_with_their_line() {
    let folder = Folder::new();
    let whole = std::fs::read_to_string("fixtures/vllm/text/upstream.sse").unwrap();
    let request = "{\"path\": \"/v1/chat/completions\"}";
    let at = |name: &str| folder.path(name).display().to_string();
    let good = folder.file("good/upstream.sse", &whole);
    folder.file("good/request.json", request);
    let cut = &whole[..whole.find("answer").unwrap()];
    for (name, files, expected) in [
        (
            "cut",
            &[("upstream.sse", cut)][..],
            "upstream.sse: line 5: the JSON ends in the middle, so it was cut",
        ),
        (
            "edited",
            &[("upstream.sse", &whole.replacen("data: ", "dta: ", 1))],
            "upstream.sse: line 1: \"dta: ",
        ),
        (
            "comma",
            &[("upstream.json", "{\n \"a\": 1,\n}\n")],
            "upstream.json: line 3: it is not JSON",
        ),
        (
            "head",
            &[
                ("upstream.sse", &whole),
                ("upstream.http", "HTTP/1.1 200 OK\nnonsense\n"),
            ],
            "upstream.http: line 2: ",
        ),
        (
            "request",
            &[
                ("upstream.sse", &whole),
                ("request.json", "{\n\"path\" \"/\"}"),
            ],
            "request.json: it is not a JSON object (line 2",
        ),
        (
            "member",
            &[
                ("upstream.sse", &whole),
                ("request.json", "{\n\"path\": \"/\",\n\"bdy\": {}}"),
            ],
            "request.json: line 3: bdy: unknown; is body meant?",
        ),
        (
            "timing",
            &[
                ("upstream.sse", &whole),
                ("timing.txt", "1.0 1\n2.0 100000\n"),
            ],
            "and the reads in timing.txt have 100001 together: it was cut",
        ),
        ("answer", &[], "the engine's answer is missing"),
    ] {
        folder.file(&format!("{name}/request.json"), request);
        for (file, text) in files {
            folder.file(&format!("{name}/{file}"), text);
        }
        let (code, output, errors) = diff(&[&at("good"), &at(name)]);
        assert_eq!((code, output.as_str()), (2, ""), "{name}: {errors}");
        assert!(errors.contains(expected), "{name}: {errors}");
    }
    // A connection that broke may leave half an event.
    folder.file("cut/eof", "reset");
    let (code, result) = json(&[&at("good"), &at("cut")]);
    assert_eq!(code, 1);
    assert_eq!(shape(&result)[0], "end end: complete | connection broken");
    let cut = folder.file("cut.sse", cut);
    let (code, _, errors) = diff(&[&good, &cut]);
    assert!(
        code == 2 && errors.contains("cut.sse: line 5: "),
        "{errors}"
    );
}

#[test]
fn wrong_paths_are_wrong_usage() {
    let text = "fixtures/vllm/text";
    for (a, b, expected) in [
        (
            text,
            "fixtures/vllm/text/upstream.sse",
            "both must be of one kind",
        ),
        (text, "fixtures/vllm", "both must be of one kind"),
        (text, "fixtures/nowhere", "fixtures/nowhere: No such file"),
        (
            "README.md",
            "README.md",
            "a body must be a file named .sse, .json or .txt",
        ),
        (
            "fixtures/vllm",
            "fixtures/described",
            "no exchange of the same name",
        ),
        ("src", "src", "no scenario is there"),
    ] {
        let (code, output, errors) = diff(&[a, b]);
        assert_eq!((code, output.as_str()), (2, ""), "{a} {b}: {errors}");
        assert!(errors.contains(expected), "{a} {b}: {errors}");
    }
    assert_eq!(diff(&[text]).0, 2);
}
