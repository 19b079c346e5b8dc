//! A chat answer as a message: valid events, the same content streamed and whole, a fixed point.

use super::made;
use crate::laws::message::check;
use samewire::wire::Api;

pub fn run(data: &[u8]) {
    let made = made::message(Api::Chat, data);
    check(&made.case, &made.sizes).unwrap_or_else(|wrong| panic!("{wrong}"));
}

pub fn seeds() -> Vec<Vec<u8>> {
    made::seeds(&made::exchanges().into_iter().filter(|case| case.api == Api::Chat).collect::<Vec<_>>())
}
