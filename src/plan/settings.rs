//! Changes of a request's top-level members, most of which return true if they altered the request
//! (engines E.2).

use super::adapt::RequestAdapter;
use crate::engine::efforts::{EFFORTS, Efforts};
use crate::engine::rule::Constraint;
use crate::json::{self, Members, Raw, Text, quoted, raw_member};
use crate::request::{self, THINKING_SWITCHES, fields::place, switch_of, unsupported_value};
use crate::wire::Api;
use crate::wire::fault::Failure;

/// Converts a boolean `logprobs`, as Chat Completions has it, to the number that Completions expects: `true`
/// becomes 1, `false` is removed (wire-format 2.11).
pub(super) fn logprobs_flag(adapter: &mut RequestAdapter<'_>) {
    match adapter.top.non_null("logprobs") {
        Some("true") => adapter.top.set("logprobs", "1"),
        Some("false") => _ = adapter.top.remove("logprobs"),
        _ => {}
    }
}

pub(super) fn rename(adapter: &mut RequestAdapter<'_>, from: &str, to: &'static str) -> bool {
    let any = adapter.top.non_null(from).is_some();
    if any {
        adapter.top.rename(from, to);
    }
    any
}

pub(super) fn copy(adapter: &mut RequestAdapter<'_>, from: &str, to: &str) -> bool {
    let said = adapter
        .top
        .non_null(from)
        .filter(|_| adapter.top.non_null(to).is_none())
        .map(ToOwned::to_owned);
    let Some(json) = said else { return false };
    adapter.top.set(to, json);
    true
}

pub(super) fn supersede(adapter: &mut RequestAdapter<'_>, newer: &str, older: &str) -> bool {
    let both = adapter.top.non_null(newer).is_some() && adapter.top.non_null(older).is_some();
    both && adapter.top.remove(older)
}

/// Fails if the number is below `least`; never changes the request, so it returns `false` otherwise.
pub(super) fn range(
    adapter: &RequestAdapter<'_>,
    key: &str,
    least: i64,
    why: &str,
) -> Result<bool, Failure> {
    let number = adapter
        .top
        .non_null(key)
        .and_then(|json| json.parse::<i64>().ok());
    match number.filter(|number| *number < least) {
        Some(_) => Err(request::invalid(
            key,
            &format!("it must be at least {least}: {why}"),
        )),
        None => Ok(false),
    }
}

/// Fails if the member asks for a feature that the engine lacks; never changes the request, so it returns `false`
/// otherwise.
pub(super) fn refuse(
    adapter: &RequestAdapter<'_>,
    key: &str,
    but: &[&str],
    why: &str,
) -> Result<bool, Failure> {
    let Some(json) = adapter.top.non_null(key) else {
        return Ok(false);
    };
    let words = json::elements(json).filter(|_| !but.is_empty());
    let is_plain = words.is_some_and(|mut words| words.all(|word| but.contains(&word.get())));
    if is_plain
        || adapter
            .request
            .places
            .allowed_api_fields
            .iter()
            .any(|own| own == key)
    {
        return Ok(false);
    }
    Err(unsupported_value(key, why))
}

/// Removes null members that the API names. The engine judges nulls in its own fields.
pub(super) fn nulls(adapter: &mut RequestAdapter<'_>) -> bool {
    let places = &adapter.request.places;
    let is_own = |key: &str| {
        places
            .unknown
            .iter()
            .chain(&places.allowed)
            .any(|own| own == key)
    };
    // These members stay: other edits write the usage option and the model name in their place.
    let is_kept = |key: &str| match key {
        "stream_options" => adapter.request.stream,
        "model" => adapter.request.overrides_model,
        _ => is_own(key),
    };
    let nulls = adapter
        .top
        .originals()
        .filter(|(key, json)| *json == "null" && !is_kept(key));
    let nulls: Vec<_> = nulls.map(|(key, _)| key.to_owned()).collect();
    nulls.iter().for_each(|key| _ = adapter.top.remove(key));
    !nulls.is_empty()
}

pub(super) fn empty_stops(adapter: &mut RequestAdapter<'_>) -> bool {
    let Some(stop) = adapter.top.non_null("stop") else {
        return false;
    };
    if stop == "\"\"" {
        return adapter.top.remove("stop");
    }
    let Some(all) = json::elements(stop).map(Iterator::collect::<Vec<_>>) else {
        return false;
    };
    let kept: Vec<_> = all
        .iter()
        .map(|stop| stop.get())
        .filter(|stop| *stop != "\"\"")
        .collect();
    match kept.len() {
        count if count == all.len() => return false,
        0 => _ = adapter.top.remove("stop"),
        _ => {
            let kept = format!("[{}]", kept.join(","));
            adapter.top.set("stop", kept);
        }
    }
    true
}

/// Returns a top-level member, or a member of an object for a dotted path; `None` if it is absent or null.
fn constraint<'d>(adapter: &'d RequestAdapter<'_>, key: &str) -> Option<&'d str> {
    let Some((outer, inner)) = key.split_once('.') else {
        return adapter.top.non_null(key);
    };
    raw_member(adapter.top.non_null(outer)?, inner)
        .map(Raw::get)
        .filter(|json| *json != "null")
}

pub(super) fn constrain(
    adapter: &mut RequestAdapter<'_>,
    unread: &[&'static str; 4],
    read: &[Constraint; 4],
) -> bool {
    let mut any = false;
    let said = unread
        .iter()
        .zip(*read)
        .filter(|(_, read)| *read != Constraint::Unsupported);
    for (unread, read) in said.clone() {
        let Some(json) = constraint(adapter, unread).map(ToOwned::to_owned) else {
            continue;
        };
        any = true;
        match read {
            Constraint::Member(key) => adapter.top.set(key, json),
            Constraint::Inside(object, key) if adapter.top.non_null(object).is_none() => {
                adapter.top.set(object, format!("{{\"{key}\":{json}}}"));
            }
            // A value that the client states under the engine's own key wins.
            Constraint::Inside(..) => {}
            Constraint::Format(_) if adapter.request.api == Api::Chat => format_of(adapter, &json),
            Constraint::Format(key) => adapter.top.set(key, as_string(&json)),
            Constraint::Expression(key) => match expression(&json) {
                Some(expression) => adapter.top.set(key, expression),
                None => continue,
            },
            Constraint::Unsupported => {}
        }
    }
    if any {
        for (unread, _) in said {
            adapter
                .top
                .remove(unread.split('.').next().unwrap_or(unread));
        }
    }
    any
}

/// Sets `response_format` to a JSON schema, unless the client has set it. The schema may be given as a JSON
/// string.
fn format_of(adapter: &mut RequestAdapter<'_>, json: &str) {
    let decoded = Raw::of(json).and_then(Text::of).map(|text| text.decoded());
    let schema = decoded
        .as_deref()
        .filter(|schema| Raw::of(schema).is_some())
        .unwrap_or(json);
    if adapter.top.non_null("response_format").is_none() {
        let format = format!(
            "{{\"type\":\"json_schema\",\"json_schema\":{{\"name\":\"schema\",\"schema\":{schema}}}}}"
        );
        adapter.top.set("response_format", format);
    }
}

fn as_string(json: &str) -> String {
    if json.starts_with('"') {
        json.to_owned()
    } else {
        quoted(json)
    }
}

/// Builds a regular expression, as a JSON string, that matches exactly the given words; `None` for an empty list
/// or one with other elements than strings.
fn expression(words: &str) -> Option<String> {
    let mut escaped = String::from("(");
    for (at, word) in json::elements(words)?.enumerate() {
        if at > 0 {
            escaped.push('|');
        }
        for character in Text::of(word)?.decoded().chars() {
            if "\\.+*?()|[]{}^$/-".contains(character) {
                escaped.push('\\');
            }
            escaped.push(character);
        }
    }
    escaped.push(')');
    json::elements(words)?
        .next()
        .is_some()
        .then(|| quoted(&escaped))
}

/// Reduces the request to one choice, to be sent once for each choice wanted. Fails if there are several prompts
/// or `best_of` differs from `n`.
pub(super) fn fan_out(adapter: &mut RequestAdapter<'_>, calls: bool) -> Result<bool, Failure> {
    let Some(n) = adapter.top.non_null("n").filter(|n| *n != "1") else {
        return Ok(false);
    };
    let may_call = adapter.request.api == Api::Chat && adapter.top.non_null("tools").is_some();
    if calls && !(adapter.request.stream && may_call) {
        return Ok(false);
    }
    if n.parse() != Ok(adapter.request.choices) {
        return Err(unsupported_value(
            "n",
            "of several prompts this engine gives one choice each",
        ));
    }
    if adapter
        .top
        .non_null("best_of")
        .is_some_and(|best| best != n)
    {
        return Err(unsupported_value(
            "best_of",
            "this engine gives one choice, so it has none to choose from",
        ));
    }
    adapter.top.remove("best_of");
    adapter.top.set("n", "1");
    Ok(true)
}

/// Reduces the request to one of several choices. Adds the choice's index to the seed, as engines do for the
/// choices of one request.
pub(super) fn one_of_several(adapter: &mut RequestAdapter<'_>, choice: u32) {
    adapter.top.remove("best_of");
    adapter.top.set("n", "1");
    let seed = adapter
        .top
        .non_null("seed")
        .and_then(|seed| seed.parse::<i64>().ok());
    if let Some(seed) = seed.filter(|_| choice > 0) {
        adapter
            .top
            .set("seed", seed.wrapping_add(choice.into()).to_string());
    }
}

pub(super) fn schema_name(adapter: &mut RequestAdapter<'_>) -> bool {
    let Some(format) = adapter.top.original("response_format") else {
        return false;
    };
    let Some(schema) = raw_member(format, "json_schema") else {
        return false;
    };
    if !schema.get().starts_with('{') {
        return false;
    }
    if let Some(null) = raw_member(schema.get(), "name") {
        let is_null = null.get() == "null";
        if is_null {
            adapter
                .edits
                .replace(place(adapter.text, null.get()), "\"schema\"");
        }
        return is_null;
    }
    let at = place(adapter.text, schema.get()).start + 1;
    let is_empty = schema
        .get()
        .get(1..)
        .is_some_and(|rest| rest.trim_start().starts_with('}'));
    let comma = if is_empty { "" } else { "," };
    adapter
        .edits
        .replace(at..at, format!("\"name\":\"schema\"{comma}"));
    true
}

pub(super) fn reasoning_object(adapter: &mut RequestAdapter<'_>, is_read: bool) -> bool {
    let Some(reasoning) = adapter
        .top
        .non_null("reasoning")
        .filter(|json| json.starts_with('{'))
    else {
        return false;
    };
    let effort = request::effort(reasoning);
    let says_more = || {
        let mut all = Members::of(reasoning)
            .into_iter()
            .flat_map(|members| members.0);
        all.any(|(key, json)| key != "effort" || !json.get().starts_with('"'))
    };
    // With both `enabled: false` and an effort in the object, the engine would follow the effort.
    let stays = is_read && effort.as_deref() != Some("none") && says_more();
    let effort = effort.filter(|_| adapter.top.non_null("reasoning_effort").is_none());
    let any = effort.is_some();
    if let Some(effort) = effort {
        adapter.top.remove("reasoning_effort");
        adapter.top.set("reasoning_effort", quoted(&effort));
    }
    if stays {
        return any;
    }
    adapter.top.remove("reasoning")
}

/// Replaces the effort `none` by both template switches in use, `enable_thinking` and `thinking`, since templates
/// know one of them.
pub(super) fn no_reasoning(adapter: &mut RequestAdapter<'_>) -> bool {
    if adapter.request.is_gpt_oss() || adapter.top.non_null("reasoning_effort") != Some("\"none\"")
    {
        return false;
    }
    let is_set = set_template_switches(adapter, false);
    is_set && adapter.top.remove("reasoning_effort")
}

/// Replaces the switches for reasoning of other services by those of chat templates, which win if they are there, a
/// budget by `thinking_token_budget` if the engine reads it, and an effort in `think` by `reasoning_effort`. gpt-oss
/// has neither switch nor budget.
pub(super) fn thinking_switch(adapter: &mut RequestAdapter<'_>, reads_budget: bool) -> bool {
    let top = &mut adapter.top;
    let says = |key: &str| top.non_null(key).and_then(|json| switch_of(key, json));
    let known: Vec<_> = THINKING_SWITCHES
        .into_iter()
        .filter(|key| says(key).is_some())
        .collect();
    let switch = if known.is_empty() {
        None
    } else {
        request::thinks(|key| top.non_null(key))
    };
    let of_switch = || {
        raw_member(top.non_null("thinking")?, "budget_tokens")?
            .get()
            .parse()
            .ok()
    };
    let budget: Option<u32> = adapter
        .request
        .reasoning_budget
        .or_else(of_switch)
        .filter(|_| reads_budget && switch != Some(false));
    let think = top
        .non_null("think")
        .and_then(|json| Text::of(Raw::of(json)?))
        .map(|word| word.decoded());
    let effort = think
        .filter(|word| EFFORTS.contains(&word.as_ref()))
        .map(|word| quoted(&word));
    known.iter().for_each(|key| _ = top.remove(key));
    if let Some(effort) = effort.filter(|_| top.non_null("reasoning_effort").is_none()) {
        top.set("reasoning_effort", effort);
    }
    let has_switch = !adapter.request.is_gpt_oss();
    if let Some(on) = switch.filter(|_| has_switch) {
        set_template_switches(adapter, on);
    }
    let budget = budget.filter(|_| has_switch && adapter.top.non_null(BUDGET).is_none());
    if let Some(tokens) = budget {
        adapter.top.set(BUDGET, tokens.to_string());
    }
    budget.is_some() || !known.is_empty()
}

/// Removes a budget that the client has not written itself.
pub(super) fn budget_left_out(adapter: &mut RequestAdapter<'_>) -> bool {
    adapter.top.original(BUDGET).is_none() && adapter.top.remove(BUDGET)
}

/// Key of vLLM's limit on the tokens of reasoning.
const BUDGET: &str = "thinking_token_budget";

/// Sets both switches of chat templates in use, since templates know one of them. A switch of the client's own stays.
/// Returns false if `chat_template_kwargs` is no object.
fn set_template_switches(adapter: &mut RequestAdapter<'_>, on: bool) -> bool {
    const SWITCHES: [&str; 2] = ["enable_thinking", "thinking"];
    let known = adapter.top.non_null("chat_template_kwargs").unwrap_or("{}");
    let Some(members) = Members::of(known) else {
        return false;
    };
    let trimmed = known.trim_end();
    let mut json = trimmed
        .strip_suffix('}')
        .unwrap_or(trimmed)
        .trim_end()
        .to_owned();
    let mut any = !members.0.is_empty();
    for switch in SWITCHES
        .iter()
        .filter(|switch| members.get(switch).is_none())
    {
        json.push_str(&format!("{}\"{switch}\":{on}", if any { "," } else { "" }));
        any = true;
    }
    json.push('}');
    adapter.top.set("chat_template_kwargs", json);
    true
}

/// Replaces an effort that is not among the known ones with the nearest of them.
pub(super) fn effort(adapter: &mut RequestAdapter<'_>, known: Efforts) -> bool {
    let Some(said) = adapter
        .top
        .non_null("reasoning_effort")
        .and_then(|json| Text::of(Raw::of(json)?))
    else {
        return false;
    };
    let said = said.decoded();
    let Some(nearest) = known.nearest(&said).filter(|nearest| **nearest != said) else {
        return false;
    };
    adapter
        .top
        .set("reasoning_effort", format!("\"{nearest}\""));
    true
}
