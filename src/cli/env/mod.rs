//! `samewire env`: what a client should know of a running samewire.

mod setup;

use super::target::TargetFlags;
use super::{CommandFailure, print, runtime};
use crate::config::{Overrides, client_key, clients_url};
use crate::exchange::{Bounds, Exchange, Request, Sender};
use crate::nearest::suggest;
use crate::upstream::models::{self, ListedModel};
use crate::visible::{excerpt, visible};
use bytes::Bytes;
use clap::{Args, ValueEnum};
use http::{HeaderMap, Method};
use setup::Setup;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Time limit for the list of models.
const PATIENCE: Duration = Duration::from_secs(10);
/// Number of characters of a foreign text in a message.
const SHOWN: usize = 200;
/// Number of models that a message lists.
const LISTED: usize = 20;

/// Print what a client should know of a running samewire.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Env {
    /// The client
    client: ClientProgram,
    /// Base URL of the running samewire, with or without /v1 [default: as configured, else
    /// http://127.0.0.1:8080]
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// The configuration file of the running samewire
    #[arg(long, value_name = "FILE", conflicts_with = "url")]
    config: Option<PathBuf>,
    /// The model, where there are several
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    #[command(flatten)]
    target: TargetFlags,
}

/// Client that is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ClientProgram {
    /// Claude Code: variables for the shell
    Claude,
    /// The Codex CLI: its config.toml
    Codex,
    /// opencode: its opencode.jsonc
    Opencode,
    /// Qwen Code: its settings.json
    Qwen,
    /// OpenAI's libraries and what builds on them: variables for the shell
    Openai,
}

const EXAMPLES: &str = "\
Examples:
  source <(samewire env claude) && claude
  eval \"$(samewire env openai --model m)\"
  samewire env codex
  samewire env opencode --url https://llm.example --key-file key.txt

The command asks the running samewire for its models. It reads the key from --key-file, else from
SAMEWIRE_KEY. The output refers to that file or to SAMEWIRE_KEY, and never contains the key.

Exit codes: 0 printed, 2 wrong usage, such as no model named where there are several, 3 nobody
answers, or there is no model.";

impl Env {
    pub(super) fn run(&self) -> Result<ExitCode, CommandFailure> {
        let url = match &self.url {
            Some(url) => url.clone(),
            None => {
                let flags = Overrides {
                    config: self.config.clone(),
                    ..Overrides::default()
                };
                clients_url(&flags).map_err(CommandFailure::usage)?
            }
        };
        let sender = self
            .target
            .sender_with(&url, Bounds::within(PATIENCE), client_key())?;
        let listed = runtime()?.block_on(listed(&sender))?;
        let model = self.chosen(&listed, sender.target().base())?;
        let key_file = self.key_path()?;
        let setup = Setup {
            root: sender.target().root(),
            base: sender.target().base(),
            model: &model.id,
            context: model.context_length,
            key_file: key_file.as_deref(),
        };
        print(match self.client {
            ClientProgram::Claude => setup.claude(),
            ClientProgram::Codex => setup.codex(),
            ClientProgram::Opencode => setup.opencode(),
            ClientProgram::Qwen => setup.qwen(),
            ClientProgram::Openai => setup.openai(),
        });
        Ok(ExitCode::SUCCESS)
    }

    /// Returns the absolute path of the file with the key.
    fn key_path(&self) -> Result<Option<String>, CommandFailure> {
        let Some(path) = &self.target.key_file else {
            return Ok(None);
        };
        let full =
            std::path::absolute(path).map_err(|error| CommandFailure::at(path.display(), error))?;
        let text = full
            .to_str()
            .filter(|text| !text.chars().any(char::is_control));
        let text = text.ok_or_else(|| {
            CommandFailure::usage("--key-file: the path has characters that no shell takes")
        })?;
        Ok(Some(text.to_owned()))
    }

    /// Returns the model that is named, or the only one; further names of the same weights do not count.
    fn chosen<'m>(
        &self,
        listed: &'m [ListedModel],
        base: &str,
    ) -> Result<&'m ListedModel, CommandFailure> {
        let names = || listed.iter().map(|model| model.id.as_str());
        if let Some(name) = &self.model {
            let unknown = || {
                let why = format!("--model: {base}/models does not list {}", visible(name));
                CommandFailure::usage(suggest(why, name, names()))
            };
            return listed
                .iter()
                .find(|model| model.id == *name)
                .ok_or_else(unknown);
        }
        let is_main = models::are_main(&listed.iter().collect::<Vec<_>>());
        let main: Vec<_> = listed
            .iter()
            .zip(is_main)
            .filter_map(|(model, main)| main.then_some(model))
            .collect();
        match main.as_slice() {
            [] => Err(CommandFailure::environment(format_args!(
                "{base}/models lists no model"
            ))),
            [only] => Ok(only),
            several => {
                let shown: Vec<_> = several
                    .iter()
                    .take(LISTED)
                    .map(|model| visible(&model.id))
                    .collect();
                let more = if several.len() > LISTED {
                    " and others"
                } else {
                    ""
                };
                Err(CommandFailure::usage(format_args!(
                    "there are several models; name one with --model: {}{more}",
                    shown.join(", ")
                )))
            }
        }
    }
}

/// Asks for the models. Those whose names no configuration can have are left out.
async fn listed(sender: &Sender) -> Result<Vec<ListedModel>, CommandFailure> {
    let request = Request {
        method: Method::GET,
        path: "/models".to_owned(),
        headers: HeaderMap::new(),
        body: Bytes::new(),
    };
    let answer = sender.send(request).await.map_err(|failure| {
        CommandFailure::environment(format_args!(
            "no samewire answers: {failure}; start one with `samewire serve`, or say where it is with --url"
        ))
    })?;
    let base = sender.target().base();
    let models = models::read(&answer.body).filter(|_| answer.status.is_success());
    let mut models = models.ok_or_else(|| CommandFailure::environment(refused(base, &answer)))?;
    models.retain(|model| !model.id.is_empty() && !model.id.chars().any(char::is_control));
    Ok(models)
}

/// Returns why an answer is no list of models, in plain words.
fn refused(base: &str, answer: &Exchange) -> String {
    if let Some(redirect) = answer.redirect() {
        return format!("{base}/models: {redirect}");
    }
    let text = excerpt(&String::from_utf8_lossy(&answer.body), SHOWN);
    match answer.status.as_u16() {
        401 | 403 => format!(
            "{base}/models: the key is missing or wrong: --key-file names a file with it, or SAMEWIRE_KEY has it ({text})"
        ),
        200 => format!("{base}/models: the answer is no list of models: {text}"),
        status => format!("{base}/models: status {status}: {text}"),
    }
}
