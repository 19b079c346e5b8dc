//! Operations: the configuration, logs, metrics and traces of the process, its restarts, and several
//! processes on one store.

mod capture;
mod clocks;
mod configuration;
mod crashes;
mod draining;
mod inspector;
pub(crate) mod interleavings;
mod load;
mod log_lines;
mod logs;
mod operators;
mod partition;
mod reload;
pub(crate) mod replicas;
mod scrapes;
mod service_manager;
mod standstill;
#[cfg(feature = "otlp")]
mod traces;
mod upgrades;
