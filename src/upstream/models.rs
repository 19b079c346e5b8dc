//! The list of models: read from an engine, written for a client.

use crate::json::{self, Raw, Text, integer, object, write_number, write_string};
use bytes::BytesMut;

/// One model that an engine lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// Its name.
    pub id: String,
    /// When it was made; engines give the time of the question.
    pub created: u64,
    /// Who serves it.
    pub owner: Option<String>,
}

impl Model {
    /// Appends the model as the official API writes it.
    pub fn write(&self, out: &mut BytesMut) {
        out.extend_from_slice(b"{\"id\":");
        write_string(&self.id, out);
        out.extend_from_slice(b",\"object\":\"model\",\"created\":");
        write_number(self.created, out);
        out.extend_from_slice(b",\"owned_by\":");
        write_string(self.owner.as_deref().unwrap_or("engine"), out);
        out.extend_from_slice(b"}");
    }
}

/// Appends the list.
pub fn write(models: &[Model], out: &mut BytesMut) {
    out.extend_from_slice(b"{\"object\":\"list\",\"data\":[");
    for (n, model) in models.iter().enumerate() {
        if n > 0 {
            out.extend_from_slice(b",");
        }
        model.write(out);
    }
    out.extend_from_slice(b"]}");
}

/// The models; `None` if this is no list of models.
pub fn read(body: &[u8]) -> Option<Vec<Model>> {
    let list: List<'_> = json::read(std::str::from_utf8(body).ok()?).ok()?;
    let entries: Vec<Raw<'_>> = json::read(list.data?.get()).ok()?;
    Some(entries.into_iter().filter_map(model).collect())
}

fn model(entry: Raw<'_>) -> Option<Model> {
    let entry: Entry<'_> = json::read(entry.get()).ok()?;
    Some(Model {
        id: Text::of(entry.id?)?.decoded().into_owned(),
        created: entry.created.and_then(integer).unwrap_or(0),
        owner: entry.owned_by.and_then(Text::of).map(|owner| owner.decoded().into_owned()),
    })
}

object! {
    struct List<'a> {
        data: Raw<'a> = "data",
    }
}

object! {
    struct Entry<'a> {
        id: Raw<'a> = "id",
        created: Raw<'a> = "created",
        owned_by: Raw<'a> = "owned_by",
    }
}
