//! Table `[trace]`: the collector that traces are exported to, if any, with OpenTelemetry's variables.

use super::mistakes::Mistakes;
use super::rows::{self, table};
use super::values::{Hidden, Seconds};
use crate::secret::{self, Secret};
use http::{HeaderName, Uri};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Path that is appended to the collector's address.
const PATH: &str = "/v1/traces";
/// Format of the headers file, for mistakes.
const LINE: &str = "must have lines of a header's name, a colon and its value";

table! {
    /// Table `[trace]` as written: the collector of traces, and the share of requests to record.
    Trace {
        endpoint: String;
        headers_file: PathBuf;
        sample: f64 = 1.0;
        timeout: Seconds = Seconds::of(5), positive;
    }
}

/// Trace settings from the environment, under OpenTelemetry's own variable names, so that existing deployments
/// work unchanged.
#[derive(Clone, Debug, Default)]
pub struct TraceVariables {
    /// Name and value of `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, or else of `OTEL_EXPORTER_OTLP_ENDPOINT`.
    pub endpoint: Option<(String, String)>,
    /// Value of `OTEL_EXPORTER_OTLP_TRACES_HEADERS`, or else of `OTEL_EXPORTER_OTLP_HEADERS`.
    pub headers: Option<Hidden>,
}

/// Variable with the URL of traces alone, which is used as it is.
const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";

impl TraceVariables {
    /// Returns the URL that OpenTelemetry has used as it is, if there is one.
    fn exact(&self) -> Option<&str> {
        let (name, endpoint) = self.endpoint.as_ref()?;
        (name == TRACES_ENDPOINT).then_some(endpoint)
    }

    pub(super) fn read(variable: impl Fn(&str) -> Option<String>, mistakes: &mut Mistakes) -> Self {
        let off = variable("OTEL_SDK_DISABLED")
            .is_some_and(|value| value.eq_ignore_ascii_case("true"))
            || variable("OTEL_TRACES_EXPORTER").is_some_and(|value| value == "none");
        if off {
            return Self::default();
        }
        let either = |what: &str| {
            let name = |of: &str| format!("OTEL_EXPORTER_OTLP_{of}{what}");
            [name("TRACES_"), name("")]
                .into_iter()
                .find_map(|name| variable(&name).map(|value| (name, value)))
        };
        let headers = either("HEADERS").map(|(_, value)| Hidden(value));
        let this = Self {
            endpoint: either("ENDPOINT"),
            headers,
        };
        let protocol = either("PROTOCOL").filter(|(_, protocol)| protocol != "http/protobuf");
        if let Some((name, _)) = protocol.filter(|_| this.endpoint.is_some()) {
            mistakes.given(name, "traces are exported as http/protobuf alone");
        }
        this
    }
}

/// Checked settings of the trace export to a collector (OTLP over HTTP).
#[derive(Clone, Debug)]
pub struct TraceConfig {
    /// URL that spans are posted to, path included.
    pub url: String,
    /// Headers of every post, often with the collector's credentials.
    pub headers: Vec<(HeaderName, Secret)>,
    /// Share of new traces that is recorded, from 0 to 1.
    pub sample: f64,
    /// Time limit of one post; its spans are dropped afterwards.
    pub timeout: Duration,
}

impl TraceConfig {
    /// Checks the settings. Returns `None` if no collector is configured, or if there is a mistake.
    pub(super) fn resolve<'v>(
        file: &Trace,
        variables: impl Iterator<Item = &'v TraceVariables> + Clone,
        mistakes: &mut Mistakes,
    ) -> Option<Arc<Self>> {
        let headers = variables
            .clone()
            .find_map(|variables| variables.headers.as_ref());
        let is_exact = variables
            .filter_map(TraceVariables::exact)
            .any(|exact| *exact == *file.endpoint);
        if !(0.0..=1.0).contains(&file.sample) {
            mistakes.add("trace.sample", "must be a number from 0 to 1");
        }
        let of_file = of_file(file, mistakes);
        let of_variable = headers
            .map(|headers| of_variable(&headers.0, mistakes))
            .unwrap_or_default();
        if file.endpoint.is_empty() {
            return None;
        }
        if !cfg!(feature = "otlp") {
            return mistakes.add_none(
                "trace.endpoint",
                "this build exports no traces (cargo feature otlp)",
            );
        }
        let url = url(&file.endpoint, is_exact)
            .map_err(|why| mistakes.add("trace.endpoint", why))
            .ok()?;
        // Precedence as everywhere: the environment overrides the file.
        let headers = if of_variable.is_empty() {
            of_file
        } else {
            of_variable
        };
        Some(Arc::new(Self {
            url,
            headers,
            sample: file.sample,
            timeout: *file.timeout,
        }))
    }
}

/// Returns the collector's URL with its path, which is appended unless the URL has it; `is_exact`: or has any other.
/// Fails for anything but a plain http address.
fn url(endpoint: &str, is_exact: bool) -> Result<String, &'static str> {
    const EXAMPLE: &str = "must be an address such as http://127.0.0.1:4318";
    let uri: Uri = endpoint.parse().map_err(|_| EXAMPLE)?;
    let authority = uri
        .authority()
        .filter(|authority| !authority.host().is_empty())
        .ok_or(EXAMPLE)?;
    match uri.scheme_str() {
        Some("http") => {}
        Some("https") => {
            return Err("https is not supported by this version; use http, to a collector nearby");
        }
        _ => return Err(EXAMPLE),
    }
    if authority.as_str().contains('@') {
        return Err("must not carry a user name or password; use headers_file");
    }
    if uri.query().is_some() {
        return Err(EXAMPLE);
    }
    if is_exact && uri.path() != "/" {
        return Ok(format!("http://{authority}{}", uri.path()));
    }
    let path = uri.path().trim_end_matches('/');
    let more = if path.ends_with(PATH) { "" } else { PATH };
    Ok(format!("http://{authority}{path}{more}"))
}

fn of_file(file: &Trace, mistakes: &mut Mistakes) -> Vec<(HeaderName, Secret)> {
    if file.headers_file.as_os_str().is_empty() {
        return Vec::new();
    }
    let path = "trace.headers_file";
    let read = secret::read(&file.headers_file).and_then(|text| {
        let lines = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        let all: Option<Vec<_>> = lines.map(|line| header(line.split_once(':')?)).collect();
        all.filter(|all| !all.is_empty())
            .ok_or_else(|| LINE.to_owned())
    });
    read.map_err(|why| mistakes.add(path, why))
        .unwrap_or_default()
}

/// Parses headers of the form `name=value,name=value`, with percent-encoded values, as OpenTelemetry defines them.
fn of_variable(text: &str, mistakes: &mut Mistakes) -> Vec<(HeaderName, Secret)> {
    let pairs = text
        .split(',')
        .map(str::trim)
        .filter(|pair| !pair.is_empty());
    let decoded = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        let escaped = value
            .replace('+', "%2B")
            .replace('&', "%26")
            .replace('=', "%3D");
        let (value, _) = form_urlencoded::parse(escaped.as_bytes())
            .next()
            .unwrap_or_default();
        header((name, &value))
    };
    let all: Option<Vec<_>> = pairs.map(decoded).collect();
    all.unwrap_or_else(|| {
        mistakes.given(
            "OTEL_EXPORTER_OTLP_HEADERS",
            "must be NAME=VALUE,NAME=VALUE",
        );
        Vec::new()
    })
}

fn header((name, value): (&str, &str)) -> Option<(HeaderName, Secret)> {
    let name = HeaderName::from_bytes(name.trim().as_bytes()).ok()?;
    Some((name, Secret::with_prefix("", value.trim())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_collectors() {
        for (endpoint, expected) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("http://collector:4318/", "http://collector:4318/v1/traces"),
            ("http://collector/otlp", "http://collector/otlp/v1/traces"),
            (
                "http://collector:4318/v1/traces",
                "http://collector:4318/v1/traces",
            ),
            (
                "http://[::1]:4318/v1/traces/",
                "http://[::1]:4318/v1/traces",
            ),
        ] {
            assert_eq!(url(endpoint, false).as_deref(), Ok(expected));
        }
        // OpenTelemetry has the URL for traces used as it is. One that is a host alone means the usual path.
        for (endpoint, expected) in [
            (
                "http://collector/ingest/otel",
                "http://collector/ingest/otel",
            ),
            ("http://collector/v1/traces/", "http://collector/v1/traces/"),
            ("http://collector:4318", "http://collector:4318/v1/traces"),
        ] {
            assert_eq!(url(endpoint, true).as_deref(), Ok(expected));
        }
        for wrong in [
            "",
            "x",
            "collector:4318",
            "https://a",
            "http://u:p@a",
            "http://a?b",
            "ftp://a",
            "http://",
        ] {
            assert!(url(wrong, false).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_environment_speaks_opentelemetry() {
        let read = |pairs: &[(&str, &str)]| {
            let mut mistakes = Mistakes::default();
            let variable = |name: &str| {
                pairs
                    .iter()
                    .find(|(n, _)| *n == name)
                    .map(|(_, value)| (*value).to_owned())
            };
            let read = TraceVariables::read(variable, &mut mistakes);
            (
                read.endpoint.map(|(_, value)| value),
                read.headers.map(|headers| headers.0),
                mistakes == Mistakes::default(),
            )
        };
        let (base, own) = (
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://b"),
        );
        let headers = ("OTEL_EXPORTER_OTLP_HEADERS", "a=b");
        let said = |text: &str| Some(text.to_owned());
        assert_eq!(read(&[]), (None, None, true));
        assert_eq!(
            read(&[base, headers]),
            (said("http://a"), said("a=b"), true)
        );
        assert_eq!(read(&[base, own]), (said("http://b"), None, true));
        assert_eq!(
            read(&[base, ("OTEL_SDK_DISABLED", "true")]),
            (None, None, true)
        );
        assert_eq!(
            read(&[base, ("OTEL_TRACES_EXPORTER", "none")]),
            (None, None, true)
        );
        assert!(!read(&[base, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]).2);
        assert!(read(&[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]).2);
    }

    #[test]
    fn headers_are_secrets() {
        let mut mistakes = Mistakes::default();
        let headers = of_variable(
            "authorization=Bearer%20a+b, x-tenant=t&u=v ,",
            &mut mistakes,
        );
        let shown: Vec<_> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.value().to_str().unwrap().to_owned()))
            .collect();
        assert_eq!(
            shown,
            [
                ("authorization", "Bearer a+b".to_owned()),
                ("x-tenant", "t&u=v".to_owned())
            ]
        );
        assert_eq!(mistakes, Mistakes::default());
        for wrong in ["sk-CANARY", "a b=c", "a=", "=b"] {
            let mut mistakes = Mistakes::default();
            assert!(of_variable(wrong, &mut mistakes).is_empty());
            assert_eq!(
                mistakes.to_string(),
                "OTEL_EXPORTER_OTLP_HEADERS: must be NAME=VALUE,NAME=VALUE"
            );
        }
    }
}
