//! Engines: the requests to them, their answers, and what clients get.

mod answers;
mod cuts;
mod detection;
mod dialects;
mod disclosure;
mod errors;
mod fan_out;
mod files;
mod floods;
mod harmony;
mod loops;
mod objects;
mod oddities;
mod parsers;
mod promote;
mod recorded;
mod refusals;
mod relayed;
mod relayed_uploads;
mod repairs;
mod repetition;
mod requests;
mod sniffing;
mod templates;
pub(crate) mod waiting;
