//! Search for the part `model` in a multipart form that arrives in pieces.

use super::{MODEL, NamedModel, VALUE, too_long};
use crate::request::check;
use crate::request::form::{FormEvent, FormReader};
use crate::request::refusals;
use crate::request::rules::Rules;
use crate::wire::fault::Failure;

/// Incremental search in a form, which buffers only part heads and the model's value.
#[derive(Clone, Debug)]
pub(super) struct FormScan {
    pub(super) reader: FormReader,
    /// Offset and value of the current part, if it names the model.
    value: Option<(usize, Vec<u8>)>,
    pub(super) named: Option<NamedModel>,
}

impl FormScan {
    pub(super) fn new(reader: FormReader) -> Self {
        Self {
            reader,
            value: None,
            named: None,
        }
    }

    /// Parses the next piece. Fails if it cannot be read, on a forbidden field, or on a second model.
    pub(super) fn push(&mut self, bytes: &[u8], rules: &Rules) -> Result<(), Failure> {
        self.reader.push(bytes);
        while let Some(event) = self.reader.event()? {
            match event {
                FormEvent::Part { name, .. } => self.begin(&name, rules)?,
                FormEvent::Data(data) => self.keep(&data)?,
                FormEvent::PartEnd => self.part_ended()?,
                FormEvent::End => {}
            }
        }
        Ok(())
    }

    fn begin(&mut self, name: &str, rules: &Rules) -> Result<(), Failure> {
        check::check_reserved_field(name, rules)?;
        if name == MODEL {
            if self.named.is_some() {
                return Err(check::repeated(MODEL.to_owned()));
            }
            self.value = Some((self.reader.place(), Vec::new()));
        }
        Ok(())
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        if let Some((_, value)) = &mut self.value {
            if value.len() + bytes.len() > VALUE {
                return Err(too_long());
            }
            value.extend_from_slice(bytes);
        }
        Ok(())
    }

    /// Handles the end of a part's value: stores the model if this part names it.
    fn part_ended(&mut self) -> Result<(), Failure> {
        let Some((begin, value)) = self.value.take() else {
            return Ok(());
        };
        let at = begin..begin + value.len();
        let model = String::from_utf8(value);
        let model = model.map_err(|_| refusals::invalid(MODEL, "it must be text in UTF-8"))?;
        self.named = Some(NamedModel { model, at });
        Ok(())
    }
}
