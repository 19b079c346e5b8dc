//! Endpoint slices, which say which pods are behind a Service: those of a list, and what a watch changes in them
//! (`discovery.k8s.io/v1`).
//!
//! Takes: JSON of the Kubernetes API. Gives: the ready pods. Remembers: the slices. Never: connects.

use crate::config::Pod;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::cmp::min_by_key;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Upper limit for the pods of one selector.
pub(super) const MOST: usize = 4096;

/// Slices of one selector, by name.
#[derive(Debug, Default)]
pub(super) struct Slices(BTreeMap<String, Slice>);

/// Version of the slices, from which a watch goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SliceVersion {
    pub(super) resource_version: String,
}

#[derive(Debug, Deserialize)]
struct SliceList {
    metadata: SliceVersion,
    /// Null if there are none.
    items: Option<Vec<Slice>>,
}

#[derive(Debug, Deserialize)]
struct Slice {
    metadata: Metadata,
    /// Null if there are none.
    endpoints: Option<Vec<Endpoint>>,
    /// Ports of all these endpoints; null if there are none.
    ports: Option<Vec<Port>>,
}

#[derive(Debug, Deserialize)]
struct Port {
    name: Option<String>,
    port: Option<u16>,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    name: String,
    #[serde(flatten)]
    version: SliceVersion,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Endpoint {
    addresses: Vec<String>,
    conditions: Option<Conditions>,
    target_ref: Option<TargetRef>,
}

#[derive(Debug, Deserialize)]
struct Conditions {
    /// Missing means true.
    ready: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct TargetRef {
    name: Option<String>,
}

/// Line of a watch.
#[derive(Debug, Deserialize)]
struct SliceEvent<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// Object of a bookmark, which only tells how far a watch has come.
#[derive(Debug, Deserialize)]
struct Bookmark {
    metadata: SliceVersion,
}

/// Object of an error in a watch.
#[derive(Debug, Deserialize)]
#[serde(default)]
#[derive(Default)]
struct WatchStatus {
    code: u16,
    message: String,
}

/// Reason why a watch cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// The API has forgotten what has changed since this version: the list must be read again.
    Expired,
    /// The API reports an error, or sends what cannot be read.
    Error(String),
}

impl Slices {
    /// Reads a list. Returns its slices, and the version that a watch begins at.
    pub(super) fn read(json: &[u8]) -> Result<(Self, SliceVersion), Broken> {
        let list: SliceList = serde_json::from_slice(json).map_err(unreadable)?;
        let slices = list.items.into_iter().flatten();
        Ok((
            Self(
                slices
                    .map(|slice| (slice.metadata.name.clone(), slice))
                    .collect(),
            ),
            list.metadata,
        ))
    }

    /// Applies a line of a watch, and moves `version` on.
    pub(super) fn apply(&mut self, line: &[u8], version: &mut SliceVersion) -> Result<(), Broken> {
        let event: SliceEvent<'_> = serde_json::from_slice(line).map_err(unreadable)?;
        let object = event.object.get();
        match event.kind {
            "ERROR" => {
                let status: WatchStatus = serde_json::from_str(object).unwrap_or_default();
                const GONE: u16 = 410;
                return Err(match status.code {
                    GONE => Broken::Expired,
                    _ => Broken::Error(status.message),
                });
            }
            "BOOKMARK" => {
                *version = serde_json::from_str::<Bookmark>(object)
                    .map_err(unreadable)?
                    .metadata
            }
            kind => {
                let slice: Slice = serde_json::from_str(object).map_err(unreadable)?;
                version.clone_from(&slice.metadata.version);
                match kind {
                    "DELETED" => _ = self.0.remove(&slice.metadata.name),
                    _ => _ = self.0.insert(slice.metadata.name.clone(), slice),
                }
            }
        }
        Ok(())
    }

    /// Returns the ready pods in the order of their names, at most [`MOST`]. A pod with addresses of both families is
    /// reached by that of IPv4; an endpoint without a pod is named after its address.
    pub(super) fn pods(&self) -> Vec<Pod> {
        let mut pods = BTreeMap::new();
        for slice in self.0.values() {
            let port = slice.port();
            for endpoint in slice
                .endpoints
                .iter()
                .flatten()
                .filter(|endpoint| endpoint.is_ready())
            {
                let addresses = endpoint
                    .addresses
                    .iter()
                    .filter_map(|address| address.parse::<IpAddr>().ok());
                let Some(address) = addresses.min() else {
                    continue;
                };
                let name = endpoint
                    .target_ref
                    .as_ref()
                    .and_then(|target| target.name.clone());
                let known = pods
                    .entry(name.unwrap_or_else(|| address.to_string()))
                    .or_insert((address, port));
                // Of several Services with the same pods, one that names the port counts.
                *known = min_by_key((address, port), *known, |(address, port)| {
                    (*address, port.is_none(), *port)
                });
            }
        }
        pods.into_iter()
            .take(MOST)
            .map(|(name, (address, port))| Pod {
                name,
                address,
                port,
            })
            .collect()
    }
}

impl Slice {
    /// Returns the port to which the Service leads: its only one, or that of the name `http`.
    fn port(&self) -> Option<u16> {
        match self.ports.as_deref().unwrap_or_default() {
            [only] => only.port,
            several => {
                several
                    .iter()
                    .find(|port| port.name.as_deref() == Some("http"))?
                    .port
            }
        }
    }
}

impl Endpoint {
    fn is_ready(&self) -> bool {
        self.conditions
            .as_ref()
            .and_then(|conditions| conditions.ready)
            != Some(false)
    }
}

fn unreadable(error: serde_json::Error) -> Broken {
    Broken::Error(format!("the answer cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(name: &str, version: u32, endpoints: &str) -> String {
        format!(
            "{{\"metadata\":{{\"name\":\"{name}\",\"resourceVersion\":\"{version}\",\"labels\":{{}}}},\
             \"addressType\":\"IPv4\",\"endpoints\":{endpoints},\"ports\":null}}"
        )
    }

    fn endpoint(pod: &str, address: &str, conditions: &str) -> String {
        format!(
            "{{\"addresses\":[\"{address}\"],\"conditions\":{conditions},\"targetRef\":{{\"kind\":\"Pod\",\"name\":\"{pod}\"}}}}"
        )
    }

    fn names(slices: &Slices) -> Vec<String> {
        slices
            .pods()
            .iter()
            .map(|pod| format!("{} {}", pod.name, pod.address))
            .collect()
    }

    #[test]
    fn ready_pods_are_listed_once() {
        let (ready, waiting) = ("{\"ready\":true}", "{\"ready\":false,\"terminating\":true}");
        let of_4 = [
            endpoint("b", "10.0.0.2", ready),
            endpoint("a", "10.0.0.1", "{}"),
            endpoint("c", "10.0.0.3", waiting),
        ];
        let of_6 = [
            endpoint("a", "fd00::1", "null"),
            "{\"addresses\":[\"fd00::9\"]}".to_owned(),
            endpoint("d", "a name", ready),
        ];
        let items = [
            slice("x", 7, &format!("[{}]", of_4.join(","))),
            slice("y", 9, &format!("[{}]", of_6.join(","))),
        ];
        let list = format!(
            "{{\"kind\":\"EndpointSliceList\",\"metadata\":{{\"resourceVersion\":\"12\"}},\"items\":[{}]}}",
            items.join(",")
        );
        let (slices, version) = Slices::read(list.as_bytes()).unwrap();
        assert_eq!(version.resource_version, "12");
        assert_eq!(
            names(&slices),
            ["a 10.0.0.1", "b 10.0.0.2", "fd00::9 fd00::9"]
        );
        let (none, _) =
            Slices::read(b"{\"metadata\":{\"resourceVersion\":\"1\"},\"items\":null}").unwrap();
        assert!(names(&none).is_empty());
        assert!(matches!(Slices::read(b"<html>"), Err(Broken::Error(_))));
    }

    #[test]
    fn a_watch_changes_what_was_listed() {
        let (mut slices, mut version) = (Slices::default(), SliceVersion::default());
        let mut apply = |slices: &mut Slices, kind: &str, object: &str| {
            let line = format!("{{\"type\":\"{kind}\",\"object\":{object}}}");
            slices
                .apply(line.as_bytes(), &mut version)
                .map(|()| version.resource_version.clone())
        };
        let one = |pod, address| format!("[{}]", endpoint(pod, address, "null"));
        let added = apply(&mut slices, "ADDED", &slice("x", 3, &one("a", "10.0.0.1")));
        assert_eq!(
            (added.unwrap().as_str(), names(&slices)),
            ("3", vec!["a 10.0.0.1".to_owned()])
        );
        apply(&mut slices, "ADDED", &slice("y", 4, &one("b", "10.0.0.2"))).unwrap();
        apply(&mut slices, "MODIFIED", &slice("x", 5, "null")).unwrap();
        assert_eq!(names(&slices), ["b 10.0.0.2"]);
        let bookmark = "{\"kind\":\"EndpointSlice\",\"metadata\":{\"resourceVersion\":\"8\"}}";
        assert_eq!(apply(&mut slices, "BOOKMARK", bookmark).unwrap(), "8");
        apply(&mut slices, "DELETED", &slice("y", 9, "[]")).unwrap();
        assert!(names(&slices).is_empty());
        let gone = "{\"kind\":\"Status\",\"code\":410,\"message\":\"too old\"}";
        assert_eq!(apply(&mut slices, "ERROR", gone), Err(Broken::Expired));
        let other = "{\"kind\":\"Status\",\"code\":500,\"message\":\"why\"}";
        assert_eq!(
            apply(&mut slices, "ERROR", other),
            Err(Broken::Error("why".to_owned()))
        );
    }

    #[test]
    fn pods_have_the_port_to_which_their_service_leads() {
        let port = |ports: &str| {
            let slice = slice("x", 1, &format!("[{}]", endpoint("a", "10.0.0.1", "{}")));
            let slice = slice.replace("\"ports\":null", &format!("\"ports\":{ports}"));
            let list =
                format!("{{\"metadata\":{{\"resourceVersion\":\"1\"}},\"items\":[{slice}]}}");
            Slices::read(list.as_bytes()).unwrap().0.pods()[0].port
        };
        assert_eq!(port("null"), None);
        assert_eq!(
            port("[{\"name\":\"\",\"port\":8000,\"protocol\":\"TCP\"}]"),
            Some(8000)
        );
        assert_eq!(
            port("[{\"name\":\"metrics\",\"port\":1},{\"name\":\"http\",\"port\":2}]"),
            Some(2)
        );
        assert_eq!(
            port("[{\"name\":\"a\",\"port\":1},{\"name\":\"b\",\"port\":2}]"),
            None
        );
    }

    #[test]
    fn a_service_that_names_no_port_hides_none() {
        let pod = format!("[{}]", endpoint("a", "10.0.0.1", "{}"));
        let with = slice("x", 1, &pod).replace(
            "\"ports\":null",
            "\"ports\":[{\"name\":\"http\",\"port\":8000}]",
        );
        for items in [
            [with.clone(), slice("y", 2, &pod)],
            [slice("w", 2, &pod), with],
        ] {
            let list = format!(
                "{{\"metadata\":{{\"resourceVersion\":\"1\"}},\"items\":[{}]}}",
                items.join(",")
            );
            assert_eq!(
                Slices::read(list.as_bytes()).unwrap().0.pods()[0].port,
                Some(8000)
            );
        }
    }

    #[test]
    fn pods_are_bounded() {
        let all: Vec<_> = (0..MOST + 10)
            .map(|n| {
                endpoint(
                    &format!("p{n:05}"),
                    &format!("10.0.{}.{}", n / 256, n % 256),
                    "{}",
                )
            })
            .collect();
        let list = format!(
            "{{\"metadata\":{{\"resourceVersion\":\"1\"}},\"items\":[{}]}}",
            slice("x", 1, &format!("[{}]", all.join(",")))
        );
        let (slices, _) = Slices::read(list.as_bytes()).unwrap();
        assert_eq!(slices.pods().len(), MOST);
    }
}
