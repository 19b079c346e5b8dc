//! Content of a choice of the legacy Completions: text.

use super::{Choice, ChoiceEmitter, Unreadable};
use crate::wire::event::Delta;

/// Emits the choice's text. Fails if the choice has the content of a chat answer in its place.
pub(super) fn pieces<'a>(
    choice: &mut Choice<'a>,
    emitter: &mut ChoiceEmitter<'a, '_>,
) -> Result<(), Unreadable> {
    let chat = choice.delta.as_ref().or(choice.message.as_ref());
    if choice.text.is_none() && chat.is_some_and(|content| !content.is_blank()) {
        return Err(Unreadable);
    }
    emitter.emit_text(choice.text, Delta::Content);
    Ok(())
}
