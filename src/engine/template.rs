//! Facts about a model's chat template, from prompts that the engine renders without generating (engines G.12).
//!
//! Takes: the routes of the engine, the model, and the replies. Gives: the next request, and in the end
//! [`TemplateFacts`]. Remembers: the prompt of the first request, until the end. Never: sends a request.

use crate::json::{Raw, member, quoted, raw_member};
use crate::wire::{Effort, TemplateFacts};

/// Routes by which an engine renders the prompt of a chat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptRoutes {
    /// Route that returns the text.
    Text(&'static str),
    /// Two routes, of which one returns token ids and the other one their text.
    Tokens {
        /// Path of the route that takes the chat.
        tokenize: &'static str,
        /// Path of the route that takes the token ids.
        detokenize: &'static str,
        /// Further members of its request, each after a comma, which keep special tokens in the text.
        keeps_special: &'static str,
    },
}

impl PromptRoutes {
    /// Returns the path of the route that takes the chat.
    pub fn path(self) -> &'static str {
        match self {
            Self::Text(path) | Self::Tokens { tokenize: path, .. } => path,
        }
    }
}

/// Tool of the prompt that shows how calls are written. No engine runs it.
const TOOL: &str = r#"{"type":"function","function":{"name":"look_up","description":"Looks up a word.","parameters":{"type":"object","properties":{"word":{"type":"string"}},"required":["word"]}}}"#;

/// Request id of the requests, by which they can be told in an engine's log.
pub const REQUEST_ID: &str = "samewire-probe";

/// Index of the prompt with a tool, after one for each switch of thinking.
const OF_TOOL: usize = TemplateFacts::SWITCHES.len();
/// Number of prompts: at last, those for each effort.
const PROMPTS: usize = OF_TOOL + 1 + Effort::KNOWN.len();

/// Upper limit for the token ids of a prompt, in bytes as JSON.
const MOST_IDS: usize = 64 << 10;

/// Requests that render the prompts of one model, at most two for each, and the facts that their replies show.
#[derive(Debug)]
pub struct TemplateProbe<'m> {
    routes: PromptRoutes,
    model: &'m str,
    /// Number of prompts that are done.
    done: usize,
    /// Token ids of the current prompt, as JSON, if its text is still to be requested.
    tokens: Option<String>,
    /// Prompt without a tool and without a switch.
    plain: String,
    facts: TemplateFacts,
    refusal: Option<u16>,
}

impl<'m> TemplateProbe<'m> {
    /// Most requests for the prompts of a model.
    pub const MOST: usize = 2 * PROMPTS;

    /// Creates the requests for a model, by the engine's name for it.
    pub fn new(routes: PromptRoutes, model: &'m str) -> Self {
        Self {
            routes,
            model,
            done: 0,
            tokens: None,
            plain: String::new(),
            facts: TemplateFacts::UNKNOWN,
            refusal: None,
        }
    }

    /// Returns the path and the body of the next request; `None` at the end.
    pub fn next_request(&self) -> Option<(&'static str, String)> {
        let model = quoted(self.model);
        if let PromptRoutes::Tokens {
            detokenize,
            keeps_special,
            ..
        } = self.routes
            && let Some(tokens) = &self.tokens
        {
            let body = format!(r#"{{"model":{model},"tokens":{tokens}{keeps_special}}}"#);
            return Some((detokenize, body));
        }
        let more = match TemplateFacts::SWITCHES.get(self.done) {
            Some(None) => String::new(),
            Some(Some(on)) => {
                format!(r#","chat_template_kwargs":{{"enable_thinking":{on},"thinking":{on}}}"#)
            }
            None if self.done == OF_TOOL => format!(r#","tools":[{TOOL}]"#),
            None => {
                let effort = self.effort()?.name();
                format!(r#","chat_template_kwargs":{{"reasoning_effort":"{effort}"}}"#)
            }
        };
        let body = format!(
            r#"{{"model":{model},"messages":[{{"role":"user","content":"Hello"}}]{more}}}"#
        );
        Some((self.routes.path(), body))
    }

    /// Returns the effort whose prompt is next, if all others are done.
    fn effort(&self) -> Option<Effort> {
        let place = self.done.checked_sub(OF_TOOL + 1)?;
        Effort::KNOWN.get(place).copied()
    }

    /// Takes the reply to that request. A template may refuse one prompt and not the others, which engines report with 400,
    /// 404, 422 or 500; after any other refusal, such as one of the key, nothing more is requested.
    pub fn take(&mut self, status: u16, body: &[u8]) {
        let text = std::str::from_utf8(body).unwrap_or_default();
        let text = if status == 200 { text } else { "" };
        let tokens = raw_member(text, "tokens").map(Raw::get);
        let is_second = self.tokens.take().is_some();
        let is_first = matches!(self.routes, PromptRoutes::Tokens { .. }) && !is_second;
        if let Some(tokens) = tokens.filter(|tokens| is_first && are_ids(tokens)) {
            self.tokens = Some(tokens.to_owned());
            return;
        }
        if let Some(prompt) = ["prompt", "text"].iter().find_map(|key| member(text, key)) {
            self.take_prompt(&prompt);
        }
        let is_of_template = match status {
            200 | 400 | 422 | 500 => true,
            // Of the first prompt it is the route that is missing.
            404 => !self.facts.is_empty(),
            _ => false,
        };
        if !is_of_template {
            self.refusal = Some(status);
        }
        self.done = if is_of_template {
            self.done.saturating_add(1).min(PROMPTS)
        } else {
            PROMPTS
        };
    }

    fn take_prompt(&mut self, prompt: &str) {
        match TemplateFacts::SWITCHES.get(self.done) {
            Some(thinks) => {
                self.facts = self.facts.with_prompt(*thinks, prompt);
                if thinks.is_none() {
                    prompt.clone_into(&mut self.plain);
                }
            }
            None if self.plain.is_empty() => {}
            None => match self.effort() {
                None => self.facts = self.facts.with_tool(self.model, prompt, &self.plain),
                // The template knows no efforts.
                Some(Effort::High) if prompt == self.plain => self.done = PROMPTS,
                Some(effort) => self.facts = self.facts.with_effort(effort, prompt),
            },
        }
    }

    /// Returns the facts that the replies have shown.
    pub fn facts(&self) -> TemplateFacts {
        self.facts
    }

    /// Returns the status of the reply after which nothing more was requested.
    pub fn refusal(&self) -> Option<u16> {
        self.refusal
    }
}

/// Returns true for a list of numbers, which may be sent back.
fn are_ids(tokens: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_digit() || byte == b',' || byte.is_ascii_whitespace();
    let inner = tokens
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    tokens.len() <= MOST_IDS && inner.is_some_and(|inner| inner.bytes().all(is_part))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKENS: PromptRoutes = PromptRoutes::Tokens {
        tokenize: "/tokenize",
        detokenize: "/detokenize",
        keeps_special: r#","skip_special_tokens":false"#,
    };

    /// Answers each request until there is none; returns the probe and the paths.
    fn run(
        routes: PromptRoutes,
        mut answer: impl FnMut(&str, &str) -> (u16, String),
    ) -> (TemplateProbe<'static>, Vec<&'static str>) {
        let (mut probe, mut paths) = (TemplateProbe::new(routes, "org/m\""), Vec::new());
        while let Some((path, body)) = probe.next_request() {
            assert!(Raw::of(&body).is_some(), "{body}");
            assert_eq!(member(&body, "model").as_deref(), Some("org/m\""));
            paths.push(path);
            let (status, reply) = answer(path, &body);
            probe.take(status, reply.as_bytes());
        }
        (probe, paths)
    }

    /// Renders as a template does that thinks unless it is switched off, and writes calls like Qwen's coder.
    fn rendered(body: &str) -> String {
        let calls = if body.contains("look_up") {
            "<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>"
        } else {
            ""
        };
        let end = if body.contains("\"enable_thinking\":false") {
            "<think>\n\n</think>\n\n"
        } else {
            "<think>\n"
        };
        quoted(&format!("{calls}Hello{end}"))
    }

    const EXPECTED: &str = r#"{"thinking_unset":"<think>","thinking_on":"<think>","thinking_off":"","calls":"qwen3_coder"}"#;

    #[test]
    fn a_route_for_texts_is_asked_for_each_prompt() {
        let (probe, paths) = run(PromptRoutes::Text("/apply-template"), |_, body| {
            (200, format!("{{\"prompt\":{}}}", rendered(body)))
        });
        assert_eq!(serde_json::to_string(&probe.facts()).unwrap(), EXPECTED);
        assert_eq!(paths, ["/apply-template"; 5]);
    }

    #[test]
    fn token_ids_are_turned_into_text() {
        let mut text = String::new();
        let (probe, paths) = run(TOKENS, |path, body| match path {
            "/tokenize" => {
                text = rendered(body);
                (200, r#"{"count":2,"tokens":[1,2]}"#.to_owned())
            }
            _ => {
                assert_eq!(raw_member(body, "tokens").map(Raw::get), Some("[1,2]"));
                (200, format!("{{\"text\":{text}}}"))
            }
        });
        assert_eq!(serde_json::to_string(&probe.facts()).unwrap(), EXPECTED);
        assert_eq!(paths, ["/tokenize", "/detokenize"].repeat(5));
        assert_eq!(probe.refusal(), None);
    }

    /// Checks that the efforts are those of a template that knows them.
    #[test]
    fn a_template_with_efforts_is_asked_for_each() {
        let (probe, paths) = run(PromptRoutes::Text("/p"), |_, body| {
            let opened = [
                ("high", "<ifm|think>"),
                ("medium", "<ifm|think_fast>"),
                ("low", ""),
            ];
            let tag = opened.iter().find(|(effort, _)| body.contains(effort));
            (
                200,
                format!("{{\"prompt\":\"Hello{}\"}}", tag.map_or("", |(_, tag)| tag)),
            )
        });
        let expected = r#"{"thinking_unset":"","thinking_on":"","thinking_off":"","thinking_high":"<ifm|think>","thinking_medium":"<ifm|think_fast>","thinking_low":"","calls":null}"#;
        assert_eq!(serde_json::to_string(&probe.facts()).unwrap(), expected);
        assert_eq!(paths.len(), PROMPTS);
    }

    /// A template may refuse tools; then the ends of the prompts are known all the same.
    #[test]
    fn a_refused_prompt_leaves_the_others() {
        let (probe, paths) = run(PromptRoutes::Text("/p"), |_, body| {
            match body.contains("tools") {
                true => (400, "{}".to_owned()),
                false => (200, format!("{{\"prompt\":{}}}", rendered(body))),
            }
        });
        assert_eq!(
            serde_json::to_string(&probe.facts()).unwrap(),
            EXPECTED.replace("\"qwen3_coder\"", "null")
        );
        assert_eq!((paths.len(), probe.refusal()), (5, None));
    }

    #[test]
    fn a_server_that_cannot_render_is_asked_once() {
        for status in [401, 403, 404, 405, 429, 501, 503] {
            let (probe, paths) = run(TOKENS, |_, _| (status, "{}".to_owned()));
            assert_eq!((paths.len(), probe.refusal()), (1, Some(status)));
            assert!(probe.facts().is_empty());
        }
    }

    /// llama.cpp's route for tokens takes only texts, and returns no tokens for a chat.
    #[test]
    fn replies_of_other_shapes_show_nothing() {
        for reply in [
            "",
            "[]",
            "{}",
            r#"{"tokens":null}"#,
            r#"{"tokens":[{"a":1}]}"#,
            r#"{"prompt":7}"#,
            r#"{"prompt":""}"#,
        ] {
            let (probe, paths) = run(TOKENS, |_, _| (200, reply.to_owned()));
            assert!(probe.facts().is_empty(), "{reply}");
            assert_eq!(paths.len(), PROMPTS, "{reply}");
        }
    }
}
