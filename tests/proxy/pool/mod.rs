//! Pool of engines: which of them gets a request, and who answers when one fails.

mod choice;
mod discovery;
mod elsewhere;
mod engine_load;
mod fallbacks;
mod health;
mod names;
mod prefixes;
mod traffic;
