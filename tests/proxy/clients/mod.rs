//! Clients: what they may send, how they connect, wait and leave, and what each key gives access to.

mod abuse;
mod awaits;
mod azure;
mod bad_requests;
mod budget;
mod connections;
mod cors;
mod fields;
mod framing;
mod hostile;
pub(crate) mod keys;
pub(crate) mod leaving;
mod limits;
mod media;
mod models;
pub(crate) mod patience;
mod priority;
mod quotas;
mod ranges;
mod reports;
mod routes;
mod smuggling;
mod unnamed;
mod uploads;
mod usage;
