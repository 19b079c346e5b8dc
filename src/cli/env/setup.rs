//! Texts that set up a client: variables for the shell, or a configuration file.
//!
//! Takes: addresses, a model and its context. Gives: the text. Never: has a key, or a name that a shell or a file
//! would read as anything but text.

use crate::json::quoted;
use std::fmt::Write;

/// Largest output limit that a client gets, in tokens. Claude Code itself uses it for models that it does not know.
const ANSWER: u64 = 32_000;

/// Facts that clients should know.
pub(super) struct Setup<'a> {
    /// URL of samewire, without `/v1`.
    pub(super) root: &'a str,
    /// URL of the API, which ends with `/v1`.
    pub(super) base: &'a str,
    /// Name of the model, without control characters.
    pub(super) model: &'a str,
    /// Number of tokens that the model's context holds, if it is known.
    pub(super) context: Option<u64>,
    /// Absolute path of the file with the client's key, if there is one.
    pub(super) key_file: Option<&'a str>,
}

impl Setup<'_> {
    /// Returns the variables of Claude Code (2.1.332).
    pub(super) fn claude(&self) -> String {
        let model = shell(self.model);
        let mut text = String::from("# Claude Code: source <(samewire env claude)\n");
        let mut export = |name: &str, value: &str| _ = writeln!(text, "export {name}={value}");
        export("ANTHROPIC_BASE_URL", &shell(self.root));
        export("ANTHROPIC_AUTH_TOKEN", &self.key());
        for name in [
            "ANTHROPIC_MODEL",
            "ANTHROPIC_DEFAULT_OPUS_MODEL",
            "ANTHROPIC_DEFAULT_SONNET_MODEL",
            "ANTHROPIC_DEFAULT_HAIKU_MODEL",
            "ANTHROPIC_DEFAULT_FABLE_MODEL",
            "ANTHROPIC_SMALL_FAST_MODEL",
            "CLAUDE_CODE_SUBAGENT_MODEL",
        ] {
            export(name, &model);
        }
        export("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1");
        match self.context {
            Some(context) => {
                export("CLAUDE_CODE_MAX_CONTEXT_TOKENS", &context.to_string());
                export(
                    "CLAUDE_CODE_MAX_OUTPUT_TOKENS",
                    &answer(context).to_string(),
                );
                text.push_str(
                    "# To sum conversations up earlier, from 100,000 tokens on: export CLAUDE_CODE_AUTO_COMPACT_WINDOW=100000\n",
                );
            }
            None => text.push_str(&unknown("export CLAUDE_CODE_MAX_CONTEXT_TOKENS=TOKENS")),
        }
        text.push_str(
            "# low, medium, high, xhigh or max: export CLAUDE_CODE_EFFORT_LEVEL=medium\n",
        );
        text
    }

    /// Returns the `config.toml` of the Codex CLI (0.171).
    pub(super) fn codex(&self) -> String {
        let mut text = format!("# Codex: ~/.codex/config.toml\n# {}\n", self.key_line());
        let _ = writeln!(
            text,
            "model = {}\nmodel_provider = \"samewire\"",
            quoted(self.model)
        );
        match self.context {
            Some(context) => _ = writeln!(text, "model_context_window = {context}"),
            None => text.push_str(&unknown("model_context_window = TOKENS")),
        }
        text.push_str("# low, medium or high: model_reasoning_effort = \"medium\"\n");
        let _ = writeln!(
            text,
            "\n[model_providers.samewire]\nname = \"samewire\"\nbase_url = {}\nwire_api = \"responses\"\n\
             env_key = \"SAMEWIRE_KEY\"\nsupports_websockets = true\nmodel_catalog_url = {}",
            quoted(self.base),
            quoted(&format!("{}/models", self.base))
        );
        text
    }

    /// Returns the `opencode.jsonc` of opencode (1.18).
    pub(super) fn opencode(&self) -> String {
        let limit = self.context.map_or_else(String::new, |context| {
            format!(
                ", \"limit\": {{ \"context\": {context}, \"output\": {} }}",
                answer(context)
            )
        });
        let (model, meant) = (
            quoted(self.model),
            quoted(&format!("samewire/{}", self.model)),
        );
        format!(
            "// opencode: ~/.config/opencode/opencode.jsonc, or opencode.jsonc in the project\n// {}\n{{\n  \
             \"$schema\": \"https://opencode.ai/config.json\",\n  \"model\": {meant},\n  \"small_model\": {meant},\n  \
             \"provider\": {{\n    \"samewire\": {{\n      \"npm\": \"@ai-sdk/openai-compatible\",\n      \
             \"name\": \"samewire\",\n      \"options\": {{ \"baseURL\": {}, \"apiKey\": \"{{env:SAMEWIRE_KEY}}\" }},\n      \
             \"models\": {{ {model}: {{ \"name\": {model}{limit} }} }}\n    }}\n  }}\n}}\n",
            self.key_line(),
            quoted(self.base)
        )
    }

    /// Returns the `settings.json` of Qwen Code (0.24).
    pub(super) fn qwen(&self) -> String {
        let limits = self.context.map_or_else(String::new, |context| {
            format!(
                ",\n        \"generationConfig\": {{ \"contextWindowSize\": {context}, \"samplingParams\": {{ \"max_tokens\": {} }} }}",
                answer(context)
            )
        });
        let model = quoted(self.model);
        format!(
            "// Qwen Code: ~/.qwen/settings.json, or .qwen/settings.json in the project\n// {}\n{{\n  \
             \"security\": {{ \"auth\": {{ \"selectedType\": \"openai\" }} }},\n  \"model\": {{ \"name\": {model} }},\n  \
             \"modelProviders\": {{\n    \"openai\": [\n      {{\n        \"id\": {model},\n        \"name\": {model},\n        \
             \"envKey\": \"SAMEWIRE_KEY\",\n        \"baseUrl\": {}{limits}\n      }}\n    ]\n  }}\n}}\n",
            self.key_line(),
            quoted(self.base)
        )
    }

    /// Returns the variables of OpenAI's libraries.
    pub(super) fn openai(&self) -> String {
        let context = self.context.map_or_else(String::new, |context| {
            format!(" Its context holds {context} tokens.")
        });
        format!(
            "# OpenAI's libraries: source <(samewire env openai)\nexport OPENAI_BASE_URL={}\nexport OPENAI_API_KEY={}\n\
             # The libraries do not read this one: a program names its model itself.{context}\nexport OPENAI_MODEL={}\n",
            shell(self.base),
            self.key(),
            shell(self.model)
        )
    }

    /// Returns the client's key as a word of the shell.
    fn key(&self) -> String {
        match self.key_file {
            Some(path) => format!("\"$(cat {})\"", shell(path)),
            // Clients want a key also where nobody checks it.
            None => "\"${SAMEWIRE_KEY:-none}\"".to_owned(),
        }
    }

    /// Returns how the client gets its key, which a file only names.
    fn key_line(&self) -> String {
        format!(
            "Its key is in the environment, any word where none is checked: export SAMEWIRE_KEY={}",
            self.key()
        )
    }
}

/// Returns the limit of an answer that leaves room for the prompt, in tokens.
fn answer(context: u64) -> u64 {
    (context / 4).clamp(1, ANSWER)
}

/// Returns a comment for a context that nobody knows.
fn unknown(setting: &str) -> String {
    format!(
        "# The engine does not say how long the context is; `context_length` of [[model]] does, or: {setting}\n"
    )
}

/// Returns a text as one word of a POSIX shell.
fn shell(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:@%+,=".contains(&byte);
    match !text.is_empty() && text.bytes().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_shell_are_text() {
        for (text, word) in [
            ("Qwen/Qwen3-32B", "Qwen/Qwen3-32B"),
            ("", "''"),
            ("$(rm -rf ~)", "'$(rm -rf ~)'"),
            ("it's", r"'it'\''s'"),
            ("a b;c", "'a b;c'"),
        ] {
            assert_eq!(shell(text), word);
        }
    }

    #[test]
    fn an_answer_leaves_room_for_the_prompt() {
        assert_eq!(
            [1, 4096, 32_768, 262_144].map(answer),
            [1, 1024, 8192, 32_000]
        );
    }
}
