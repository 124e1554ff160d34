//! Writing changed settings into the configuration file, properties or TOML, line by line.
//!
//! What always holds: comments, order and all other lines stay; the new text is read back before it
//! replaces the file, and if anything but the asked values would differ, the file stays as it is. The file
//! is replaced whole (temporary file, fsync, rename); what it was before is kept as `.bak`.

use super::source::{read_pairs, read_whole};
use apogee_store::Document;
use std::collections::BTreeMap;
use std::path::Path;

/// Saves `pairs` in `file`; where a key comes twice the last counts.
///
/// # Errors
/// When the file cannot be read or written, or has a form in which the key cannot be replaced.
pub(super) fn save(file: &Path, pairs: &[(String, String)]) -> Result<(), String> {
    let text = read_whole(file)?;
    let before = pairs_by_key(file, &text)?;
    let changes: BTreeMap<&str, &str> =
        pairs.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let toml = is_toml(file);
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for (key, value) in &changes {
        put(&mut lines, key, value, toml);
    }
    let mut edited = lines.join("\n");
    edited.push('\n');
    let mut wanted = before;
    wanted.extend(changes.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
    if pairs_by_key(file, &edited)? != wanted {
        let keys: Vec<&str> = changes.into_keys().collect();
        return Err(format!(
            "{} cannot be replaced line by line; change the file by hand",
            keys.join(", ")
        ));
    }
    let document = Document::new(file, |_| true);
    document.load().map_err(|error| error.to_string())?;
    document.save(edited.as_bytes()).map_err(|error| error.to_string())
}

fn is_toml(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "toml")
}

fn pairs_by_key(file: &Path, text: &str) -> Result<BTreeMap<String, String>, String> {
    let pairs = read_pairs(text, is_toml(file))?;
    Ok(pairs
        .into_iter()
        .map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()))
        .collect())
}

/// Replaces the last line of the key, or adds one: at the end of properties, before the first section of TOML.
fn put(lines: &mut Vec<String>, key: &str, value: &str, toml: bool) {
    let line = if toml {
        format!("{key} = \"{}\"", escaped(value, true))
    } else {
        format!("{key}={}", escaped(value, false))
    };
    let is_line = |text: &String| {
        let rest = text.trim_start().strip_prefix(key);
        rest.is_some_and(|rest| {
            rest.trim_start().starts_with(if toml { &['='][..] } else { &['=', ':'] })
        })
    };
    if let Some(known) = lines.iter().rposition(is_line) {
        if let Some(place) = lines.get_mut(known) {
            *place = line;
        }
    } else if toml {
        let first =
            lines.iter().position(|text| text.trim_start().starts_with('[')).unwrap_or(lines.len());
        lines.insert(first, line);
    } else {
        lines.push(line);
    }
}

fn escaped(value: &str, toml: bool) -> String {
    let mut out = String::with_capacity(value.len());
    for letter in value.chars() {
        if letter == '\\' || (toml && letter == '"') {
            out.push('\\');
        }
        out.push(letter);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saved(name: &str, text: &str, pairs: &[(&str, &str)]) -> Result<String, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(name);
        std::fs::write(&file, text).unwrap();
        let pairs: Vec<_> =
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let result = save(&file, &pairs);
        let now = std::fs::read_to_string(&file).unwrap();
        if result.is_err() {
            assert_eq!(now, text);
        }
        result.map(|()| now)
    }

    #[test]
    fn properties_keep_comments_order_and_other_lines() {
        let text = "# first\na = 1\nb: 2\nab=3\n! last\nlong=x \\\n  y";
        let now = saved("b.conf", text, &[("b", "C:\\x y"), ("new", "=#!:")]).unwrap();
        assert_eq!(now, "# first\na = 1\nb=C:\\\\x y\nab=3\n! last\nlong=x \\\n  y\nnew==#!:\n");
    }

    #[test]
    fn a_value_over_several_lines_is_left_to_its_owner() {
        let refused = saved("b.conf", "long=x \\\n  y\nz=1\n", &[("long", "1")]).unwrap_err();
        assert!(refused.contains("by hand"), "{refused}");
        assert!(saved("b.toml", "a = \"\"\"\nb = 1\n\"\"\"\n", &[("b", "2")]).is_err());
    }

    #[test]
    fn toml_keys_are_replaced_in_their_section_or_put_before_the_first() {
        let text = "x = 1\n[broker]\ntraceOn = true # why\n";
        let now = saved("b.toml", text, &[("traceOn", "false"), ("regionId", "a \"b\"")]).unwrap();
        assert_eq!(now, "x = 1\nregionId = \"a \\\"b\\\"\"\n[broker]\ntraceOn = \"false\"\n");
    }

    proptest::proptest! {
        #[test]
        fn what_is_saved_reads_back_and_nothing_else_changes(
            text in "([ab#! =:\\\\\"]{0,8}\n){0,5}", value in "[ -~é]{0,12}", toml in proptest::bool::ANY
        ) {
            let name = if toml { "b.toml" } else { "b.conf" };
            let before = read_pairs(&text, toml);
            if let (Ok(now), Ok(_)) = (saved(name, &text, &[("a", value.trim())]), before) {
                let pairs = read_pairs(&now, toml).unwrap();
                proptest::prop_assert!(pairs.iter().any(|(key, new)| key == "a" && new.trim() == value.trim()));
            }
        }
    }
}
