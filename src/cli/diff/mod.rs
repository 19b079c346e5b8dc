//! `samewire diff`: says how the shapes of two answers differ, apart from their words.

mod report;
mod table;

use super::{CommandFailure, print};
use crate::config::Terminal;
use crate::diff::{self, Compared};
use clap::Args;
use report::Report;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use table::Look;

/// Compare two answers: their shape, apart from their words.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Diff {
    /// A recorded exchange, a folder of such, or a body in a file named .sse, .json or .txt
    a: PathBuf,
    /// The other side, of the same kind
    b: PathBuf,
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

An exchange is a folder with request.json and the answer: upstream.sse, .json or .txt (or response.sse and so on),
perhaps with status line and headers in upstream.http.

Shape is what a client's code depends on: which fields there are and of which type, null or missing, the order and the
names of events, what comes together in one of them, fixed values such as finish_reason, status and content type. Words
are what differs between any two answers. A text in 12 pieces has the same shape as one in 9. Comments are not compared,
as servers write them when they have nothing else to write.

--json prints one object: same_shape, only_a, only_b, and pairs. Each pair has name, same_shape, frames (what they say,
and where each side has them), shape (kind, path, a, b, and the number of the first of the frames concerned) and words
(topic and path; with --words the words as well).

Exit code: 0 the shapes are the same, 1 they differ, 2 wrong usage, or a file that cannot be read.
Exchanges that one side alone has are listed and do not count.";

impl Diff {
    pub(super) fn run(self) -> Result<ExitCode, CommandFailure> {
        let Compared { pairs, only_a, only_b } = diff::load(&self.a, &self.b).map_err(|error| {
            // File names and parts of files may hold characters that steer a terminal.
            CommandFailure::usage(table::visible(&error.to_string()))
        })?;
        let pairs = pairs.into_iter().map(|pair| (pair.name, diff::compare(&pair.a, &pair.b))).collect();
        let names = [&self.a, &self.b].map(|path| path.display().to_string());
        let report = Report { names, pairs, only: [only_a, only_b], has_words: self.words };
        match self.json {
            true => print(format_args!("{}\n", report.json())),
            false => print(report.text(look())),
        }
        Ok(ExitCode::from(u8::from(!report.is_same())))
    }
}

/// Returns the terminal's properties. `COLUMNS` takes precedence, so that the width can be chosen.
fn look() -> Look {
    let Terminal { plain, columns } = Terminal::environment();
    let measured = || terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    let width = columns.or_else(measured).unwrap_or(100).clamp(40, 200);
    Look { width, has_colour: !plain && io::stdout().is_terminal() }
}
