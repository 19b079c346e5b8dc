//! Table `[discovery]`: the Kubernetes API, which names the pods behind upstreams; and the upstreams that these pods
//! become.

use super::mistakes::Mistakes;
use super::rows::{self, table};
use super::{Config, UpstreamConfig};
use http::Uri;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Folder in which Kubernetes mounts the credentials of a pod.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

table! {
    /// Table `[discovery]` as written. Only upstreams with `pods` use it.
    DiscoveryFile {
        kubernetes: String;
        namespace: String;
        token_file: PathBuf = Path::new(SERVICE_ACCOUNT).join("token");
        ca_file: PathBuf = Path::new(SERVICE_ACCOUNT).join("ca.crt");
    }
}

impl DiscoveryFile {
    /// Returns the address of the Kubernetes API without a trailing slash; `None` if none is configured and the
    /// process does not run in a cluster.
    pub fn api(&self) -> Option<String> {
        if !self.kubernetes.is_empty() {
            return Some(self.kubernetes.trim_end_matches('/').to_owned());
        }
        let host = super::variable("KUBERNETES_SERVICE_HOST")?;
        let port = super::variable("KUBERNETES_SERVICE_PORT").unwrap_or_else(|| "443".to_owned());
        let host = if host.contains(':') {
            format!("[{host}]")
        } else {
            host
        };
        Some(format!("https://{host}:{port}"))
    }

    pub(super) fn check(&self, mistakes: &mut Mistakes) {
        let is_address = |text: &str| {
            let uri = text.parse::<Uri>().ok();
            uri.is_some_and(|uri| {
                matches!(uri.scheme_str(), Some("http" | "https")) && uri.query().is_none()
            })
        };
        if !self.kubernetes.is_empty() && !is_address(&self.kubernetes) {
            mistakes.add(
                "discovery.kubernetes",
                "must be an address such as https://10.96.0.1:443",
            );
        }
        let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if !self.namespace.bytes().all(is_name) {
            mistakes.add("discovery.namespace", "must be the name of a namespace");
        }
    }
}

/// Pod that is ready for requests, as the Kubernetes API reports it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pod {
    /// Name of the pod, unique within its namespace.
    pub name: String,
    /// Address of the pod.
    pub address: IpAddr,
    /// Port of the pod to which the Service leads; `None`: that of the upstream's URL.
    pub port: Option<u16>,
}

/// Ready pods by label selector, in the order of their names.
pub type Pods = BTreeMap<String, Vec<Pod>>;

/// Returns a copy of the upstream that leads to one of its pods. The certificate is still checked against the host in
/// the URL.
fn of_pod(upstream: &UpstreamConfig, pod: &Pod) -> UpstreamConfig {
    let host = match pod.address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    };
    let port = pod.port.unwrap_or(upstream.port);
    UpstreamConfig {
        name: format!("{}/{}", upstream.name, pod.name),
        host,
        port,
        ..upstream.clone()
    }
}

impl Config {
    /// Returns the label selectors of all upstreams that stand for pods.
    pub fn selectors(&self) -> impl Iterator<Item = &str> {
        self.upstreams
            .iter()
            .filter_map(|upstream| upstream.pods.as_deref())
    }

    /// Returns the configuration with an upstream for each known pod, in place of the upstream that stands for them.
    /// An upstream without known pods stays, and requests go to its URL.
    #[must_use]
    pub fn with_pods(mut self, pods: &Pods) -> Self {
        let (mut upstreams, mut origins, mut entries) = (Vec::new(), Vec::new(), Vec::new());
        for (at, upstream) in self.upstreams.iter().enumerate() {
            let before = upstreams.len();
            let known = upstream
                .pods
                .as_ref()
                .and_then(|selector| pods.get(&**selector));
            match known.filter(|known| !known.is_empty()) {
                Some(known) => upstreams.extend(known.iter().map(|pod| of_pod(upstream, pod))),
                None => upstreams.push(upstream.clone()),
            }
            origins.resize(upstreams.len(), at);
            entries.push(before..upstreams.len());
        }
        self.layers = self.layers.of_upstreams(&origins);
        for model in &mut self.models {
            let of = |at: &usize| entries.get(*at).cloned().unwrap_or_default();
            model.upstreams = model.upstreams.iter().flat_map(of).collect();
        }
        (self.upstreams, self.entries) = (upstreams, entries);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pods(names: &[(&str, &str)]) -> Vec<Pod> {
        let pod = |(name, address): &(&str, &str)| Pod {
            name: (*name).to_owned(),
            address: address.parse().unwrap(),
            port: None,
        };
        names.iter().map(pod).collect()
    }

    const FILE: &str = "\
        [[upstream]]\nname = \"a\"\nurl = \"http://a:1\"\n\
        [[upstream]]\nname = \"b\"\nurl = \"http://b:2/x\"\npods = \"app=b\"\nwire = { reasoning_field = \"none\" }\n\
        [[upstream]]\nname = \"c\"\nurl = \"http://c:3\"\n\
        [[model]]\nname = \"m\"\nupstreams = [\"b\", \"c\"]\n";

    #[test]
    fn each_pod_is_an_upstream_like_the_one_that_stands_for_it() {
        let config = Config::read(FILE, &[]).unwrap();
        let known = Pods::from([(
            "app=b".to_owned(),
            pods(&[("p", "10.0.0.1"), ("q", "fd00::1")]),
        )]);
        let found = config.clone().with_pods(&known);
        let names: Vec<_> = found
            .upstreams
            .iter()
            .map(|upstream| upstream.name.as_str())
            .collect();
        assert_eq!(names, ["a", "b/p", "b/q", "c"]);
        let b = &found.upstreams[2];
        assert_eq!(
            (b.host.as_str(), b.port, b.prefix.as_str()),
            ("[fd00::1]", 2, "/x")
        );
        assert_eq!(found.models[0].upstreams, [1, 2, 3]);
        assert_eq!(found.entries, [0..1, 1..3, 3..4]);
        let field = |at| found.layers.options(at, Some(0), None).reasoning_field;
        assert_eq!(field(1), field(2));
        assert_ne!(field(2), field(3));
        let elsewhere = Pod {
            port: Some(9),
            ..known["app=b"][0].clone()
        };
        let moved = config
            .clone()
            .with_pods(&Pods::from([("app=b".to_owned(), vec![elsewhere])]));
        assert_eq!(moved.upstreams[1].port, 9);
        for none in [Pods::new(), Pods::from([("app=b".to_owned(), Vec::new())])] {
            assert_eq!(config.clone().with_pods(&none).upstreams, config.upstreams);
        }
        assert_eq!(config.selectors().collect::<Vec<_>>(), ["app=b"]);
    }

    #[test]
    fn wrong_settings_are_named() {
        for (lines, told) in [
            ("kubernetes = \"10.0.0.1\"", "discovery.kubernetes"),
            ("namespace = \"A b\"", "discovery.namespace"),
        ] {
            let text = format!("{FILE}[discovery]\n{lines}");
            let mistakes = Config::read(&text, &[]).unwrap_err().to_string();
            assert!(mistakes.contains(told), "{mistakes}");
        }
        let text = FILE.replace("app=b", "app=b&watch=1");
        assert!(
            Config::read(&text, &[])
                .unwrap_err()
                .to_string()
                .contains("upstream[1].pods")
        );
    }
}
