//! Where settings come from: files in the original's form or TOML, `key=value`, the environment.
//!
//! Always holds: a value knows its origin, so that every complaint can name it; later sources replace
//! earlier ones. Placeholders such as `${user.home}` are replaced here and nowhere else.

use super::SettingsError;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A configuration file is read whole; nobody's is larger than this.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;

/// A value and where it stood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) value: String,
    pub(crate) origin: String,
}

/// Settings as they were given, not yet checked.
#[derive(Debug, Clone, Default)]
pub struct Source {
    pub(crate) given: BTreeMap<String, Given>,
    /// The file that was read, the last if there were several.
    pub(crate) file: Option<PathBuf>,
}

impl Source {
    /// Nothing given.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the environment variables that the original reads: `NAMESRV_ADDR`.
    pub fn environment(&mut self) {
        if let Ok(value) = std::env::var("NAMESRV_ADDR") {
            self.put("namesrvAddr", &value, "environment variable NAMESRV_ADDR");
        }
    }

    /// Gives `key` a value; `origin` is named in complaints.
    pub fn put(&mut self, key: &str, value: &str, origin: &str) {
        let given = Given { value: value.trim().to_owned(), origin: origin.to_owned() };
        self.given.insert(key.trim().to_owned(), given);
    }

    /// Takes `key=value`.
    ///
    /// # Errors
    /// When there is no `=` or a placeholder is unknown.
    pub fn set(&mut self, pair: &str) -> Result<(), SettingsError> {
        let (key, value) = pair
            .split_once('=')
            .ok_or_else(|| SettingsError::one(format!("--set {pair}: write key=value")))?;
        let value =
            expand(value).map_err(|why| SettingsError::one(format!("--set {key}: {why}")))?;
        self.put(key, &value, "--set");
        Ok(())
    }

    /// Reads a file: TOML if its name ends in `.toml`, the original's properties otherwise.
    ///
    /// # Errors
    /// When the file can't be read, is no such text, or names an unknown placeholder.
    pub fn file(&mut self, path: &Path) -> Result<(), SettingsError> {
        let name = path.display().to_string();
        let fail = |why: String| SettingsError::one(format!("configuration file {name}: {why}"));
        let text = read_whole(path).map_err(fail)?;
        let toml = path.extension().is_some_and(|extension| extension == "toml");
        for (key, value) in read_pairs(&text, toml).map_err(fail)? {
            let value = expand(&value).map_err(|why| fail(format!("{key}: {why}")))?;
            self.put(&key, &value, &name);
        }
        // The folder may be changed later on.
        self.file = Some(std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
        Ok(())
    }
}

/// Reads a configuration file unless it is absurdly long.
pub(super) fn read_whole(path: &Path) -> Result<String, String> {
    let size = std::fs::metadata(path).map_err(|error| error.to_string())?.len();
    if size > MAX_FILE_BYTES {
        return Err(format!("{size} bytes are more than the {MAX_FILE_BYTES} allowed"));
    }
    std::fs::read_to_string(path).map_err(|error| error.to_string())
}

/// The keys and values of a text in the order in which they count.
pub(super) fn read_pairs(text: &str, toml: bool) -> Result<Vec<(String, String)>, String> {
    if toml { read_toml(text) } else { read_properties(text) }
}

fn read_properties(text: &str) -> Result<Vec<(String, String)>, String> {
    // A mark that Windows editors put first would become part of the first key.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut pairs = Vec::new();
    java_properties::PropertiesIter::new_with_encoding(text.as_bytes(), encoding_rs::UTF_8)
        .read_into(|key, value| pairs.push((key, value)))
        .map_err(|error| error.to_string())?;
    Ok(pairs)
}

fn read_toml(text: &str) -> Result<Vec<(String, String)>, String> {
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| error.to_string())?;
    let mut pairs = Vec::new();
    flatten("", &table, &mut pairs)?;
    Ok(pairs)
}

/// Tables named like a section only group keys; others are the first part of a dotted key.
fn flatten(
    prefix: &str,
    table: &toml::Table,
    pairs: &mut Vec<(String, String)>,
) -> Result<(), String> {
    for (key, value) in table {
        let name = format!("{prefix}{key}");
        let is_section = prefix.is_empty()
            && key != "tls"
            && super::table::keys().iter().any(|known| known.section == key);
        let text = match value {
            toml::Value::Table(inner) if is_section => {
                flatten("", inner, pairs)?;
                continue;
            }
            toml::Value::Table(inner) => {
                flatten(&format!("{name}."), inner, pairs)?;
                continue;
            }
            toml::Value::String(text) => text.clone(),
            toml::Value::Integer(number) => number.to_string(),
            toml::Value::Float(number) => number.to_string(),
            toml::Value::Boolean(flag) => flag.to_string(),
            toml::Value::Array(items) => list(&name, items)?,
            toml::Value::Datetime(_) => return Err(format!("{name}: a date is no setting")),
        };
        pairs.push((name, text));
    }
    Ok(())
}

/// The original separates lists by semicolons.
fn list(name: &str, items: &[toml::Value]) -> Result<String, String> {
    let texts: Option<Vec<&str>> = items.iter().map(toml::Value::as_str).collect();
    let texts = texts.ok_or_else(|| format!("{name}: a list may hold texts only"))?;
    Ok(texts.join(";"))
}

/// Replaces `${user.home}`, `${ROCKETMQ_HOME}` and other environment variables.
fn expand(value: &str) -> Result<String, String> {
    let mut out = String::with_capacity(value.len());
    let mut rest = value;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((name, after)) = after.split_once('}') else {
            return Err(format!("${{ is not closed in {value:?}"));
        };
        out.push_str(before);
        out.push_str(&placeholder(name)?);
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

pub(crate) fn placeholder(name: &str) -> Result<String, String> {
    let variable = match name {
        "user.home" => "HOME",
        "rocketmqHome" | "rocketmq.home.dir" => "ROCKETMQ_HOME",
        other => other,
    };
    std::env::var(variable)
        .map_err(|_| format!("${{{name}}} is used but the environment has no {variable}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_keep_escapes_continuations_and_other_scripts() {
        let text = "\u{feff}a = 1\n# note\nb:two \\\n  words\nc=\\u4e2d文\nd=C:\\\\x\n";
        let pairs = read_properties(text).unwrap();
        let expected = [("a", "1"), ("b", "two words"), ("c", "中文"), ("d", "C:\\x")];
        let expected: Vec<_> =
            expected.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        assert_eq!(pairs, expected);
    }

    #[test]
    fn toml_sections_group_keys_and_dotted_keys_keep_their_dots() {
        let text = "listenPort = 1\n[broker]\nbrokerName = \"b\"\nnamesrvAddr = [\"h:1\", \"i:2\"]\n\
                    [tls.server]\nmode = \"disabled\"\n";
        let pairs = read_toml(text).unwrap();
        for expected in [
            ("listenPort", "1"),
            ("brokerName", "b"),
            ("namesrvAddr", "h:1;i:2"),
            ("tls.server.mode", "disabled"),
        ] {
            assert!(pairs.iter().any(|(k, v)| (k.as_str(), v.as_str()) == expected), "{pairs:?}");
        }
    }

    #[test]
    fn placeholders_are_replaced_and_unknown_ones_are_named() {
        let home = std::env::var("HOME").unwrap_or_default();
        if !home.is_empty() {
            assert_eq!(expand("${user.home}/store"), Ok(format!("{home}/store")));
        }
        assert!(expand("${NO_SUCH_VARIABLE_1}/x").unwrap_err().contains("NO_SUCH_VARIABLE_1"));
        assert!(expand("${open").is_err());
        assert_eq!(expand("$plain"), Ok("$plain".to_owned()));
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_a_reader_panic(text in "(?s)[ -~\\\\=:#\\n\\[\\]${}.é]{0,80}") {
            let _ = read_properties(&text);
            let _ = read_toml(&text);
            let _ = expand(&text);
        }
    }
}
