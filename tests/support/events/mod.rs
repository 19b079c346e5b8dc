//! Rules for every stream of Responses events (wire-format 4.6, 4.7): numbers, order, the life cycle of items and
//! parts, and that the deltas add up to the final object.
#![allow(dead_code, reason = "each test crate uses its part")]

use serde_json::{Value, json};

/// Reads and checks a stream of events. Returns the object in its last event.
pub fn fold(body: &str) -> Result<Value, String> {
    let mut fold = Fold::default();
    for (at, event) in events(body)?.into_iter().enumerate() {
        fold.event(at, &event)
            .map_err(|wrong| format!("event {at}: {wrong}\n  {event}"))?;
    }
    fold.last.ok_or_else(|| "no event ends it".to_owned())
}

/// Returns the events of a canonical stream, after checking that each has its name.
pub fn events(body: &str) -> Result<Vec<Value>, String> {
    let body = body.strip_suffix("data: [DONE]\n\n").unwrap_or(body);
    let mut events = Vec::new();
    for frame in body.split_terminator("\n\n") {
        let lines: Vec<_> = frame.split('\n').collect();
        let [name, data] = lines[..] else {
            return Err(format!("two lines make an event: {frame}"));
        };
        let name = name
            .strip_prefix("event: ")
            .ok_or_else(|| format!("no name: {frame}"))?;
        let data = data
            .strip_prefix("data: ")
            .ok_or_else(|| format!("no data: {frame}"))?;
        let event: Value =
            serde_json::from_str(data).map_err(|error| format!("{error}: {frame}"))?;
        let number = events.len();
        fail_if!(
            !data.starts_with(&format!(
                "{{\"type\":\"{name}\",\"sequence_number\":{number},"
            )),
            "type and number {number} come first: {frame}"
        );
        events.push(event);
    }
    match body.is_empty() || body.ends_with("\n\n") {
        true => Ok(events),
        false => Err("the last event has no blank line".to_owned()),
    }
}

/// Response as built up from the events so far.
#[derive(Default)]
struct Fold {
    id: Option<Value>,
    items: Vec<Item>,
    failing: bool,
    last: Option<Value>,
}

struct Item {
    id: String,
    /// Item as it was added, extended by its events.
    item: Value,
    /// Item as its final event had it.
    done: Option<Value>,
    /// Key of the open part, if there is one.
    part: Option<&'static str>,
    /// Text of the open part so far, or the arguments.
    text: String,
    logprobs: Vec<Value>,
    /// True once the complete text has been sent.
    ended: bool,
}

fn same(what: &str, got: &Value, expected: &Value) -> Result<(), String> {
    match got == expected {
        true => Ok(()),
        false => Err(format!("{what}: {got} instead of {expected}")),
    }
}

impl Fold {
    fn event(&mut self, at: usize, event: &Value) -> Result<(), String> {
        let kind = event["type"].as_str().unwrap();
        let order = match kind {
            "response.created" => at == 0,
            "response.in_progress" => (1..3).contains(&at),
            "response.queued" => at == 1,
            _ => at > 1 && self.last.is_none(),
        };
        let fails = matches!(kind, "response.failed" | "response.error");
        fail_if!(!order || self.failing != fails, "not in this place");
        match kind {
            "response.created" | "response.queued" | "response.in_progress" => self.begins(event),
            "response.completed" | "response.incomplete" | "response.failed" => {
                self.ends(kind, event)
            }
            "error" => {
                self.failing = true;
                for key in ["code", "message", "param"] {
                    same(key, &event[key], &event["error"][key])?;
                }
                Ok(())
            }
            "response.output_item.added" => self.item_added(event),
            "response.output_item.done" => self.item_done(event),
            // Events of older dialects repeat information of others.
            _ if event.get("response").is_some() => {
                same("id", &event["response"]["id"], self.id.as_ref().unwrap())
            }
            _ => self.inner(kind, event),
        }
    }

    fn begins(&mut self, event: &Value) -> Result<(), String> {
        let response = &event["response"];
        same("output", &response["output"], &json!([]))?;
        same("usage", &response["usage"], &Value::Null)?;
        let id = self.id.get_or_insert_with(|| response["id"].clone());
        same("id", &response["id"], id)
    }

    fn ends(&mut self, kind: &str, event: &Value) -> Result<(), String> {
        let response = &event["response"];
        same("id", &response["id"], self.id.as_ref().unwrap())?;
        same(
            "status",
            &response["status"],
            &json!(kind.trim_start_matches("response.")),
        )?;
        let (completed, failed) = (kind == "response.completed", kind == "response.failed");
        for (key, there) in [
            ("completed_at", completed),
            ("error", failed),
            ("incomplete_details", !completed && !failed),
        ] {
            fail_if!(response[key].is_null() == there, "{key}: {}", response[key]);
        }
        let mut output = Vec::new();
        for (at, item) in self.items.iter().enumerate() {
            match &item.done {
                Some(done) => {
                    let mut done = done.clone();
                    // Encrypted content is the only member that may arrive after its item.
                    if let Some(sealed) = response["output"][at].get("encrypted_content") {
                        done["encrypted_content"] = sealed.clone();
                    }
                    output.push(done);
                }
                None if failed => output.push(item.cut(&response["output"][at])?),
                None => return Err(format!("{} is not done", item.id)),
            }
        }
        same("output", &response["output"], &Value::Array(output))?;
        self.last = Some(response.clone());
        Ok(())
    }

    fn item_added(&mut self, event: &Value) -> Result<(), String> {
        let item = &event["item"];
        same(
            "output_index",
            &event["output_index"],
            &json!(self.items.len()),
        )?;
        same("status", &item["status"], &json!("in_progress"))?;
        let own = ["message", "reasoning", "function_call", "custom_tool_call"];
        if own.iter().any(|kind| item["type"] == *kind) {
            for key in ["content", "summary", "arguments", "input"] {
                let empty = item
                    .get(key)
                    .is_none_or(|value| *value == json!([]) || *value == json!(""));
                fail_if!(!empty, "{key} at the beginning: {}", item[key]);
            }
        }
        let id = item["id"].as_str().ok_or("no id")?.to_owned();
        let suffix = self
            .id
            .as_ref()
            .and_then(Value::as_str)
            .unwrap()
            .trim_start_matches("resp_")
            .to_owned();
        fail_if!(
            !id.ends_with(&format!("_{suffix}_{}", self.items.len())),
            "id {id}"
        );
        self.items.push(Item {
            id,
            item: item.clone(),
            done: None,
            part: None,
            text: String::new(),
            logprobs: Vec::new(),
            ended: false,
        });
        Ok(())
    }

    fn item_done(&mut self, event: &Value) -> Result<(), String> {
        let item = self.item(event, &event["item"]["id"])?;
        let done = &event["item"];
        fail_if!(item.part.is_some(), "a part is open");
        let status = done["status"].as_str().ok_or("no status")?;
        fail_if!(status == "in_progress", "done and in progress");
        let kind = done["type"].as_str().unwrap();
        let mut told = item.item.clone();
        told["status"] = json!(status);
        match kind {
            "message" => {}
            "reasoning" => {
                if let Some(sealed) = done.get("encrypted_content") {
                    told["encrypted_content"] = sealed.clone();
                }
            }
            "function_call" | "custom_tool_call" if !item.ended => {
                return Err("arguments not told whole".to_owned());
            }
            "function_call" => told["arguments"] = json!(item.text),
            "custom_tool_call" => told["input"] = json!(item.text),
            // The content of other item types is not covered by the events known here.
            _ => told = done.clone(),
        }
        same("item", done, &told)?;
        item.done = Some(done.clone());
        Ok(())
    }

    /// Returns the open item that an event belongs to.
    fn item(&mut self, event: &Value, id: &Value) -> Result<&mut Item, String> {
        let index = event["output_index"].as_u64().ok_or("no output_index")?;
        let item = self.items.get_mut(index as usize).ok_or("no such item")?;
        same("id", id, &json!(item.id))?;
        match item.done {
            Some(_) => Err("the item is done".to_owned()),
            None => Ok(item),
        }
    }

    fn inner(&mut self, kind: &str, event: &Value) -> Result<(), String> {
        let item = self.item(event, &event["item_id"])?;
        let kind = kind.trim_start_matches("response.");
        match kind {
            "content_part.added" => item.part_added("content", "content_index", event),
            "reasoning_summary_part.added" => item.part_added("summary", "summary_index", event),
            "content_part.done" => item.part_done("content", event),
            "reasoning_summary_part.done" => item.part_done("summary", event),
            "output_text.delta" | "refusal.delta" | "reasoning_text.delta" | "reasoning.delta" => {
                item.delta(Some("content"), event)
            }
            "reasoning_summary_text.delta" => item.delta(Some("summary"), event),
            "function_call_arguments.delta" | "custom_tool_call_input.delta" => {
                item.delta(None, event)
            }
            "output_text.done"
            | "reasoning_text.done"
            | "reasoning.done"
            | "reasoning_summary_text.done" => item.ended(event, "text"),
            "refusal.done" => item.ended(event, "refusal"),
            "function_call_arguments.done" => {
                same("name", &event["name"], &item.item["name"])?;
                item.ended(event, "arguments")
            }
            "custom_tool_call_input.done" => item.ended(event, "input"),
            "output_text.annotation.added" => {
                same(
                    "annotation_index",
                    &event["annotation_index"],
                    &json!(item.annotations().len()),
                )?;
                let annotation = event["annotation"].clone();
                item.annotations().push(annotation);
                Ok(())
            }
            _ if ["web_search_call.", "code_interpreter_call", "mcp_call"]
                .iter()
                .any(|stem| kind.starts_with(stem)) =>
            {
                Ok(())
            }
            _ => Err("no client knows this event".to_owned()),
        }
    }
}

impl Item {
    fn part_added(&mut self, key: &'static str, index: &str, event: &Value) -> Result<(), String> {
        let parts = self.item[key]
            .as_array_mut()
            .ok_or("an item without parts")?;
        same(index, &event[index], &json!(parts.len()))?;
        let part = &event["part"];
        let text = part
            .get("text")
            .or_else(|| part.get("refusal"))
            .ok_or("a part without text")?;
        same("text", text, &json!(""))?;
        parts.push(part.clone());
        // With reasoning in both places, two parts are open at once; each is checked by its own text.
        if self.part.is_none() {
            (self.text, self.ended, self.logprobs) = (String::new(), false, Vec::new());
        }
        self.part = Some(key);
        Ok(())
    }

    /// Returns the part under `key` that is being filled: the last one.
    fn part(&mut self, key: &str) -> Result<&mut Value, String> {
        self.item[key]
            .as_array_mut()
            .and_then(|parts| parts.last_mut())
            .ok_or_else(|| "no part".to_owned())
    }

    fn annotations(&mut self) -> &mut Vec<Value> {
        self.part("content").unwrap()["annotations"]
            .as_array_mut()
            .unwrap()
    }

    fn delta(&mut self, key: Option<&'static str>, event: &Value) -> Result<(), String> {
        let piece = event["delta"].as_str().ok_or("a delta without text")?;
        fail_if!(piece.is_empty(), "an empty delta");
        let Some(key) = key else {
            self.text.push_str(piece);
            return if self.ended {
                Err("more after its end".to_owned())
            } else {
                Ok(())
            };
        };
        fail_if!(self.part.is_none(), "a delta without its part");
        self.logprobs.extend(
            event
                .get("logprobs")
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default(),
        );
        let part = self.part(key)?;
        let name = if part["type"] == "refusal" {
            "refusal"
        } else {
            "text"
        };
        let so_far = format!("{}{piece}", part[name].as_str().unwrap());
        part[name] = json!(so_far);
        Ok(())
    }

    fn ended(&mut self, event: &Value, key: &str) -> Result<(), String> {
        match event
            .get("content_index")
            .or_else(|| event.get("summary_index"))
        {
            None => same(key, &event[key], &json!(self.text))?,
            Some(_) => {
                let part = if event.get("summary_index").is_some() {
                    "summary"
                } else {
                    "content"
                };
                let told = self.part(part)?[key].clone();
                same(key, &event[key], &told)?;
                if let Some(logprobs) = event.get("logprobs") {
                    same("logprobs", logprobs, &json!(self.logprobs))?;
                }
            }
        }
        self.ended = true;
        Ok(())
    }

    fn part_done(&mut self, key: &'static str, event: &Value) -> Result<(), String> {
        let part = Self::with_bytes(self.part(key)?.clone(), &event["part"], &self.logprobs)?;
        *self.part(key)? = part.clone();
        same("part", &event["part"], &part)?;
        fail_if!(!self.ended, "a part that ends before its text");
        self.part = None;
        Ok(())
    }

    /// Returns a part with the logprobs of `told`, which also hold the bytes of the tokens.
    fn with_bytes(mut part: Value, told: &Value, tokens: &[Value]) -> Result<Value, String> {
        if let Some(told) = told.get("logprobs") {
            let mut plain = told.clone();
            for entry in plain.as_array_mut().into_iter().flatten() {
                for top in entry["top_logprobs"].as_array_mut().into_iter().flatten() {
                    top.as_object_mut().map(|top| top.remove("bytes"));
                }
                entry.as_object_mut().map(|entry| entry.remove("bytes"));
            }
            same("tokens", &plain, &json!(tokens))?;
            part["logprobs"] = told.clone();
        }
        Ok(part)
    }

    /// Returns the item as it must be where the answer breaks off. `end` is the item in the final event.
    fn cut(&self, end: &Value) -> Result<Value, String> {
        let mut cut = self.item.clone();
        if self.part == Some("content")
            && let Some(last) = cut["content"]
                .as_array_mut()
                .and_then(|parts| parts.last_mut())
        {
            let at = self.item["content"].as_array().map_or(0, Vec::len) - 1;
            *last = Self::with_bytes(last.take(), &end["content"][at], &self.logprobs)?;
        }
        cut["status"] = json!("incomplete");
        for key in ["arguments", "input"]
            .iter()
            .filter(|key| self.item.get(**key).is_some())
        {
            cut[*key] = json!(self.text);
        }
        Ok(cut)
    }
}
