//! Start page of the admin listener: the version that runs, and its readiness.
//!
//! Takes: the state of the process. Gives: HTML for browsers, the same as text for other clients. Never: anything
//! with an effect, or text of engines and of the configuration unescaped.

use crate::html::{Page, Template, escaped};
use crate::server::App;
use crate::server::handlers::page;
use crate::server::handlers::readiness::NotReady;
use crate::server::headers::accepts_type;
use crate::server::net::listener::{self, INSPECTOR_PATH};
use crate::telemetry::Build;
use crate::upstream::Upstream;
use bytes::Bytes;
use http::header::{HOST, VARY};
use http::{HeaderMap, HeaderValue, Response};
use std::fmt::Write as _;

const TEMPLATE: Template = Template {
    title: "samewire",
    style: include_str!("start.css"),
    body: include_str!("start.html"),
};

/// Other routes of this listener, and their purpose.
const LINKS: [(&str, &str); 5] = [
    (
        INSPECTOR_PATH,
        "the inspector: requests, engines, and captured exchanges frame by frame",
    ),
    ("/livez", "whether the process lives"),
    (
        "/readyz?verbose",
        "whether it should get traffic, with a line for each upstream",
    ),
    ("/metrics", "its figures, for Prometheus"),
    ("/captures", "captured exchanges, if any are captured"),
];

/// Content of the page.
struct StartPage {
    base_url: String,
    is_ready: bool,
    why: String,
    upstreams: Vec<UpstreamRow>,
}

/// Row of the table of upstreams.
struct UpstreamRow {
    name: String,
    engine: String,
    version: String,
    trouble: Option<String>,
    in_flight: i64,
}

/// Returns the page as HTML or text, according to the `accept` header.
pub(super) fn answer(app: &App, headers: &HeaderMap) -> Response<Bytes> {
    let start = StartPage::of(app, headers);
    let mut response = match accepts_type(headers, "text/html") {
        true => page::response(&start.html()),
        false => {
            let mut response = Response::new(Bytes::from(start.text()));
            let label = HeaderValue::from_static("text/plain; charset=utf-8");
            response
                .headers_mut()
                .insert(http::header::CONTENT_TYPE, label);
            response
        }
    };
    response
        .headers_mut()
        .insert(VARY, HeaderValue::from_static("accept"));
    response
}

impl StartPage {
    fn of(app: &App, headers: &HeaderMap) -> Self {
        let why = match app.trouble() {
            None => String::new(),
            Some(NotReady::Draining) => "draining".to_owned(),
            Some(NotReady::Upstreams(all)) => all,
        };
        Self {
            base_url: base_url(app, headers),
            is_ready: why.is_empty(),
            why,
            upstreams: app
                .pool
                .upstreams()
                .iter()
                .map(|upstream| UpstreamRow::of(upstream))
                .collect(),
        }
    }

    fn html(&self) -> Page {
        let ready = match self.is_ready {
            true => "<strong class=\"good\">ready</strong>".to_owned(),
            false => format!(
                "<strong class=\"bad\">not ready</strong>: {}",
                escaped(&self.why)
            ),
        };
        let links = LINKS.iter().map(|(path, what)| {
            format!(
                "<li><a href=\"{0}\"><code>{0}</code></a> {1}</li>\n",
                escaped(path),
                escaped(what)
            )
        });
        let values = [
            ("version", escaped(Build::CURRENT.version)),
            ("commit", escaped(Build::CURRENT.commit)),
            ("date", escaped(Build::CURRENT.date)),
            ("ready", ready),
            ("url", escaped(&self.base_url)),
            (
                "upstreams",
                self.upstreams.iter().map(UpstreamRow::html).collect(),
            ),
            ("links", links.collect()),
        ];
        Page::new(TEMPLATE, &values)
    }

    fn text(&self) -> String {
        let Build {
            version,
            commit,
            date,
            ..
        } = Build::CURRENT;
        let mut out = format!("samewire {version}, commit {commit} of {date}\n");
        let _ = match self.is_ready {
            true => writeln!(out, "ready"),
            false => writeln!(out, "not ready: {}", self.why),
        };
        let _ = writeln!(out, "clients: {}\n", self.base_url);
        for UpstreamRow {
            name,
            engine,
            version,
            trouble,
            in_flight,
        } in &self.upstreams
        {
            let ready = trouble.as_deref().unwrap_or("ready");
            let _ = writeln!(
                out,
                "upstream {name}: {engine} {version}, {ready}, {in_flight} in flight"
            );
        }
        out.push('\n');
        LINKS
            .iter()
            .for_each(|(path, what)| _ = writeln!(out, "{path}  {what}"));
        out
    }
}

impl UpstreamRow {
    fn of(upstream: &Upstream) -> Self {
        let identity = upstream.identity();
        let version = identity.version.map_or_else(
            || "version unknown".to_owned(),
            |version| version.to_string(),
        );
        Self {
            name: upstream.config.name.clone(),
            engine: identity.engine.name.to_owned(),
            version,
            trouble: upstream.trouble().map(str::to_owned),
            in_flight: upstream.figures.active.value(),
        }
    }

    fn html(&self) -> String {
        let Self {
            name,
            engine,
            version,
            trouble,
            in_flight,
        } = self;
        let (class, ready) = match trouble {
            None => ("good", "ready"),
            Some(trouble) => ("bad", trouble.as_str()),
        };
        format!(
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td class=\"{class}\">{}</td><td>{in_flight}</td></tr>\n",
            escaped(name),
            escaped(engine),
            escaped(version),
            escaped(ready)
        )
    }
}

/// Returns the base URL for clients, with the host name by which this page was requested.
pub(super) fn base_url(app: &App, headers: &HeaderMap) -> String {
    let named = headers
        .get(HOST)
        .and_then(|host| host.to_str().ok()?.parse::<http::uri::Authority>().ok());
    listener::base_url(
        app.net.clients,
        named.as_ref().map(|authority| authority.host()),
        &app.config,
    )
}
