//! samewire lets any client speak one exact OpenAI dialect to any engine.
//!
//! All that is hard about it is a function from an engine's bytes to canonical bytes. That function is [`wire`]: a pure,
//! synchronous state machine. Everything that waits, connects, draws ids or reads clocks is a thin shell around it.
//!
//! ```text
//! client ──→ server::routes ──→ request::Ask ──→ plan::Plan ──→ upstream::Client ──→ engine
//!                                                   │                                  │
//!                                                   ▼                                  ▼ bytes, cut anywhere
//! client ←── server::Relay  ←── wire::Rewriter { Framer → Decode → (Parse) → Normaliser → Encode }
//! ```
//!
//! Modules in reading order; each imports only what stands before it (`tests/layering.rs` reads this list), and those
//! up to [`seal`] know no clock and no socket:

pub mod json;

pub mod quantity;

pub mod nearest;

pub mod wire;

pub mod request;

pub mod engine;

pub mod plan;

pub mod seal;

// The shell: it waits, connects, draws ids and reads clocks.

pub mod error;

pub mod html;

pub mod file_watch;

pub mod secret;

pub mod tls;

pub mod auth;

pub mod store;

pub mod config;

pub mod filter;

pub mod telemetry;

pub mod upstream;

pub mod replay;

pub mod server;

pub mod demo;

pub mod cli;
