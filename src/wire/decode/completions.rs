//! Content of a choice of the legacy Completions: text.

use super::{Choice, ChoiceEmitter, Unreadable};
use crate::wire::event::Delta;

/// Emits the choice's text.
pub(super) fn pieces<'a>(
    choice: &mut Choice<'a>,
    emitter: &mut ChoiceEmitter<'a, '_>,
) -> Result<(), Unreadable> {
    emitter.emit_text(choice.text, Delta::Content);
    Ok(())
}
