//! The one table of all configuration keys, read from `keys.tsv` at first use.
//!
//! Always holds: a key may stand in several sections (the original has several objects with a field of
//! one name); within a section it stands once. The table is never changed, so no lock is needed.

use std::sync::LazyLock;

/// What a value may look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// 32-bit whole number.
    Int,
    /// 64-bit whole number.
    Long,
    /// `true` or `false`.
    Boolean,
    /// Number with a fraction.
    Double,
    /// One of these names, separated by commas.
    Enum(&'static str),
    /// Any text.
    Text,
}

impl Kind {
    fn parse(text: &'static str) -> Option<Self> {
        Some(match text {
            "int" => Self::Int,
            "long" => Self::Long,
            "boolean" => Self::Boolean,
            "double" => Self::Double,
            "string" => Self::Text,
            _ => Self::Enum(text.strip_prefix("enum:")?),
        })
    }

    /// Checks `value`; the error says what is allowed.
    pub(crate) fn check(self, value: &str) -> Result<(), String> {
        match self {
            Self::Int if value.parse::<i32>().is_err() => {
                Err("a whole number from -2147483648 to 2147483647 is allowed".to_owned())
            }
            Self::Long if value.parse::<i64>().is_err() => {
                Err("a whole number of at most 63 bits is allowed".to_owned())
            }
            Self::Double if value.parse::<f64>().is_err() => {
                Err("a number such as 0.8 is allowed".to_owned())
            }
            Self::Boolean if !is_boolean(value) => Err("true and false are allowed".to_owned()),
            Self::Enum(names) if !names.split(',').any(|name| name == value) => {
                Err(format!("allowed are {}", names.replace(',', ", ")))
            }
            _ => Ok(()),
        }
    }
}

fn is_boolean(value: &str) -> bool {
    value.eq_ignore_ascii_case("true") || value.eq_ignore_ascii_case("false")
}

/// What a key does in this program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// What the original's documentation says.
    Works,
    /// Another value than the default would promise something that is not kept: it stops the start.
    OnlyDefault(&'static str),
    /// Nothing in this release.
    NotYet(&'static str),
    /// Nothing, and it never will.
    NoMeaning(&'static str),
}

impl Effect {
    fn parse(text: &'static str) -> Option<Self> {
        if text == "works" {
            return Some(Self::Works);
        }
        let (kind, reason) = text.split_once(": ")?;
        match kind {
            "only its default" => Some(Self::OnlyDefault(reason)),
            "not yet" => Some(Self::NotYet(reason)),
            "no meaning here" => Some(Self::NoMeaning(reason)),
            _ => None,
        }
    }

    /// Where a key stands twice, the stronger effect counts.
    pub(crate) fn strength(self) -> u8 {
        match self {
            Self::Works => 3,
            Self::OnlyDefault(_) => 2,
            Self::NotYet(_) => 1,
            Self::NoMeaning(_) => 0,
        }
    }
}

/// One key in one section.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// Part of the original that owns it: `broker`, `store`, `server`, `namesrv`, …
    pub section: &'static str,
    /// Its name.
    pub name: &'static str,
    /// What values look like.
    pub kind: Kind,
    /// The original's default as text; empty = none.
    pub default: &'static str,
    /// Whether the original takes a new value while it runs: `yes`, `no` or `refused`.
    pub hot_update: &'static str,
    /// What it does here.
    pub effect: Effect,
}

const TEXT: &str = include_str!("keys.tsv");

static KEYS: LazyLock<Vec<Key>> = LazyLock::new(|| rows().filter_map(parse_row).collect());

fn rows() -> impl Iterator<Item = &'static str> {
    TEXT.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).skip(1)
}

fn parse_row(row: &'static str) -> Option<Key> {
    let mut cells = row.split('\t');
    Some(Key {
        section: cells.next()?,
        name: cells.next()?,
        kind: Kind::parse(cells.next()?)?,
        default: cells.next()?,
        hot_update: cells.next()?,
        effect: Effect::parse(cells.next()?)?,
    })
}

/// All keys in the order of the file.
#[must_use]
pub fn keys() -> &'static [Key] {
    &KEYS
}

/// The rows of one name.
pub(crate) fn find(name: &str) -> impl Iterator<Item = &'static Key> {
    keys().iter().filter(move |key| key.name == name)
}

/// The known key that looks most like `name`, if any is near.
pub(crate) fn nearest(name: &str) -> Option<&'static str> {
    let lower = name.to_lowercase();
    let near = |key: &'static Key| {
        let known = key.name.to_lowercase();
        // Half a name is a common way to misremember one.
        let is_start = lower.len() >= 6 && known.starts_with(&lower);
        (if is_start { 2 } else { edit_distance(&lower, &known) }, key.name)
    };
    // Old spellings and keys without use are bad advice while a useful one is as near.
    let (distance, found) =
        keys().iter().min_by_key(|key| (near(key).0, u8::MAX - key.effect.strength())).map(near)?;
    (distance <= name.chars().count().div_ceil(3).max(2)).then_some(found)
}

/// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before_last = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    let at = |row: &[usize], index: usize| row.get(index).copied().unwrap_or(usize::MAX / 2);
    for (i, from) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, to) in b.iter().enumerate() {
            let replaced = at(&last, j) + usize::from(from != to);
            let mut best = replaced.min(at(&last, j + 1) + 1).min(at(&row, j) + 1);
            let swapped = i > 0 && j > 0 && a.get(i - 1) == Some(to) && b.get(j - 1) == Some(from);
            if swapped {
                best = best.min(at(&before_last, j - 1) + 1);
            }
            row.push(best);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    at(&last, b.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_row_of_the_file_is_read_and_stands_once_in_its_section() {
        assert_eq!(keys().len(), rows().count());
        assert!(keys().len() > 800);
        let mut seen = HashSet::new();
        for key in keys() {
            assert!(seen.insert((key.section, key.name)), "{} {}", key.section, key.name);
        }
    }

    #[test]
    fn defaults_that_are_no_formulas_have_the_type_of_their_key() {
        for key in keys() {
            let formula = key.default.contains("CPU") || key.default.contains('(');
            if !formula && !key.default.is_empty() {
                assert_eq!(key.kind.check(key.default), Ok(()), "{}", key.name);
            }
        }
    }

    #[test]
    fn the_nearest_key_of_a_typing_error_is_found() {
        assert_eq!(nearest("flushDiscType"), Some("flushDiskType"));
        assert_eq!(nearest("listenprot"), Some("listenPort"));
        assert_eq!(nearest("autoCreateTopic"), Some("autoCreateTopicEnable"));
        assert_eq!(nearest("zzzzzzzzzzzz"), None);
    }

    #[test]
    fn the_documentation_names_every_key_that_matters() {
        let text = include_str!("../../../../docs/configuration.md");
        for key in keys() {
            if matches!(key.effect, Effect::Works | Effect::OnlyDefault(_)) {
                assert!(text.contains(&format!("`{}`", key.name)), "{}", key.name);
            }
        }
    }
}
