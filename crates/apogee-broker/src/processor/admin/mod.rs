//! What operators and tools ask.

use crate::dispatch::Entry;

/// Requests of operators; see `dispatch` for what a line means.
pub(crate) static TABLE: &[Entry] = &[];
