//! Content of a choice of the legacy Completions: text.

use super::{BadField, ChoiceBody, ChoiceEmitter};
use crate::wire::event::Delta;

/// Emits the choice's text. Fails if the choice has the content of a chat answer in its place.
pub(super) fn pieces<'a>(
    choice: &mut ChoiceBody<'a>,
    emitter: &mut ChoiceEmitter<'a, '_>,
) -> Result<(), BadField> {
    let chat = choice.delta.as_ref().or(choice.message.as_ref());
    if choice.text.is_none() && chat.is_some_and(|content| !content.is_blank()) {
        return Err(BadField);
    }
    emitter.emit_text(choice.text, Delta::Content);
    Ok(())
}
