//! What a choice of the legacy Completions holds: text.

use super::{Choice, Speaker, Unreadable};
use crate::wire::event::Delta;

/// Says the choice's text.
pub(super) fn pieces<'a>(choice: &mut Choice<'a>, speaker: &mut Speaker<'a, '_>) -> Result<(), Unreadable> {
    speaker.say_text(choice.text, Delta::Content);
    Ok(())
}
