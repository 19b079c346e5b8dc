//! Any single event of an engine becomes canonical frames, or an error.

use super::made;
use crate::laws::answer;

pub fn run(data: &[u8]) {
    let mut made = made::exchange(data);
    made.case.events = true;
    let event = std::mem::take(&mut made.case.input);
    // Joins the lines, so that the input is exactly one event.
    let line = event.split(|byte| matches!(byte, b'\n' | b'\r')).collect::<Vec<_>>().join(&b' ');
    for end in ["\n\ndata: [DONE]\n\n", "\n\n"] {
        made.case.input = [b"data: ", &line[..], end.as_bytes()].concat();
        answer::check(&made.case, &made.sizes).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for (api, chat) in [(0, true), (1 << 7, false)] {
        let mut cases = made::exchanges();
        cases.retain(|case| case.events && (case.api == samewire::wire::Api::Chat) == chat);
        for (at, object) in (0_u8..).zip(super::feed::some(made::objects(&cases), 120)) {
            all.push([&[1 | 1 << 1 | 1 << 3 | api, at % 4, 0, 0, 6, 40], object.as_bytes()].concat());
        }
    }
    all
}
