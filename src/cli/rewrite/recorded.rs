//! Request that an answer belongs to: a plain one, or that of a recorded exchange with what the exchange says of its
//! engine.

use super::super::CommandFailure;
use crate::json::{self, Raw, object};
use crate::plan::Route;
use crate::replay::{ROUTE, RecordedRequest};
use crate::visible::visible;
use crate::wire::{Api, TemplateFacts};
use bytes::Bytes;
use std::path::{Path, PathBuf};

/// Folder of a captured exchange that has the client's side.
const CLIENT: &str = "client";

/// Request in a file, and the facts that the file has about it.
#[derive(Debug, Default)]
pub(super) struct RequestFile {
    /// API of the request.
    pub(super) api: Option<Api>,
    /// Body of the request.
    pub(super) request: Option<Bytes>,
    /// Route by which the answer was rewritten when it was captured.
    pub(super) route: Option<Route>,
}

object! {
    /// Members that tell the APIs apart, and a recorded exchange from a plain request.
    struct Members<'a> {
        messages: Raw<'a> = "messages",
        prompt: Raw<'a> = "prompt",
        input: Raw<'a> = "input",
        method: Raw<'a> = "method",
        path: Raw<'a> = "path",
        body: Raw<'a> = "body",
        body_raw: Raw<'a> = "body_raw",
    }
}

/// Reads the request in a file, and the files next to it if it belongs to a captured exchange.
pub(super) fn read(path: &Path) -> Result<RequestFile, CommandFailure> {
    if path.as_os_str() == "-" {
        let text =
            "--request -: standard input holds the engine's answer; the request must be in a file";
        return Err(CommandFailure::usage(text));
    }
    let shown = path.display();
    let bytes = std::fs::read(path)
        .map_err(|error| CommandFailure::at(format_args!("--request {shown}"), error))?;
    let wrong = |why: &str| CommandFailure::usage(format!("--request {shown}: {why}"));
    let text = std::str::from_utf8(&bytes).map_err(|_| wrong("it is not UTF-8"))?;
    let text = text.trim_start_matches('\u{feff}');
    let read: Members<'_> = json::read(text).map_err(|error| {
        wrong(&format!(
            "it is not a request, which is a JSON object ({error})"
        ))
    })?;
    let api = match (&read.messages, &read.prompt, &read.input) {
        (Some(_), _, _) => Some(Api::Chat),
        (None, Some(_), _) => Some(Api::Completions),
        (None, None, Some(_)) => Some(Api::Responses),
        (None, None, None) => None,
    };
    let is_recorded = [&read.method, &read.path, &read.body, &read.body_raw]
        .iter()
        .any(|one| one.is_some());
    if api.is_some() || !is_recorded {
        return Ok(RequestFile {
            api,
            request: Some(Bytes::copy_from_slice(text.as_bytes())),
            route: None,
        });
    }
    let recorded = RecordedRequest::read(text).map_err(|why| wrong(&why))?;
    let body = match (recorded.body, recorded.body_raw) {
        (Some(body), _) => body.get().to_owned(),
        (None, Some(text)) => text,
        (None, None) => {
            return Err(wrong(
                "body: missing; the request has none, so that no answer belongs to it",
            ));
        }
    };
    Ok(RequestFile {
        api: Api::of_path(&recorded.path),
        request: Some(body.into()),
        route: route(path)?,
    })
}

/// Reads the facts about a chat template.
pub(super) fn facts(path: &Path) -> Result<TemplateFacts, CommandFailure> {
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| CommandFailure::at(format_args!("--facts {shown}"), error))?;
    serde_json::from_str(&text).map_err(|error| {
        let why = error.to_string();
        CommandFailure::usage(format!("--facts {shown}: {}", visible(&why)))
    })
}

/// Reads what a captured answer was rewritten by. The file is next to the request to the engine; the client's request
/// is one folder below.
fn route(request: &Path) -> Result<Option<Route>, CommandFailure> {
    let place = request
        .canonicalize()
        .unwrap_or_else(|_| request.to_owned());
    let mut folder = place.parent().map(Path::to_owned).unwrap_or_default();
    if folder.file_name().is_some_and(|name| name == CLIENT) && !folder.join(ROUTE).is_file() {
        folder = folder.parent().map_or_else(PathBuf::new, Path::to_owned);
    }
    let file = folder.join(ROUTE);
    if !file.is_file() {
        return Ok(None);
    }
    let text = std::fs::read_to_string(&file)
        .map_err(|error| CommandFailure::at(file.display(), error))?;
    let route = Route::of_record(&text);
    route
        .map(Some)
        .map_err(|why| CommandFailure::usage(format!("{}: {}", file.display(), visible(&why))))
}
