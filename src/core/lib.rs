//! Rewriter of samewire, from an engine's bytes to canonical bytes ([`wire`]), and the modules that it is built from,
//! in reading order. The program re-exports them. They are a separate crate because its tests build in seconds.

// JSON text: borrowed values, and a writer, without a tree in between.
pub mod json;

// Times and sizes with units, such as `5m` and `64MiB`: one parser for configuration, environment and flags.
pub mod quantity;

// Spelling suggestions for unknown names ("is … meant?").
pub mod nearest;

// Engine bytes to canonical client bytes: framing, decoding, normalising, encoding; pure.
pub mod wire;
