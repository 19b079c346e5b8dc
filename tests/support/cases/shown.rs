//! Printed form of events, as it appears in the event logs of the fixtures. The unit tests of `src/core/wire` use it too.

use super::event::{Delta, Event, FrameExtras, Logprobs};

/// Returns an event as one line of a log.
pub(crate) fn event(event: &Event<'_>) -> String {
    match event {
        Event::Head(head) => {
            let mut line = "head".to_owned();
            let texts = [
                ("id", head.id),
                ("model", head.model),
                ("tier", head.tier),
                ("fingerprint", head.fingerprint),
            ];
            for (name, text) in texts {
                line +=
                    &text.map_or_else(String::new, |text| format!(" {name}={:?}", text.decoded()));
            }
            line + &head
                .created
                .map_or_else(String::new, |created| format!(" created={created}"))
        }
        Event::Delta {
            choice,
            delta: change,
            extras: carried,
        } => {
            format!("{choice} {}{}", delta(change), extras(carried))
        }
        Event::Usage { usage, .. } => format!(
            "usage prompt={} completion={} total={} cached={} reasoning={}",
            usage.prompt,
            usage.completion,
            usage.total,
            usage.cached,
            usage.reasoning.unwrap_or(0)
        ),
        Event::Foreign {
            name,
            slot,
            stage,
            data,
        } => {
            let slot = slot.map_or_else(String::new, |slot| format!(" {slot}"));
            format!("foreign {stage:?} {name}{slot} {data}")
        }
        Event::Limits(limits) => format!("limits {limits}"),
        Event::Fail(failure) => {
            let code = failure.code.as_deref().unwrap_or("-");
            format!("fail {} {code} {:?}", failure.status, failure.message)
        }
        Event::End => "end".to_owned(),
    }
}

/// Returns the change of a choice, as the line of its event shows it.
pub(crate) fn delta(delta: &Delta<'_>) -> String {
    match delta {
        Delta::Role => "role".to_owned(),
        Delta::Reasoning(text) => format!("reasoning {:?}", text.decoded()),
        Delta::Summary(text) => format!("summary {:?}", text.decoded()),
        Delta::Content(text) => format!("content {:?}", text.decoded()),
        Delta::Refusal(text) => format!("refusal {:?}", text.decoded()),
        Delta::FunctionCall { name, arguments } => {
            let [name, arguments] = [name, arguments].map(|text| {
                text.map_or_else(|| "-".to_owned(), |text| format!("{:?}", text.decoded()))
            });
            format!("function-call {name} {arguments}")
        }
        Delta::ToolStart {
            slot,
            id,
            name,
            namespace,
            kind,
        } => {
            let namespace =
                namespace.map_or_else(String::new, |namespace| format!(" {namespace:?}"));
            format!("tool-start {slot} {id:?} {name:?} {kind:?}{namespace}")
        }
        Delta::ToolArgs { slot, args } => format!("tool-args {slot} {:?}", args.decoded()),
        Delta::Part { name, data } => {
            let data = data.map_or_else(String::new, |data| format!(" {data}"));
            format!("part {name:?}{data}")
        }
        Delta::Sealed { text, .. } => format!("sealed {:?}", text.decoded()),
        Delta::Annotation(data) => format!("annotation {data}"),
        Delta::Tokens(entries) => format!("tokens {}", entries.len()),
        Delta::Break => "break".to_owned(),
        Delta::Done { slot, cut } => {
            let slot = slot.map_or_else(String::new, |slot| format!(" {slot}"));
            format!("done{slot}{}", if *cut { " cut" } else { "" })
        }
        Delta::Finish(finish) => {
            let stop = finish
                .stop
                .map_or_else(String::new, |stop| format!(" stop={stop}"));
            format!("finish {}{stop}", finish.reason.as_str())
        }
        Delta::Bare => "bare".to_owned(),
    }
}

/// Returns the data attached to a change, each preceded by a space.
pub(crate) fn extras(extras: &FrameExtras<'_>) -> String {
    let mut line = String::new();
    match &extras.logprobs {
        Some(Logprobs::Tokens { content, refusal }) => {
            for entry in content.iter().chain(refusal).flatten() {
                line += &format!(" logprob({:?})", entry.token.decoded());
            }
        }
        Some(Logprobs::Legacy(arrays)) => {
            for array in arrays.iter().flatten() {
                line += &format!(" logprobs={array}");
            }
        }
        None => {}
    }
    let levels = [
        ("asked.chunk", &extras.chunk_extensions),
        ("asked.choice", &extras.choice_extensions),
        ("chunk", &extras.chunk),
        ("choice", &extras.choice),
        ("delta", &extras.delta),
    ];
    for (level, extras) in levels {
        for (key, value) in extras.iter() {
            line += &format!(" {level}.{key}={value}");
        }
    }
    line
}
