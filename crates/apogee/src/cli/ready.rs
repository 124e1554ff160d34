//! The ready file: tells scripts and tests where a server listens, once it accepts requests.
//!
//! ```text
//! {"namesrv":"host:port","broker":"host:port","pid":n}      parts that don't exist are left out
//! ```
//! Always holds: the file appears whole, by a rename.

use crate::server::Running;
use serde_json::{Map, Value, json};
use std::path::Path;

/// Writes the file.
pub(super) fn write(path: &Path, server: &Running) -> std::io::Result<()> {
    let mut object = Map::new();
    if let Some(address) = server.namesrv_addr() {
        object.insert("namesrv".to_owned(), json!(address.to_string()));
    }
    if let Some(address) = server.broker_addr() {
        object.insert("broker".to_owned(), json!(address.to_string()));
    }
    object.insert("pid".to_owned(), json!(std::process::id()));
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(name);
    std::fs::write(&temporary, Value::Object(object).to_string())?;
    std::fs::rename(&temporary, path)
}
