//! Table `[harmony]`: the vocabulary of gpt-oss, needed to decode token ids.

use super::bounded_text;
use super::mistakes::Mistakes;
use super::rows::{self, table};
use crate::wire::Vocabulary;
use std::path::PathBuf;
use std::sync::Arc;

/// Largest vocabulary file in bytes, several times the size of the known ones.
const MAX_FILE: u64 = 32 << 20;

table! {
    /// Table `[harmony]` as written: the path of the vocabulary file of gpt-oss.
    HarmonyFile {
        vocabulary_file: PathBuf;
    }
}

impl HarmonyFile {
    /// Reads the vocabulary file; `None` if none is configured, or if there is a mistake in it.
    pub(super) fn resolve(&self, mistakes: &mut Mistakes) -> Option<Arc<Vocabulary>> {
        let path = &self.vocabulary_file;
        if path.as_os_str().is_empty() {
            return None;
        }
        let text =
            bounded_text(path, MAX_FILE).map_err(|why| format!("the file cannot be read: {why}"));
        match text.and_then(|text| Vocabulary::read(&text)) {
            Ok(vocabulary) => Some(Arc::new(vocabulary)),
            Err(why) => mistakes.add_none("harmony.vocabulary_file", why),
        }
    }
}
