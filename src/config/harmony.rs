//! Table `[harmony]`: the vocabulary of gpt-oss, needed to decode token ids.

use super::mistakes::Mistakes;
use crate::secret::unreadable;
use crate::wire::Vocabulary;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;

/// Largest vocabulary file in bytes, several times the size of the known ones.
const FILE: u64 = 32 << 20;

/// Table `[harmony]` as written: the path of the vocabulary file of gpt-oss.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "config/samewire.toml explains each key, and a test holds it to that")]
pub struct HarmonyFile {
    pub vocabulary_file: PathBuf,
}

impl HarmonyFile {
    /// Reads the vocabulary file; `None` if none is configured, or if there is a mistake in it.
    pub(super) fn resolve(&self, mistakes: &mut Mistakes) -> Option<Arc<Vocabulary>> {
        let path = &self.vocabulary_file;
        if path.as_os_str().is_empty() {
            return None;
        }
        let size =
            std::fs::metadata(path).map_err(|error| unreadable(&error)).and_then(|data| match data.len() {
                0..=FILE => Ok(()),
                _ => Err(format!("must have at most {FILE} bytes")),
            });
        let text = size.and_then(|()| std::fs::read_to_string(path).map_err(|error| unreadable(&error)));
        match text.and_then(|text| Vocabulary::read(&text)) {
            Ok(vocabulary) => Some(Arc::new(vocabulary)),
            Err(why) => mistakes.add_none("harmony.vocabulary_file", why),
        }
    }
}
