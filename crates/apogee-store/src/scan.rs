//! Walking a commit log record by record from the disk, with `pread` and one bounded window: for
//! recovery and for the inspection tools, where bytes may be damaged and an I/O error must be an
//! error.

use crate::error::StoreError;
use crate::segment::Segment;
use crate::segments::Segments;
use apogee_model::record::{LogEntry, RecordView, parse_entry};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Bytes read at a time; a larger record gets a window of its own size.
const WINDOW: usize = 1 << 20;

/// Why a walk ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Nothing was ever written behind the last record.
    Unwritten,
    /// The log's last file is full.
    FilesEnd,
    /// The visitor had seen enough.
    Asked,
    /// Something that is no valid record.
    Damaged(String),
}

/// A walk's result.
#[derive(Debug, Clone)]
pub(crate) struct Walked {
    /// Position behind the last good record.
    pub(crate) end: i64,
    /// Offset and store time of the last good record.
    pub(crate) last: Option<(i64, i64)>,
    /// Why the walk ended there.
    pub(crate) stop: Stop,
}

/// Walks from `start` (where a record or a blank begins) and calls `visit` with each position and
/// record. Checks sizes, magic, physical offsets and, if asked, body checksums.
pub(crate) fn walk(
    segments: &Segments,
    start: i64,
    check_crc: bool,
    mut visit: impl FnMut(i64, &RecordView<'_>) -> ControlFlow<()>,
) -> Result<Walked, StoreError> {
    let mut walked = Walked { end: start, last: None, stop: Stop::FilesEnd };
    let mut window = Window::default();
    loop {
        let Some(segment) = segments.find(walked.end) else {
            return Ok(walked);
        };
        let Some(stop) = walk_segment(&segment, check_crc, &mut window, &mut walked, &mut visit)?
        else {
            continue;
        };
        walked.stop = stop;
        return Ok(walked);
    }
}

/// Walks to the end of one file; `None` means that the next file goes on.
fn walk_segment(
    segment: &Arc<Segment>,
    check_crc: bool,
    window: &mut Window,
    walked: &mut Walked,
    visit: &mut impl FnMut(i64, &RecordView<'_>) -> ControlFlow<()>,
) -> Result<Option<Stop>, StoreError> {
    window.start = 0;
    window.bytes.clear();
    while walked.end < segment.end() {
        let at = (walked.end - segment.base()) as usize;
        let left = (segment.end() - walked.end) as usize;
        let bytes =
            window.entry(segment, at, left).map_err(StoreError::io("read", segment.path()))?;
        match parse_entry(bytes) {
            Ok(LogEntry::Record(record)) => {
                if record.physical_offset() != walked.end {
                    return Ok(Some(Stop::Damaged(format!(
                        "the record says it stands at {}",
                        record.physical_offset()
                    ))));
                }
                if check_crc && !record.check_crc() {
                    return Ok(Some(Stop::Damaged("the body's checksum is wrong".into())));
                }
                let at = walked.end;
                walked.last = Some((walked.end, record.store_timestamp()));
                walked.end += record.total_size() as i64;
                if visit(at, &record).is_break() {
                    return Ok(Some(Stop::Asked));
                }
            }
            Ok(LogEntry::Blank { size }) if size == left => {
                walked.end = segment.end();
            }
            Ok(LogEntry::Blank { size }) => {
                return Ok(Some(Stop::Damaged(format!(
                    "a blank of {size} bytes stands where {left} are left"
                ))));
            }
            Ok(LogEntry::Empty) => return Ok(Some(Stop::Unwritten)),
            Err(error) => return Ok(Some(Stop::Damaged(error.to_string()))),
        }
    }
    Ok(None)
}

/// The part of a file that was read last.
#[derive(Default)]
struct Window {
    start: usize,
    bytes: Vec<u8>,
}

impl Window {
    /// The bytes from `at` on, enough for the entry that begins there.
    fn entry(&mut self, segment: &Segment, at: usize, left: usize) -> std::io::Result<&[u8]> {
        let need = |bytes: &[u8]| match crate::be::get_i32(bytes, 0) {
            Some(size) if size > 0 => (size as usize).min(left),
            Some(_) => 8.min(left),
            None => 4.min(left),
        };
        let have =
            at.checked_sub(self.start).and_then(|skip| self.bytes.get(skip..)).unwrap_or_default();
        let is_blank = crate::be::get_i32(have, 4) == Some(apogee_model::record::BLANK_MAGIC);
        if have.len() < 8.min(left) || (have.len() < need(have) && !is_blank) {
            let wanted = need(have).max(WINDOW).min(left);
            self.bytes = segment.read_copy(at, wanted)?;
            self.start = at;
            let wanted = need(&self.bytes);
            if self.bytes.len() < wanted {
                self.bytes = segment.read_copy(at, wanted)?;
            }
        }
        let skip = at - self.start;
        let have = self.bytes.get(skip..).unwrap_or_default();
        if crate::be::get_i32(have, 4) == Some(apogee_model::record::BLANK_MAGIC) {
            // A blank may cover up to a whole file: its size is checked, its bytes are not read.
            return self.blank(segment, at, left);
        }
        Ok(self.bytes.get(skip..).unwrap_or_default())
    }

    fn blank(&mut self, segment: &Segment, at: usize, left: usize) -> std::io::Result<&[u8]> {
        let skip = at - self.start;
        if self.bytes.len() - skip < left {
            self.bytes = segment.read_copy(at, left)?;
            self.start = at;
        }
        Ok(self.bytes.get(at - self.start..).unwrap_or_default())
    }
}
