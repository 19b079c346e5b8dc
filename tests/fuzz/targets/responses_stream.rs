//! An engine's Responses events through the rewriter: valid order, a single end, nothing invented.

use super::made;
use crate::laws::response::check;
use samewire::wire::Api;

pub fn run(data: &[u8]) {
    let made = made::response(Api::Responses, data);
    check(&made.case, &made.sizes).unwrap_or_else(|wrong| panic!("{wrong}"));
}

pub fn seeds() -> Vec<Vec<u8>> {
    made::seeds(&made::answers())
}
