//! Trace collector: accepts OTLP posts, decodes them with the protocol's own types, and answers by a script.

use crate::sim::{Engine, Script, until};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use std::collections::BTreeMap;

/// OpenTelemetry collector on loopback. Dropping it closes all its connections.
pub struct Collector(pub Engine);

impl Collector {
    /// Starts a collector that accepts everything.
    pub async fn start() -> Self {
        Self::script(Script::new().whole("200 OK", "application/x-protobuf", "")).await
    }

    /// Starts a collector that answers every post by `script`.
    pub async fn script(script: Script) -> Self {
        Self(Engine::script(script).await)
    }

    /// Returns the configuration lines that name this collector.
    pub fn config(&self) -> String {
        format!("[trace]\nendpoint = \"{}\"", self.0.url())
    }

    /// Returns the bytes of all posts, heads included.
    pub fn raw(&self) -> Vec<u8> {
        self.0
            .attempts()
            .into_iter()
            .flat_map(|post| [post.head, post.body].concat())
            .collect()
    }

    /// Decodes all posts: the resource attributes and the spans of each.
    pub fn posts(&self) -> Vec<(BTreeMap<String, String>, Vec<Span>)> {
        let posts = self.0.attempts();
        let read = posts.iter().map(|post| {
            assert_eq!(
                (post.method.as_str(), post.target.as_str()),
                ("POST", "/v1/traces")
            );
            assert_eq!(post.header("content-type"), Some("application/x-protobuf"));
            let mut all = ExportTraceServiceRequest::decode(post.body.as_slice())
                .expect("what the protocol says");
            assert_eq!(all.resource_spans.len(), 1);
            let mut of_resource = all.resource_spans.remove(0);
            let resource = of_resource.resource.expect("whose spans they are");
            assert_eq!(of_resource.scope_spans.len(), 1);
            let of_scope = of_resource.scope_spans.remove(0);
            assert_eq!(of_scope.scope.expect("a scope").name, "samewire");
            (attributes(&resource.attributes), of_scope.spans)
        });
        read.collect()
    }

    /// Returns all spans received so far.
    pub fn spans(&self) -> Vec<Span> {
        self.posts()
            .into_iter()
            .flat_map(|(_, spans)| spans)
            .collect()
    }

    /// Waits until at least `count` spans have arrived, and returns all of them.
    pub async fn wait(&self, count: usize) -> Vec<Span> {
        until(&format!("{count} spans"), || self.spans().len() >= count).await;
        self.spans()
    }
}

/// Returns attributes by name with their values as text. Fails the test if a name occurs twice.
pub fn attributes(all: &[KeyValue]) -> BTreeMap<String, String> {
    let named: BTreeMap<_, _> = all
        .iter()
        .map(|pair| (pair.key.clone(), text(pair.value.as_ref())))
        .collect();
    assert_eq!(named.len(), all.len(), "{all:?}");
    named
}

fn text(value: Option<&AnyValue>) -> String {
    match value
        .and_then(|value| value.value.as_ref())
        .expect("a value")
    {
        Value::StringValue(text) => text.clone(),
        Value::IntValue(number) => number.to_string(),
        Value::DoubleValue(number) => format!("{number:.3}"),
        Value::ArrayValue(list) => list
            .values
            .iter()
            .map(|value| text(Some(value)))
            .collect::<Vec<_>>()
            .join("|"),
        other => panic!("{other:?}"),
    }
}
