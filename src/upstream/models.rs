//! List of models: the parser for engines' lists, and the writers for clients.

use crate::json::{
    self, Members, Raw, Text, integer, object, separated, write_number, write_string,
};
use bytes::BytesMut;
use std::borrow::Cow;
use std::time::{Duration, UNIX_EPOCH};

/// Model that an engine lists under `/v1/models`, with those of its fields that clients use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedModel {
    /// Name of the model in requests.
    pub id: String,
    /// Creation time in Unix seconds; engines give the time of the request instead.
    pub created: u64,
    /// Value of `owned_by`: most engines name themselves.
    pub owner: Option<String>,
    /// Path or name of the weights, as vLLM and SGLang report it.
    pub root: Option<String>,
    /// Base model, if this model is an adapter.
    pub parent: Option<String>,
    /// Limit for the tokens of a prompt and its answer, as vLLM and SGLang report it.
    pub max_model_len: Option<u64>,
    /// Context length in tokens, under the name that clients read: from the configuration, else `context_length` of the
    /// list, else `max_model_len`, else from other fields.
    pub context_length: Option<u64>,
}

/// Last second of the year 9999, the last one that RFC 3339 can express.
const LATEST: u64 = 253_402_300_799;

impl ListedModel {
    /// Appends the model as Anthropic's API writes it. Unknown limits are null.
    pub fn write_info(&self, out: &mut BytesMut) {
        out.extend_from_slice(b"{\"type\":\"model\",\"id\":");
        write_string(&self.id, out);
        out.extend_from_slice(b",\"display_name\":");
        write_string(&self.id, out);
        out.extend_from_slice(b",\"created_at\":");
        write_string(&rfc3339(self.created), out);
        for key in ["max_input_tokens", "max_tokens"] {
            out.extend_from_slice(format!(",\"{key}\":").as_bytes());
            match self.context_length {
                Some(tokens) => write_number(tokens, out),
                None => out.extend_from_slice(b"null"),
            }
        }
        out.extend_from_slice(b",\"capabilities\":null,\"lifecycle\":\"active\",\"line\":null,\"deprecated_at\":null,\"retires_at\":null}");
    }

    /// Appends the model as JSON: the fields of the official API, followed by those that only engines have.
    pub fn write(&self, out: &mut BytesMut) {
        out.extend_from_slice(b"{\"id\":");
        write_string(&self.id, out);
        out.extend_from_slice(b",\"object\":\"model\",\"created\":");
        write_number(self.created, out);
        out.extend_from_slice(b",\"owned_by\":");
        write_string(self.owner.as_deref().unwrap_or("engine"), out);
        if let Some(root) = &self.root {
            out.extend_from_slice(b",\"root\":");
            write_string(root, out);
        }
        // A null parent beside a root says that the model is no adapter.
        match &self.parent {
            Some(parent) => {
                out.extend_from_slice(b",\"parent\":");
                write_string(parent, out);
            }
            None if self.root.is_some() => out.extend_from_slice(b",\"parent\":null"),
            None => {}
        }
        for (key, number) in [
            ("max_model_len", self.max_model_len),
            ("context_length", self.context_length),
        ] {
            let Some(number) = number else { continue };
            out.extend_from_slice(format!(",\"{key}\":").as_bytes());
            write_number(number, out);
        }
        out.extend_from_slice(b"}");
    }
}

/// Returns for each model of an engine's list whether a request without a model can mean it (wire-format 2.10).
/// Adapters and further names of the same weights do not count: for the latter, engines use the first name.
pub fn are_main(models: &[&ListedModel]) -> Vec<bool> {
    let is_first = |at: usize, model: &ListedModel| {
        let before = models.get(..at).unwrap_or_default();
        model.root.is_none()
            || before
                .iter()
                .all(|other| other.root != model.root || other.parent.is_some())
    };
    models
        .iter()
        .enumerate()
        .map(|(at, model)| model.parent.is_none() && is_first(at, model))
        .collect()
}

/// Appends the list of models as the official API writes it.
pub fn write(models: &[ListedModel], out: &mut BytesMut) {
    out.extend_from_slice(b"{\"object\":\"list\",\"data\":[");
    separated(models, out, ListedModel::write);
    out.extend_from_slice(b"]}");
}

/// Page of the list of models that a client of Anthropic's API requests.
#[derive(Clone, Debug)]
pub struct ModelPage<'a> {
    /// Maximum number of models.
    pub limit: usize,
    /// Id of the model before the first of the page.
    pub after: Option<Cow<'a, str>>,
    /// Id of the model after the last of the page.
    pub before: Option<Cow<'a, str>>,
}

/// Appends a page of the list as Anthropic's API writes it.
pub fn write_page(models: &[ListedModel], page: &ModelPage<'_>, out: &mut BytesMut) {
    let place = |id: &str| models.iter().position(|model| model.id == id);
    let start = page.after.as_deref().and_then(place).map_or(0, |at| at + 1);
    let end = page
        .before
        .as_deref()
        .and_then(place)
        .unwrap_or(models.len())
        .max(start);
    let range = models.get(start..end).unwrap_or_default();
    // A page that is requested by its end has the models directly before that.
    let skipped = if page.before.is_some() {
        range.len().saturating_sub(page.limit)
    } else {
        0
    };
    let shown: Vec<_> = range.iter().skip(skipped).take(page.limit).collect();
    out.extend_from_slice(b"{\"data\":[");
    separated(&shown, out, |model, out| model.write_info(out));
    out.extend_from_slice(b"],\"has_more\":");
    out.extend_from_slice(if shown.len() < range.len() {
        b"true"
    } else {
        b"false"
    });
    for (key, model) in [
        (",\"first_id\":", shown.first()),
        (",\"last_id\":", shown.last()),
    ] {
        out.extend_from_slice(key.as_bytes());
        match model {
            Some(model) => write_string(&model.id, out),
            None => out.extend_from_slice(b"null"),
        }
    }
    out.extend_from_slice(b"}");
}

/// Returns a time in Unix seconds as RFC 3339 in UTC.
fn rfc3339(seconds: u64) -> String {
    let time = UNIX_EPOCH + Duration::from_secs(seconds.min(LATEST));
    humantime::format_rfc3339_seconds(time).to_string()
}

/// Appends the list, and under `models` the catalogue that the Codex CLI reads (0.169: every member below is needed
/// but `context_window`; without `apply_patch_tool_type` it has no tool for edits). `instructions`: base instructions
/// that Codex gives the model in place of its own.
pub fn write_catalogue(models: &[ListedModel], instructions: &str, out: &mut BytesMut) {
    write(models, out);
    out.truncate(out.len() - 1);
    out.extend_from_slice(b",\"models\":[");
    for (n, model) in models.iter().enumerate() {
        out.extend_from_slice(if n > 0 { b",{\"slug\":" } else { b"{\"slug\":" });
        write_string(&model.id, out);
        out.extend_from_slice(b",\"display_name\":");
        write_string(&model.id, out);
        out.extend_from_slice(
            b",\"supported_reasoning_levels\":[],\"shell_type\":\"default\",\"visibility\":\"list\"",
        );
        out.extend_from_slice(b",\"supported_in_api\":true,\"priority\":");
        write_number(n as u64, out);
        out.extend_from_slice(b",\"base_instructions\":");
        write_string(instructions, out);
        out.extend_from_slice(
            b",\"apply_patch_tool_type\":\"freeform\",\"supports_search_tool\":true,\"support_verbosity\":false,\"truncation_policy\":{\"mode\":\"bytes\",\"limit\":10000}",
        );
        out.extend_from_slice(b",\"experimental_supported_tools\":[]");
        if let Some(tokens) = model.context_length {
            out.extend_from_slice(b",\"context_window\":");
            write_number(tokens, out);
        }
        out.extend_from_slice(b"}");
    }
    out.extend_from_slice(b"]}");
}

/// Reads a list of models; `None` if the body is no such list. Entries without an `id` are left out.
pub fn read(body: &[u8]) -> Option<Vec<ListedModel>> {
    let list: ModelList<'_> = json::read(std::str::from_utf8(body).ok()?).ok()?;
    let entries: Vec<Raw<'_>> = json::read(list.data?.get()).ok()?;
    Some(entries.into_iter().filter_map(model).collect())
}

fn model(entry: Raw<'_>) -> Option<ListedModel> {
    let entry: ModelEntry<'_> = json::read(entry.get()).ok()?;
    let text = |raw: Option<Raw<'_>>| {
        raw.and_then(Text::of)
            .map(|text| text.decoded().into_owned())
    };
    let max_model_len = entry
        .max_model_len
        .and_then(integer)
        .filter(|tokens| *tokens > 0);
    Some(ListedModel {
        id: Text::of(entry.id?)?.decoded().into_owned(),
        created: entry.created.and_then(integer).unwrap_or(0),
        owner: text(entry.owned_by),
        root: text(entry.root),
        parent: text(entry.parent),
        max_model_len,
        // First what another samewire says: its operator may have set another length than the engine's.
        context_length: context(&[entry.context_length])
            .or(max_model_len)
            .or_else(|| context(&[entry.context_window]))
            .or_else(|| context_of_meta(entry.meta?)),
    })
}

/// Returns the first positive number of tokens among several fields.
fn context(all: &[Option<Raw<'_>>]) -> Option<u64> {
    all.iter()
        .flatten()
        .find_map(|raw| integer(*raw).filter(|tokens| *tokens > 0))
}

/// Returns the context length of llama.cpp: `n_ctx` as it runs, else `n_ctx_train` as it was trained (engines
/// G.1).
fn context_of_meta(meta: Raw<'_>) -> Option<u64> {
    let meta = Members::of(meta.get())?;
    context(&[meta.get("n_ctx"), meta.get("n_ctx_train")])
}

object! {
    struct ModelList<'a> {
        data: Raw<'a> = "data",
    }
}

object! {
    struct ModelEntry<'a> {
        id: Raw<'a> = "id",
        created: Raw<'a> = "created",
        owned_by: Raw<'a> = "owned_by",
        root: Raw<'a> = "root",
        parent: Raw<'a> = "parent",
        max_model_len: Raw<'a> = "max_model_len",
        context_length: Raw<'a> = "context_length",
        context_window: Raw<'a> = "context_window",
        meta: Raw<'a> = "meta",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn main_of(list: &str) -> Vec<String> {
        let models = read(list.as_bytes()).unwrap();
        let all: Vec<_> = models.iter().collect();
        let main = all
            .iter()
            .zip(are_main(&all))
            .filter(|(_, is_main)| *is_main);
        main.map(|(model, _)| model.id.clone()).collect()
    }

    #[test]
    fn adapters_and_further_names_are_not_meant() {
        let list = r#"{"data":[{"id":"a","root":"/weights","parent":null},{"id":"b","root":"/weights","parent":null},
            {"id":"lora","root":"/lora","parent":"a"}]}"#;
        assert_eq!(main_of(list), ["a"]);
        assert_eq!(main_of(r#"{"data":[{"id":"a"},{"id":"b"}]}"#), ["a", "b"]);
        assert_eq!(
            main_of(r#"{"data":[{"id":"a","root":"a"},{"id":"b","root":"b"}]}"#),
            ["a", "b"]
        );
    }

    #[test]
    fn what_engines_tell_of_a_model_is_kept() {
        for (entry, written) in [
            (
                r#"{"id":"a","created":1,"owned_by":"vllm","root":"/w","parent":null,"max_model_len":2048,"permission":[]}"#,
                r#"{"id":"a","object":"model","created":1,"owned_by":"vllm","root":"/w","parent":null,"max_model_len":2048,"context_length":2048}"#,
            ),
            (
                r#"{"id":"a","created":1,"owned_by":"vllm","root":"/l","parent":"b"}"#,
                r#"{"id":"a","object":"model","created":1,"owned_by":"vllm","root":"/l","parent":"b"}"#,
            ),
            (
                r#"{"id":"a","created":1,"owned_by":"llamacpp","meta":{"n_ctx_train":4096}}"#,
                r#"{"id":"a","object":"model","created":1,"owned_by":"llamacpp","context_length":4096}"#,
            ),
            // Another samewire's list, whose operator has set the length.
            (
                r#"{"id":"a","max_model_len":4096,"context_length":8192}"#,
                r#"{"id":"a","object":"model","created":0,"owned_by":"engine","max_model_len":4096,"context_length":8192}"#,
            ),
            // A length of zero says nothing.
            (
                r#"{"id":"a","max_model_len":0,"context_length":0,"context_window":8}"#,
                r#"{"id":"a","object":"model","created":0,"owned_by":"engine","context_length":8}"#,
            ),
            (
                r#"{"id":"a","meta":{"n_ctx":0,"n_ctx_train":4096}}"#,
                r#"{"id":"a","object":"model","created":0,"owned_by":"engine","context_length":4096}"#,
            ),
            (
                r#"{"id":"a"}"#,
                r#"{"id":"a","object":"model","created":0,"owned_by":"engine"}"#,
            ),
        ] {
            let models = read(format!(r#"{{"data":[{entry}]}}"#).as_bytes()).unwrap();
            let mut out = BytesMut::new();
            models[0].write(&mut out);
            assert_eq!(std::str::from_utf8(&out).unwrap(), written);
        }
    }

    fn named(ids: &[&str]) -> Vec<ListedModel> {
        ids.iter()
            .map(|id| ListedModel {
                id: (*id).to_owned(),
                ..ListedModel::default()
            })
            .collect()
    }

    /// Checks which models a page of `a` to `d` has, and whether it says that there are more.
    #[test]
    fn pages_begin_and_end_where_they_are_asked_to() {
        for (after, before, limit, ids, has_more) in [
            (None, None, 4, "abcd", false),
            (None, None, 3, "abc", true),
            (Some("b"), None, 4, "cd", false),
            (Some("b"), None, 1, "c", true),
            (None, Some("c"), 4, "ab", false),
            (None, Some("d"), 2, "bc", true),
            (Some("a"), Some("d"), 4, "bc", false),
            (Some("d"), None, 4, "", false),
            (Some("c"), Some("b"), 4, "", false),
            (Some("x"), Some("x"), 4, "abcd", false),
        ] {
            let models: Vec<_> = ids
                .chars()
                .map(|id| ListedModel {
                    id: id.into(),
                    ..ListedModel::default()
                })
                .collect();
            let info = |model: &ListedModel| {
                let mut out = BytesMut::new();
                model.write_info(&mut out);
                String::from_utf8(out.to_vec()).unwrap()
            };
            let data = models.iter().map(info).collect::<Vec<_>>().join(",");
            let end = |model: Option<&ListedModel>| {
                model.map_or_else(|| "null".to_owned(), |model| format!("\"{}\"", model.id))
            };
            let (first, last) = (end(models.first()), end(models.last()));
            let expected = format!(
                r#"{{"data":[{data}],"has_more":{has_more},"first_id":{first},"last_id":{last}}}"#
            );
            let mut page = BytesMut::new();
            let (after, before) = (after.map(Into::into), before.map(Into::into));
            write_page(
                &named(&["a", "b", "c", "d"]),
                &ModelPage {
                    limit,
                    after,
                    before,
                },
                &mut page,
            );
            assert_eq!(page, expected, "{limit}");
        }
    }

    #[test]
    fn a_model_has_a_time_and_lengths_in_both_apis() {
        let info = |created: u64, context_length: Option<u64>| {
            let mut out = BytesMut::new();
            let model = ListedModel {
                created,
                context_length,
                ..named(&["a\"b"]).remove(0)
            };
            model.write_info(&mut out);
            String::from_utf8(out.to_vec()).unwrap()
        };
        assert_eq!(
            info(1_700_000_000, Some(8)),
            r#"{"type":"model","id":"a\"b","display_name":"a\"b","created_at":"2023-11-14T22:13:20Z","max_input_tokens":8,"max_tokens":8,"capabilities":null,"lifecycle":"active","line":null,"deprecated_at":null,"retires_at":null}"#
        );
        assert!(
            info(0, None)
                .contains(r#""1970-01-01T00:00:00Z","max_input_tokens":null,"max_tokens":null,"#)
        );
        assert!(
            info(u64::MAX, None).contains(r#""created_at":"9999-12-31T23:59:59Z""#),
            "the last that fits"
        );
    }

    #[test]
    fn lists_and_catalogues_separate_their_models() {
        let mut models = named(&["a", "b"]);
        models[1].context_length = Some(8);
        let (mut list, mut catalogue) = (BytesMut::new(), BytesMut::new());
        write(&models, &mut list);
        let entry = |id: &str, more: &str| {
            format!(r#"{{"id":"{id}","object":"model","created":0,"owned_by":"engine"{more}}}"#)
        };
        let data = [entry("a", ""), entry("b", r#","context_length":8"#)].join(",");
        assert_eq!(list, format!(r#"{{"object":"list","data":[{data}]}}"#));
        write_catalogue(&models, "be brief", &mut catalogue);
        let entry = |id: &str, priority: u8, more: &str| {
            format!(
                r#"{{"slug":"{id}","display_name":"{id}","supported_reasoning_levels":[],"shell_type":"default","visibility":"list","supported_in_api":true,"priority":{priority},"base_instructions":"be brief","apply_patch_tool_type":"freeform","supports_search_tool":true,"support_verbosity":false,"truncation_policy":{{"mode":"bytes","limit":10000}},"experimental_supported_tools":[]{more}}}"#
            )
        };
        let entries = [entry("a", 0, ""), entry("b", 1, r#","context_window":8"#)].join(",");
        assert_eq!(
            catalogue,
            format!(r#"{{"object":"list","data":[{data}],"models":[{entries}]}}"#)
        );
    }

    #[test]
    fn what_is_no_list_is_not_read() {
        for body in [&b"\xff"[..], b"[]", b"{}", br#"{"data":{}}"#, b"x"] {
            assert_eq!(read(body), None, "{body:?}");
        }
        assert_eq!(
            read(br#"{"data":[{"object":"model"},{"id":"a"}]}"#),
            Some(named(&["a"]))
        );
    }
}
