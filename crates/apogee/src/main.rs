//! The `apogee` program.
fn main() {}
