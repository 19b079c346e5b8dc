//! An engine's Messages events through the rewriter: valid order, a single end, nothing invented.

use super::made;
use crate::laws::message::check;
use samewire::wire::Api;

pub fn run(data: &[u8]) {
    let made = made::message(Api::Messages, data);
    check(&made.case, &made.sizes).unwrap_or_else(|wrong| panic!("{wrong}"));
}

pub fn seeds() -> Vec<Vec<u8>> {
    made::seeds(&made::messages())
}
