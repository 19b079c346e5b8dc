//! Parameters of a Responses request that are checked individually (wire-format 4.2), and their counterparts in
//! the chat request.

use super::Include;
use crate::json::{Text, compacted};
use crate::request::check::{Checked, SAMPLING};
use crate::request::object::{RequestObject, alternatives};
use crate::request::refusals::{invalid, missing};
use crate::wire::fault::Failure;

/// Values that the API defines for `include`.
pub(super) const INCLUDE: &[&str] = &[
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
];

/// Settings parsed from the request, with the chat members that they translate to.
#[derive(Clone, Debug)]
pub struct ResponsesSettings {
    /// Additional output that the client asked for with `include`.
    pub include: Include,
    /// Values of `include` that only an engine can provide.
    pub(super) include_of_engine: Vec<&'static str>,
    /// True if the oldest messages of an overlong conversation may be left out (`truncation: "auto"`).
    pub truncation_auto: bool,
    /// Largest number of calls of tools that run at the service.
    pub max_tool_calls: Option<u64>,
    pub(super) verbosity: Option<String>,
    /// True if the client asks for summaries of the reasoning.
    pub(super) summary: bool,
    /// Members of the chat request that are equal for every engine, as JSON.
    pub(super) members: Vec<(&'static str, String)>,
}

pub(super) fn read(from: &Checked<'_>) -> Result<ResponsesSettings, Failure> {
    let (include, include_of_engine) = include(from)?;
    let mut members = Vec::new();
    sampling(from, include, &mut members)?;
    // Checks parameters that are stored or echoed, and otherwise not used.
    for key in ["service_tier", "prompt_cache_retention"] {
        from.string(key)?;
    }
    from.metadata()?;
    from.string("instructions")?;
    let truncation_auto = match from.string("truncation")?.as_deref() {
        None | Some("disabled") => false,
        Some("auto") => true,
        Some(_) => return Err(invalid("truncation", "it must be auto or disabled")),
    };
    let verbosity = text(from, &mut members)?;
    let mut summary = false;
    if let Some(field) = from.get("reasoning") {
        let reasoning = RequestObject::of("reasoning", field.value)?;
        let word = reasoning.text("summary")?.map(|word| word.decoded());
        summary = matches!(word.as_deref(), Some("auto" | "concise" | "detailed"));
        if let Some(effort) = reasoning
            .text("effort")?
            .and_then(|_| reasoning.compact("effort"))
        {
            members.push(("reasoning_effort", effort));
        }
    }
    from.string("user")?;
    from.string("safety_identifier")?;
    let user = from.get("user").or_else(|| from.get("safety_identifier"));
    members.extend(user.map(|field| ("user", compacted(field.value))));
    Ok(ResponsesSettings {
        include,
        include_of_engine,
        truncation_auto,
        verbosity,
        summary,
        max_tool_calls: from.whole("max_tool_calls", 0..=100_000_000)?,
        members,
    })
}

/// Checks the numeric parameters, and adds those the client set to `members` as written.
fn sampling(
    from: &Checked<'_>,
    include: Include,
    members: &mut Vec<(&'static str, String)>,
) -> Result<(), Failure> {
    from.sampling()?;
    for (key, _) in SAMPLING {
        members.extend(from.get(key).map(|field| (key, compacted(field.value))));
    }
    from.top_logprobs("top_logprobs")?;
    if include.output_text_logprobs {
        members.push(("logprobs", "true".to_owned()));
        members.extend(
            from.get("top_logprobs")
                .map(|field| ("top_logprobs", compacted(field.value))),
        );
    }
    Ok(())
}

fn include(from: &Checked<'_>) -> Result<(Include, Vec<&'static str>), Failure> {
    let (mut include, mut of_engine) = (Include::default(), Vec::new());
    for (at, raw) in from
        .list("include", 100)?
        .unwrap_or_default()
        .into_iter()
        .enumerate()
    {
        let must = || {
            invalid(
                format!("include[{at}]"),
                &format!("it must be {}", alternatives(INCLUDE)),
            )
        };
        let word = Text::of(raw).ok_or_else(must)?.decoded();
        let known = INCLUDE
            .iter()
            .find(|known| **known == word)
            .ok_or_else(must)?;
        include.as_chat_request(known);
        let own = matches!(
            *known,
            "reasoning.encrypted_content" | "message.input_image.image_url"
        );
        if !own && !of_engine.contains(known) {
            of_engine.push(*known);
        }
    }
    Ok((include, of_engine))
}

/// Parses `text`: adds the format to `members` as `response_format`, and returns the verbosity.
fn text(
    from: &Checked<'_>,
    members: &mut Vec<(&'static str, String)>,
) -> Result<Option<String>, Failure> {
    let Some(field) = from.get("text") else {
        return Ok(None);
    };
    let text = RequestObject::of("text", field.value)?;
    if let Some(format) = text.object("format")? {
        match format
            .word("type", &["text", "json_object", "json_schema"])?
            .as_deref()
        {
            Some("json_object") => {
                members.push(("response_format", r#"{"type":"json_object"}"#.to_owned()))
            }
            Some("json_schema") => members.push(("response_format", schema(&format)?)),
            Some(_) => {}
            None => return Err(missing(&format.path("type"))),
        }
    }
    let verbosity = text.word("verbosity", &["low", "medium", "high"])?;
    Ok(verbosity.map(std::borrow::Cow::into_owned))
}

/// Returns `response_format` for a JSON schema, which stays byte for byte. Fails without a name or a schema.
fn schema(format: &RequestObject<'_>) -> Result<String, Failure> {
    format.required_name("name")?;
    format.required("schema")?;
    format.text("description")?;
    let mut json = r#"{"type":"json_schema","json_schema":{"#.to_owned();
    let all = [
        ("name", format.compact("name")),
        (
            "schema",
            format.carried("schema")?.map(|raw| raw.get().to_owned()),
        ),
        (
            "strict",
            format.flag("strict")?.map(|raw| raw.get().to_owned()),
        ),
        ("description", format.compact("description")),
    ];
    for (at, (key, value)) in all
        .into_iter()
        .filter_map(|(key, value)| Some((key, value?)))
        .enumerate()
    {
        json.push_str(&format!(
            "{}\"{key}\":{value}",
            if at > 0 { "," } else { "" }
        ));
    }
    json.push_str("}}");
    Ok(json)
}

/// Returns the conversation's id, given as a string or in an object.
pub(super) fn conversation(from: &Checked<'_>) -> Result<Option<String>, Failure> {
    let Some(field) = from.get("conversation") else {
        return Ok(None);
    };
    let id = match Text::of(field.value) {
        Some(id) if id.is_empty() => return Err(invalid("conversation", "it must not be empty")),
        Some(id) => id,
        None if field.value.get().starts_with('{') => {
            RequestObject::of("conversation", field.value)?.required_name("id")?
        }
        None => {
            return Err(invalid(
                "conversation",
                "it must be a string or an object with an id",
            ));
        }
    };
    Ok(Some(id.decoded().into_owned()))
}
