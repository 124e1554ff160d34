//! Small documents on disk, saved whole.
//!
//! Always holds: after a save returned, the new bytes are on the disk; a crash at any moment leaves the old
//! or the new document, and the one before as `.bak`. Paths come from the settings at start, never from a
//! request. Blocking; call it where blocking is allowed.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Replaces the document at `path`, keeping the one before as `.bak`.
///
/// # Errors
/// When a file can't be written; the document is then as before.
pub(crate) fn save(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder =
        path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    match fs::read(path) {
        // The backup is written whole too, so that it never is a worse copy than the document.
        Ok(before) if before != bytes => replace(&with_suffix(path, ".bak"), folder, &before)?,
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    replace(path, folder, bytes)
}

fn replace(path: &Path, folder: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = with_suffix(path, ".tmp");
    let mut file = File::create(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    File::open(folder)?.sync_all()
}

/// Reads the document, or its `.bak` when `read` refuses it. `None` = neither file is there.
///
/// # Errors
/// When there is a document but neither it nor its backup can be read: going on would lose it.
pub(crate) fn load<T, E: std::fmt::Display>(
    path: &Path,
    read: impl Fn(&[u8]) -> Result<T, E>,
) -> io::Result<Option<T>> {
    let mut wrong = None;
    for candidate in [path.to_owned(), with_suffix(path, ".bak")] {
        match fs::read(&candidate) {
            Ok(bytes) => match read(&bytes) {
                Ok(document) => {
                    if let Some(reason) = wrong {
                        tracing::error!(path = %path.display(), %reason, "document unreadable, its backup is used");
                    }
                    return Ok(Some(document));
                }
                Err(error) => wrong = wrong.or(Some(error.to_string())),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    match wrong {
        None => Ok(None),
        Some(reason) => {
            let text = format!(
                "{} and its .bak can't be read ({reason}): repair or remove them",
                path.display()
            );
            Err(io::Error::new(io::ErrorKind::InvalidData, text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<String, &'static str> {
        String::from_utf8(bytes.to_vec())
            .ok()
            .filter(|text| !text.starts_with('\0'))
            .ok_or("garbage")
    }

    #[test]
    fn a_garbled_document_is_read_from_its_backup_and_two_garbled_ones_stop() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sub/kv.json");
        assert_eq!(load(&path, read).unwrap(), None);
        save(&path, b"one").unwrap();
        save(&path, b"two").unwrap();
        save(&path, b"two").unwrap();
        assert_eq!(load(&path, read).unwrap().as_deref(), Some("two"));
        fs::write(&path, [0; 8]).unwrap();
        assert_eq!(load(&path, read).unwrap().as_deref(), Some("one"));
        fs::write(with_suffix(&path, ".bak"), [0; 8]).unwrap();
        assert!(load(&path, read).unwrap_err().to_string().contains("kv.json"));
    }
}
