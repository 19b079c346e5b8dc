//! Resolution of the names of tool servers. A name with a private address is refused unless the operator allows it: the
//! owner of a name could otherwise direct samewire to servers of the operator's own network.

use crate::request::media::{is_public_v4, is_public_v6};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::io;
use std::net::{IpAddr, SocketAddr};

/// Resolver for one server.
pub(super) struct PublicAddresses;

impl Resolve for PublicAddresses {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let found: Vec<SocketAddr> = found.collect();
            if found.iter().any(|address| !is_public(address.ip())) {
                let why = "its name has a private address; private_addresses = true allows that";
                return Err(io::Error::other(why).into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address.octets()),
        IpAddr::V6(address) => is_public_v6(address.segments()),
    }
}
