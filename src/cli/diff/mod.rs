//! `samewire diff`: says how the shapes of two answers differ, apart from their words.

mod report;
mod servers;

use super::table::Look;
use super::{CommandFailure, has_colour, print, terminal_width};
use crate::diff::{self, Compared, Pair};
use crate::visible::visible;
use clap::Args;
use report::Report;
use servers::Servers;
use std::path::PathBuf;
use std::process::ExitCode;

/// Compare two answers: their shape, apart from their words.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Diff {
    /// A recorded exchange, a folder of such, or a body in a file named .sse, .json or .txt; with --ask, a server
    a: PathBuf,
    /// The other side, of the same kind
    b: PathBuf,
    #[command(flatten)]
    servers: Servers,
    /// Print the words that differ, too: texts, arguments, ids, times, counts and names of models
    #[arg(long)]
    words: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  samewire diff fixtures/vllm/tool fixtures/sglang/tool
      What a client has to cope with that knows one engine and meets the other.
  samewire diff captures/before captures/after
      Two folders of exchanges, paired by their names: after an update of an engine, for example.
  samewire diff good.sse bad.sse --words
      Two bodies alone, without status and headers.
  samewire diff --ask request.json http://127.0.0.1:8000 http://127.0.0.1:8080
      The answers of an engine and of samewire in front of it to the same request, sent now.

An exchange is a folder with request.json and the answer: upstream.sse, .json or .txt (or
response.sse and so on), perhaps with status line and headers in upstream.http.

Shape is what a client's code depends on: which fields there are and of which type, null or
missing, the order and the names of events, what comes together in one of them, fixed values such
as finish_reason, status and content type. Words are what differs between any two answers. A text
in 12 pieces has the same shape as one in 9. Comments are not compared, as servers write them when
they have nothing else to write.

--json prints one object: same_shape, only_a, only_b, and pairs. Each pair has name, same_shape,
frames (what they say, and where each side has them), shape (kind, path, a, b, and the number of
the first of the frames concerned) and words (topic and path; with --words the words as well).

--ask sends a body to /v1/chat/completions, or to /v1/responses if it has input, or to
/v1/completions if it has prompt. The request.json of an exchange names its own path.

Exit code: 0 the shapes are the same, 1 they differ, 2 wrong usage, or a file that cannot be read,
3 a server that does not answer, or not with what can be read.
Exchanges that one side alone has are listed and do not count.";

impl Diff {
    pub(super) fn run(self) -> Result<ExitCode, CommandFailure> {
        let Compared {
            pairs,
            only_a,
            only_b,
        } = self.sides()?;
        let pairs = pairs
            .into_iter()
            .map(|pair| (pair.name, diff::compare(&pair.a, &pair.b)))
            .collect();
        let report = Report {
            names: [&self.a, &self.b].map(|path| path.display().to_string()),
            pairs,
            only: [only_a, only_b],
            has_words: self.words,
        };
        match self.json {
            true => print(format_args!("{}\n", report.json())),
            false => print(report.text(Look {
                width: terminal_width(40),
                has_colour: has_colour(),
            })),
        }
        Ok(ExitCode::from(u8::from(!report.is_same())))
    }

    /// Returns what is compared: files, or the answers of two servers.
    fn sides(&self) -> Result<Compared, CommandFailure> {
        // File names, and parts of files and of answers, may hold characters that steer a terminal.
        let shown = |CommandFailure(code, why): CommandFailure| CommandFailure(code, visible(&why));
        let Some(file) = &self.servers.ask else {
            let loaded = diff::load(&self.a, &self.b);
            return loaded.map_err(|error| shown(CommandFailure::usage(error)));
        };
        let urls = [&self.a, &self.b].map(|url| url.to_string_lossy().into_owned());
        let [a, b] = self
            .servers
            .answers(file, urls.each_ref().map(String::as_str))
            .map_err(shown)?;
        Ok(Compared {
            pairs: vec![Pair { name: None, a, b }],
            only_a: Vec::new(),
            only_b: Vec::new(),
        })
    }
}
