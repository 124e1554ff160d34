//! What a consume queue's folder holds, judged by names and lengths alone.

use crate::config::UNIT_SIZE;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// A queue folder.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Listing {
    /// First units of the files: the last run without holes.
    Files(Vec<i64>),
    /// A file that is shorter than it should be, and its length.
    Short(PathBuf, i64),
    /// A file that does not go with the configured file size, and its length.
    OtherSize(PathBuf, i64),
}

impl Listing {
    /// Looks into a folder. Empty files (their creation broke off) get their length.
    pub(crate) fn of(dir: &Path, units_per_file: i64) -> io::Result<Self> {
        let file_bytes = units_per_file * UNIT_SIZE as i64;
        let mut bases = Vec::new();
        let mut short = None;
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            let name = entry.file_name();
            let base = name
                .to_str()
                .filter(|name| name.len() == 20 && name.bytes().all(|b| b.is_ascii_digit()))
                .and_then(|name| name.parse::<i64>().ok());
            let Some(base) = base else {
                continue;
            };
            let len = i64::try_from(entry.metadata()?.len()).unwrap_or(i64::MAX);
            if base % file_bytes != 0 || len > file_bytes {
                return Ok(Self::OtherSize(entry.path(), len));
            }
            if len == 0 {
                File::options().write(true).open(entry.path())?.set_len(file_bytes as u64)?;
            } else if len < file_bytes {
                short = Some(Self::Short(entry.path(), len));
            }
            bases.push(base / UNIT_SIZE as i64);
        }
        if let Some(short) = short {
            return Ok(short);
        }
        bases.sort_unstable();
        let mut run = Vec::new();
        for base in bases {
            if run.last().is_some_and(|last| base - last != units_per_file) {
                run.clear();
            }
            run.push(base);
        }
        Ok(Self::Files(run))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_judged_by_names_and_lengths() {
        let dir = tempfile::tempdir().unwrap();
        let put = |base: i64, len: usize| {
            std::fs::write(dir.path().join(format!("{base:020}")), vec![1; len]).unwrap();
        };
        let look = || Listing::of(dir.path(), 10).unwrap();
        assert_eq!(look(), Listing::Files(vec![]));
        put(0, 200);
        put(400, 200);
        put(600, 0);
        std::fs::write(dir.path().join("other"), "x").unwrap();
        assert_eq!(look(), Listing::Files(vec![20, 30]));
        put(800, 100);
        assert!(matches!(look(), Listing::Short(_, 100)));
        put(820, 200);
        assert!(matches!(look(), Listing::OtherSize(_, 200)));
    }
}
