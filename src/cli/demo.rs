//! `samewire demo`: what samewire does, shown in a terminal.

use super::{CommandFailure, has_colour, terminal_width};
use crate::config::{LogFormat, LogLevel};
use crate::demo::page::{TerminalProfile, heading, render};
use crate::demo::{self, DemoError, DemoServer, REASONING, TOOL, snippet, web};
use crate::telemetry;
use clap::{Args, ValueEnum};
use std::io::{self, Write};
use std::process::ExitCode;

/// See what it does.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Demo {
    /// Where it goes on serving
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: String,
    /// Address of the inspector, which shows each request and its frames [default: a free port]
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:0",
        hide_default_value = true
    )]
    admin_listen: String,
    /// Request to the engines: a model that thinks, or one that calls a function
    #[arg(long, value_name = "WHAT", default_value = "reasoning")]
    show: Show,
    /// Print and end, instead of going on to serve
    #[arg(long)]
    once: bool,
}

const EXAMPLES: &str = "\
Examples:
  samewire demo
      Prints what vLLM and SGLang send for the same request and what clients receive instead, then
      serves recorded answers on http://127.0.0.1:8080/v1 until Ctrl-C. http://127.0.0.1:8080/ shows
      the same in a browser, where a button asks for both answers live. The inspector's address is
      printed too: it shows each request, and its frames before and after.
  samewire demo --show tool --once
      Another request, and nothing is served.
  samewire demo --listen 127.0.0.1:0 --admin-listen 127.0.0.1:9090
      On a free port, which is printed; the inspector on a port that is always the same.

The engines are recordings that are part of this program; the proxy in front of them is the real one.
Nothing leaves this machine. NO_COLOR turns colours off.

Exit codes: 0 done, or ended by a signal, 2 wrong usage, 3 the port cannot be had.";

/// Scene to show: the request that both engines have answered.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Show {
    Reasoning,
    Tool,
}

impl Demo {
    pub(super) fn run(&self) -> Result<ExitCode, CommandFailure> {
        // Log lines would spoil the page, so only errors are logged.
        let logging = telemetry::start_logging(LogLevel::Error, LogFormat::Auto)
            .map_err(CommandFailure::environment)?;
        telemetry::watch_panics();
        let shown = self.show();
        drop(logging);
        match shown {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(DemoError::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
                Ok(ExitCode::SUCCESS)
            }
            Err(trouble @ DemoError::Settings(_)) => Err(CommandFailure::usage(trouble)),
            Err(trouble) => Err(CommandFailure::environment(trouble)),
        }
    }

    fn show(&self) -> Result<(), DemoError> {
        // Bound first, so that an occupied port is reported at once.
        let stand = (!self.once)
            .then(|| DemoServer::open(&self.listen, &self.admin_listen))
            .transpose()?;
        let scene = match self.show {
            Show::Reasoning => &REASONING,
            Show::Tool => &TOOL,
        };
        let comparison = demo::show(scene)?;
        let look = TerminalProfile {
            width: terminal_width(60),
            colour: has_colour(),
        };
        print(&render(scene, &comparison, look))?;
        if let Some(stand) = stand {
            print(&heading("Your turn", look))?;
            let (url, models) = (stand.base_url()?, stand.models());
            print(&invitation(&stand.inspector_url()?, &url, &models))?;
            stand.serve(web::render(scene, &comparison, &url, &models))?;
        }
        Ok(())
    }
}

fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Returns the text after the page: how to use the running server.
fn invitation(inspector: &str, url: &str, models: &[String]) -> String {
    let of = |engine: &str| {
        let names: Vec<_> = models
            .iter()
            .filter(|name| name.starts_with(engine))
            .map(String::as_str)
            .collect();
        names.join(", ")
    };
    format!(
        "{inspector} is the inspector: each request, and what was changed in each frame.\n\n\
         {url} serves recorded answers until Ctrl-C.\n\
         {} shows this page in a browser, and both answers live.\n\n{}\n\n{}\n\n\
         Models:  {}\n         {}\n\
         Any other name is answered too.\n\
         In front of an engine of your own: samewire serve --upstream http://HOST:PORT\n",
        url.strip_suffix("v1").unwrap_or(url),
        snippet::curl(url),
        snippet::python(url),
        of("vllm/"),
        of("sglang/")
    )
}
