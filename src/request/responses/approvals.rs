//! Calls of tools that samewire runs, in the conversation of a Responses request: the lists that the client has, and the
//! calls that it has approved (wire-format 4.14).

use super::ResponsesRequest;
use super::server_tools::UsedServer;
use crate::json;
use crate::request::refusals::invalid;
use crate::wire::encode::{ServerCall, ServerTool};
use crate::wire::fault::Failure;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

impl ResponsesRequest {
    /// Returns an item with the list of tools for each server whose list the conversation does not have.
    pub fn tool_lists<'a>(&self, items: impl Iterator<Item = &'a str>) -> Vec<String> {
        let is_list = |item: &&str| item.contains("mcp_list_tools");
        let known = items.filter(is_list);
        let known: Vec<_> = known
            .filter_map(|item| json::member(item, "server_label"))
            .collect();
        let servers = self.tools.servers().iter();
        let new = servers.filter(|server| !known.iter().any(|label| **label == *server.label));
        new.map(UsedServer::list_item).collect()
    }
}

/// Returns the calls that the client has approved and that have not run, in order. `tools`: those of the
/// request, by the engine's names. `earlier`: items of the conversation before the input. `input`: those of the input.
///
/// # Errors
/// Fails if no item of the conversation asks for an approval, if it has been answered before, or if the request does
/// not offer the tool.
pub fn approved_calls<'a>(
    tools: &HashMap<String, Arc<ServerTool>>,
    earlier: impl Iterator<Item = &'a str>,
    input: impl Iterator<Item = &'a str>,
) -> Result<Vec<ServerCall>, Failure> {
    let (mut requests, mut ran) = (HashMap::new(), HashSet::new());
    let mut answers: Vec<(String, bool, Option<usize>)> = Vec::new();
    let mut known = HashSet::new();
    let earlier = earlier.map(|item| (None, item));
    let input = input.enumerate().map(|(at, item)| (Some(at), item));
    for (at, item) in earlier
        .chain(input)
        .filter(|(_, item)| item.contains("mcp_"))
    {
        let id = |key| json::member(item, key).unwrap_or_default();
        match json::member(item, "type").as_deref() {
            Some("mcp_approval_request") => _ = requests.insert(id("id"), item),
            Some("mcp_call") => _ = ran.insert(id("approval_request_id")),
            Some("mcp_approval_response") => {
                let approve = json::raw_member(item, "approve");
                let id = id("approval_request_id");
                if let Some(at) = at.filter(|_| !known.insert(id.clone())) {
                    return Err(refused(at, "it has been answered before"));
                }
                answers.push((id, approve.is_some_and(|flag| flag.get() == "true"), at));
            }
            _ => {}
        }
    }
    let mut calls = Vec::new();
    for (id, _, at) in answers
        .into_iter()
        .filter(|(id, approved, _)| *approved && !ran.contains(id))
    {
        let call = requests
            .get(&id)
            .ok_or("no item of the conversation asks for it");
        let call = call.and_then(|request| call_of(&id, request, tools));
        match (call, at) {
            (Ok(call), _) => calls.push(call),
            (Err(why), Some(at)) => return Err(refused(at, why)),
            // An earlier request should have run it.
            (Err(_), None) => {}
        }
    }
    Ok(calls)
}

fn refused(at: usize, why: &str) -> Failure {
    invalid(format!("input[{at}].approval_request_id"), why)
}

/// Returns the call that an item has asked an approval for.
fn call_of(
    id: &str,
    request: &str,
    tools: &HashMap<String, Arc<ServerTool>>,
) -> Result<ServerCall, &'static str> {
    let member = |key| json::member(request, key).unwrap_or_default();
    let (label, name) = (member("server_label"), member("name"));
    let is_meant = |tool: &&Arc<ServerTool>| *tool.label == *label && tool.name == name;
    let found = tools.iter().find(|(_, tool)| is_meant(tool));
    let (function, tool) = found.ok_or("the request does not offer its tool")?;
    Ok(ServerCall {
        id: id.to_owned(),
        function: function.clone(),
        tool: Arc::clone(tool),
        arguments: member("arguments"),
        approval: Some(id.to_owned()),
    })
}
