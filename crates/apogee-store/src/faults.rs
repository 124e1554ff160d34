//! A seam through which tests and chaos runs make the disk fail at chosen moments.
//!
//! Production passes none, and the check is one branch on an `Option`.

use std::io;

/// Asked before each operation on commit log files; an error takes the operation's place.
pub trait DiskFaults: Send + Sync {
    /// Before bytes are written.
    ///
    /// # Errors
    /// The error that the write shall have.
    fn before_write(&self) -> io::Result<()> {
        Ok(())
    }

    /// Before a flush to the disk.
    ///
    /// # Errors
    /// The error that the flush shall have.
    fn before_sync(&self) -> io::Result<()> {
        Ok(())
    }

    /// Before space for a new file is reserved.
    ///
    /// # Errors
    /// The error that the reservation shall have.
    fn before_allocate(&self) -> io::Result<()> {
        Ok(())
    }
}
