//! Marks of the formats of all families, for text from outside that a model reads.

use super::calls::format::Form;
use super::families::FAMILIES;

/// Returns the marks that open or end reasoning, calls or turns in the format of some family. Marks that plain text
/// has, too, such as a bracket or a code fence, are not among them.
pub fn format_marks() -> Vec<&'static str> {
    let mut marks = Vec::new();
    for family in FAMILIES {
        marks.extend([
            family.think.start,
            family.think.end,
            family.answer.0,
            family.answer.1,
        ]);
        marks.extend(family.think.others);
        marks.extend(family.turns);
        for format in family.calls {
            marks.extend(format.starts);
            marks.extend(format.forms.iter().flat_map(Form::ends));
        }
    }
    marks.retain(|mark| mark.len() > 3 && mark.starts_with(['<', '[']) && !mark.contains('{'));
    marks.sort_unstable();
    marks.dedup();
    marks
}
