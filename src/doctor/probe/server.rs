//! Checks of the server itself: key, list of models, connections, clients that leave.

use super::{REFUSED, require, tail};
use crate::doctor::check::{Check, Topic, checks};
use crate::doctor::cut::requests;
use crate::doctor::outcome::{Judged, Outcome, Table, quoted};
use crate::doctor::question::Question;
use crate::doctor::seen::Seen;
use crate::exchange::{Ended, Idle};
use std::collections::BTreeMap;
use std::time::Duration;

/// Checks of the server.
pub(super) const CHECKS: &[Check] = checks! { Server:
    "key", Models, ["every client"] => key;
    "models-list", Models, ["clients that offer a choice of models, such as Open WebUI"],
        mends "lists the models that its configuration names" => models;
    "available", Stream, ["every client, now and then"],
        mends "asks again before the first token, another engine where there are several, and ends a broken stream with an error"
            => available;
    "context-length", Models, ["agents that shorten their history in time, such as Codex"],
        mends "tells clients the `context_length` of a [[model]] in its configuration" => context_length;
    "context-size", Models, ["agents: their prompts with tools take thousands of tokens; that of Claude Code takes 21,000"]
        => context_size;
    "keep-alive", Models, ["clients and balancers that keep connections for longer: some of their requests are reset"],
        mends "keeps unused connections to engines for 3 s (pool_idle) and those to clients for 620 s" => keep_alive;
    "disconnect", Cut, ["everybody: answers that nobody reads take the place of others"] => disconnect;
};

/// Time for which samewire keeps unused connections to engines, if the configuration does not say otherwise.
const POOL_IDLE: Duration = Duration::from_secs(3);
/// Time below which a server is taken to close after each answer.
const AT_ONCE: Duration = Duration::from_millis(500);
/// Part of a stream's own time, in percent, within which its end is put down to the client's leaving.
const EARLY: u32 = 80;

fn key(seen: &Seen) -> Judged {
    let questions = [Question::Models, Question::Stream];
    let answers = questions
        .into_iter()
        .filter_map(|question| seen.any(question).ok());
    let mut refusals = answers.filter(|answer| matches!(answer.status, 401 | 403));
    if let Some(answer) = refusals.next() {
        return Ok(Outcome::broken(
            "The server refuses these requests: it needs a key, or another one (--key-file names its file).",
            &answer.beginning(),
        ));
    }
    seen.any(Question::Stream)?;
    Outcome::fine("The server takes requests with this key, or without one.")
}

fn models(seen: &Seen) -> Judged {
    let answer = seen.any(Question::Models)?;
    require(!matches!(answer.status, 401 | 403), REFUSED)?;
    require(
        answer.redirect.is_none(),
        "the server names another address",
    )?;
    require(
        answer.ended == Ended::Clean,
        "the list of models did not end, or is too long to be read",
    )?;
    if seen.server.models.is_empty() || answer.status != 200 {
        let models = format!("[{}]", quoted(&seen.model));
        let says = match seen.server.is_nameless {
            true => "GET /v1/models lists models, and none of them has a name.",
            false => "GET /v1/models lists no models.",
        };
        return Ok(Outcome::warning(says, &answer.beginning()).with(
            Table::Upstream,
            "models",
            models,
        ));
    }
    Outcome::fine("The list of models is there.")
}

/// Judges whether the server, and any proxy in front of it, answers at all.
fn available(seen: &Seen) -> Judged {
    let (count, failed) = seen.failures();
    require(count > 0, "nothing was answered")?;
    let Some((_, first)) = failed.first() else {
        return Outcome::fine("No answer failed or broke off for reasons of the server.");
    };
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for (_, answer) in &failed {
        let kind = match answer.status {
            200 => "broke off".to_owned(),
            status => format!("had status {status}"),
        };
        *kinds.entry(kind).or_default() += 1;
    }
    let told: Vec<_> = kinds
        .iter()
        .map(|(kind, times)| format!("{times} {kind}"))
        .collect();
    let says = format!("Of {count} answers, {}.", told.join(", "));
    let shown = match first.status {
        200 => format!("… {}", tail(&first.raw)),
        _ => first.beginning(),
    };
    Ok(Outcome::broken(says, &shown))
}

/// Tokens of prompt and answer below which a context is too small for tools.
const SMALL: u64 = 4096;
/// Bytes that are shown before a number, for its key.
const AROUND: usize = 24;

/// Returns the listed number of tokens of prompt and answer together.
fn context(seen: &Seen) -> Judged<Option<u64>> {
    let model = seen
        .server
        .model(&seen.model)
        .ok_or_else(|| Outcome::not_seen("the model is not listed"))?;
    Ok(model.context_length.or(model.max_model_len))
}

fn context_size(seen: &Seen) -> Judged {
    let length =
        context(seen)?.ok_or_else(|| Outcome::not_seen("the list of models does not tell it"))?;
    if length >= SMALL {
        return Outcome::fine(format!(
            "A prompt and its answer may have {length} tokens together."
        ));
    }
    let says =
        format!("A prompt and its answer may have {length} tokens together, which is little.");
    let raw = &seen.good(Question::Models)?.raw;
    let at = raw.find(&length.to_string()).unwrap_or(0);
    let shown = raw
        .get(raw.floor_char_boundary(at.saturating_sub(AROUND))..)
        .unwrap_or(raw);
    let flag = seen.server.flags().context.map(str::to_owned);
    Ok(Outcome::warning(says, shown).with_flag(flag))
}

fn context_length(seen: &Seen) -> Judged {
    match context(seen)? {
        Some(length) => Outcome::fine(format!(
            "The list of models tells the context length, {length} tokens."
        )),
        None => Ok(Outcome::note(
            "The list of models does not tell the context length.",
            &seen.good(Question::Models)?.raw,
        )),
    }
}

fn keep_alive(seen: &Seen) -> Judged {
    let idle = seen
        .idle
        .as_ref()
        .ok_or_else(|| Outcome::not_seen("it was not watched"))?;
    // A refusal may close the connection that another answer would have left open.
    require(
        !matches!(seen.any(Question::Models)?.status, 401 | 403),
        REFUSED,
    )?;
    let closed = match idle {
        Idle::Unknown(why) => return Err(Outcome::not_seen(why)),
        Idle::Kept(time) => {
            return Outcome::fine(format!(
                "The server keeps an unused connection for at least {:.0} s.",
                time.as_secs_f32()
            ));
        }
        Idle::Closed(time) => *time,
    };
    let seconds = closed.as_secs_f32();
    let evidence = format!("the connection was closed {seconds:.1} s after the answer");
    if closed < AT_ONCE {
        let says = "The server closes the connection after each answer, so that each request pays for a new one.";
        return Ok(Outcome::note(says, &evidence));
    }
    let says = format!("The server closes an unused connection after {seconds:.1} s.");
    let flag = seen.server.flags().keep_alive.map(str::to_owned);
    if closed > POOL_IDLE {
        return Ok(Outcome::note(says, &evidence).with_flag(flag));
    }
    let half = (closed / 2).as_secs_f32();
    Ok(Outcome::warning(says, &evidence).with_flag(flag).with(
        Table::Timeouts,
        "pool_idle",
        format!("{half:.1}"),
    ))
}

fn disconnect(seen: &Seen) -> Judged {
    let answer = seen.any(Question::Cut)?;
    require(answer.status == 200, "the stream was refused")?;
    let cut = seen.cut.as_ref().ok_or_else(|| {
        let flag = seen
            .server
            .flags()
            .load
            .map(|flag| format!(" (it may need {flag})"))
            .unwrap_or_default();
        Outcome::not_seen(format!(
            "no route of the engine tells its load{flag}, or the stream ended before the cut"
        ))
    })?;
    let time = cut.time.as_secs_f32();
    let (before, after) = (requests(cut.before), requests(cut.after));
    if !cut.is_free() {
        let evidence = format!(
            "{}: {before} requests before, {after} of them {time:.1} s after the cut",
            cut.route
        );
        let says = "The engine still works on more requests than before, although the client has left. \
                    Other clients may have sent them.";
        return Ok(Outcome::warning(says, &evidence));
    }
    let soon = cut.natural * EARLY / 100;
    require(
        cut.time < soon,
        "the stream was so fast that it may have ended by itself",
    )?;
    Outcome::fine(format!(
        "The engine was free {time:.1} s after the client had left."
    ))
}
