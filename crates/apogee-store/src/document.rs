//! Documents (JSON and other text) saved whole, so that a power cut leaves the old or the new one.
//!
//! Saving: temporary file, fsync, the present file becomes `.bak`, rename, fsync of the folder.
//! Loading: the file, else `.bak`, else — when both exist in part but neither is valid — an error
//! with the choice to make. A [`Document`] can be saved only after it was loaded: a timer that runs
//! before the load is refused instead of overwriting good positions with defaults.
//!
//! One mutex per document keeps savers apart.

use crate::error::StoreError;
use crate::segment::sync_dir;
use parking_lot::Mutex;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Writes a file whole: temporary file, fsync, rename, fsync of the folder.
pub(crate) fn write_durably(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    let dir = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(dir).map_err(StoreError::io("create", dir))?;
    let temporary = with_suffix(path, ".tmp");
    let mut file = File::create(&temporary).map_err(StoreError::io("create", &temporary))?;
    file.write_all(bytes)
        .and_then(|()| file.sync_all())
        .map_err(StoreError::io("write", &temporary))?;
    std::fs::rename(&temporary, path).map_err(StoreError::io("replace", path))?;
    sync_dir(dir)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Where a document's content came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loaded {
    /// The file itself.
    Main(Vec<u8>),
    /// The backup, because the file is missing or damaged; it is slightly older.
    Backup(Vec<u8>),
    /// There is neither: a new store.
    Missing,
}

impl Loaded {
    /// The content, if any.
    #[must_use]
    pub fn into_bytes(self) -> Option<Vec<u8>> {
        match self {
            Self::Main(bytes) | Self::Backup(bytes) => Some(bytes),
            Self::Missing => None,
        }
    }
}

/// A document under `config/`.
#[derive(Debug)]
pub struct Document {
    path: PathBuf,
    validate: fn(&[u8]) -> bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    loaded: bool,
    saved: Option<Vec<u8>>,
}

impl Document {
    /// A document at `path`; `validate` tells whether bytes are one.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>, validate: fn(&[u8]) -> bool) -> Self {
        Self { path: path.into(), validate, state: Mutex::default() }
    }

    /// The document's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Loads the document, from `.bak` when the file is missing or damaged.
    ///
    /// # Errors
    /// [`StoreError::DocumentDamaged`] when something is there but nothing is valid;
    /// [`StoreError::Io`] when it cannot be read at all.
    pub fn load(&self) -> Result<Loaded, StoreError> {
        let mut state = self.state.lock();
        let main = read_if_there(&self.path)?;
        if let Some(bytes) = main.as_ref().filter(|bytes| (self.validate)(bytes)) {
            state.loaded = true;
            state.saved.clone_from(&main);
            return Ok(Loaded::Main(bytes.clone()));
        }
        let backup = read_if_there(&with_suffix(&self.path, ".bak"))?;
        let both_missing = main.is_none() && backup.is_none();
        if let Some(bytes) = backup.filter(|bytes| (self.validate)(bytes)) {
            tracing::warn!(path = %self.path.display(), "the document is missing or damaged; its .bak is used");
            state.loaded = true;
            return Ok(Loaded::Backup(bytes));
        }
        if both_missing {
            state.loaded = true;
            return Ok(Loaded::Missing);
        }
        Err(StoreError::DocumentDamaged { path: self.path.clone() })
    }

    /// Saves `bytes`; the present content becomes `.bak`. Unchanged content is not written again.
    ///
    /// # Errors
    /// [`StoreError::DocumentNotLoaded`] before a successful [`Document::load`]; [`StoreError::Io`]
    /// when writing fails (the old document stays).
    pub fn save(&self, bytes: &[u8]) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        if !state.loaded {
            return Err(StoreError::DocumentNotLoaded { path: self.path.clone() });
        }
        if state.saved.as_deref() == Some(bytes) {
            return Ok(());
        }
        // Only a valid document may become the backup: a damaged main file must not replace it.
        let present = match &state.saved {
            Some(_) => state.saved.take(),
            None => read_if_there(&self.path)?.filter(|bytes| (self.validate)(bytes)),
        };
        if let Some(present) = &present {
            write_durably(&with_suffix(&self.path, ".bak"), present)?;
        }
        write_durably(&self.path, bytes)?;
        state.saved = Some(bytes.to_vec());
        Ok(())
    }
}

fn read_if_there(path: &Path) -> Result<Option<Vec<u8>>, StoreError> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StoreError::io("read", path)(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_braced(bytes: &[u8]) -> bool {
        bytes.starts_with(b"{") && bytes.ends_with(b"}")
    }

    fn document(dir: &Path) -> Document {
        Document::new(dir.join("a.json"), is_braced)
    }

    #[test]
    fn nothing_is_saved_before_it_was_loaded() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.json"), "{old}").unwrap();
        let fresh = document(dir.path());
        assert!(matches!(fresh.save(b"{}"), Err(StoreError::DocumentNotLoaded { .. })));
        assert_eq!(fresh.load().unwrap(), Loaded::Main(b"{old}".to_vec()));
        fresh.save(b"{new}").unwrap();
        assert_eq!(std::fs::read(dir.path().join("a.json.bak")).unwrap(), b"{old}");
    }

    #[test]
    fn a_damaged_file_falls_back_to_its_backup_and_does_not_replace_it() {
        for damage in [&b""[..], b"{ha", &[0; 30]] {
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(dir.path().join("a.json"), damage).unwrap();
            std::fs::write(dir.path().join("a.json.bak"), "{bak}").unwrap();
            let doc = document(dir.path());
            assert_eq!(doc.load().unwrap(), Loaded::Backup(b"{bak}".to_vec()));
            doc.save(b"{next}").unwrap();
            assert_eq!(std::fs::read(dir.path().join("a.json.bak")).unwrap(), b"{bak}");
            assert_eq!(document(dir.path()).load().unwrap(), Loaded::Main(b"{next}".to_vec()));
        }
    }

    #[test]
    fn two_bad_files_stop_with_the_choice_to_make() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.json"), [0; 8]).unwrap();
        std::fs::write(dir.path().join("a.json.bak"), [0; 8]).unwrap();
        let doc = document(dir.path());
        assert!(matches!(doc.load(), Err(StoreError::DocumentDamaged { .. })));
        assert!(doc.save(b"{}").is_err());
    }

    #[test]
    fn a_new_store_has_no_document_and_may_save_one() {
        let dir = tempfile::tempdir().unwrap();
        let doc = document(dir.path());
        assert_eq!(doc.load().unwrap(), Loaded::Missing);
        doc.save(b"{1}").unwrap();
        doc.save(b"{2}").unwrap();
        assert_eq!(std::fs::read(dir.path().join("a.json.bak")).unwrap(), b"{1}");
    }
}
