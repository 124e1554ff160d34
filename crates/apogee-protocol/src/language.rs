//! Who is speaking: language codes and version ordinals.
//!
//! Always holds: an unknown language byte or version number is kept as it came.

/// The language of a client. On the wire a name (JSON headers) or a byte (binary headers).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct LanguageCode(pub u8);

macro_rules! languages {
    ($($name:ident = $code:literal,)*) => {
        impl LanguageCode {
            $(#[doc = concat!("Language byte ", stringify!($code), ".")]
            pub const $name: LanguageCode = LanguageCode($code);)*
            const ALL: &'static [(LanguageCode, &'static str)] = &[$((LanguageCode($code), stringify!($name)),)*];
        }
    };
}

languages! {
    JAVA = 0, CPP = 1, DOTNET = 2, PYTHON = 3, DELPHI = 4, ERLANG = 5, RUBY = 6, OTHER = 7, HTTP = 8,
    GO = 9, PHP = 10, OMS = 11, RUST = 12, NODE_JS = 13,
}

impl LanguageCode {
    /// The name as it stands in JSON; `OTHER` for an unknown byte.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(code, _)| *code == self).map_or("OTHER", |(_, name)| name)
    }

    /// The code of a name; [`LanguageCode::OTHER`] for a name nobody knows.
    pub fn from_name(name: &str) -> LanguageCode {
        Self::ALL
            .iter()
            .find(|(_, known)| *known == name)
            .map_or(LanguageCode::OTHER, |(code, _)| *code)
    }
}

/// Version ordinals of the original that change behaviour, and the one spoken here.
pub mod version {
    /// V5_5_0: what this implementation announces.
    pub const CURRENT: i32 = 513;
    /// V3_0_7_SNAPSHOT: first client that resets offsets on request.
    pub const V3_0_7_SNAPSHOT: i32 = 28;
    /// V3_0_11_SNAPSHOT: first broker that registers with a body.
    pub const V3_0_11_SNAPSHOT: i32 = 36;
    /// V3_1_8_SNAPSHOT: first client that reports its consume status.
    pub const V3_1_8_SNAPSHOT: i32 = 62;
    /// V3_2_6: the oldest client served.
    pub const V3_2_6: i32 = 79;
    /// V4_9_4: from here on a client reads standard JSON in route answers.
    pub const V4_9_4: i32 = 401;
    /// V5_0_0.
    pub const V5_0_0: i32 = 413;
    /// V5_3_1: later clients understand GO_AWAY.
    pub const V5_3_1: i32 = 475;

    const PATCHES_OF_3_0: i32 = 46;

    /// The name of an ordinal as the original prints it, such as `V5_5_0` or `V4_9_4_SNAPSHOT`.
    pub fn name(ordinal: i32) -> String {
        const EARLY: [&str; 16] = [
            "V3_0_0_SNAPSHOT",
            "V3_0_0_ALPHA1",
            "V3_0_0_BETA1",
            "V3_0_0_BETA2",
            "V3_0_0_BETA3",
            "V3_0_0_BETA4",
            "V3_0_0_BETA5",
            "V3_0_0_BETA6_SNAPSHOT",
            "V3_0_0_BETA6",
            "V3_0_0_BETA7_SNAPSHOT",
            "V3_0_0_BETA7",
            "V3_0_0_BETA8_SNAPSHOT",
            "V3_0_0_BETA8",
            "V3_0_0_BETA9_SNAPSHOT",
            "V3_0_0_BETA9",
            "V3_0_0_FINAL",
        ];
        if let Some(early) = usize::try_from(ordinal).ok().and_then(|at| EARLY.get(at)) {
            return (*early).to_owned();
        }
        // Every release takes two ordinals (snapshot, release). 3.0 ran to patch 15, 3.1 and 3.2 have the
        // patches 0 to 9, 3.3 to 3.9 the patches 1 to 9, and from 4.0 on it is 0 to 9 again.
        let (major, minor, patch) = match ordinal {
            i32::MIN..0 => return format!("UNKNOWN({ordinal})"),
            0..PATCHES_OF_3_0 => (3, 0, (ordinal - 14) / 2),
            PATCHES_OF_3_0..86 => {
                (3, 1 + (ordinal - PATCHES_OF_3_0) / 20, (ordinal - PATCHES_OF_3_0) % 20 / 2)
            }
            86..212 => (3, 3 + (ordinal - 86) / 18, 1 + (ordinal - 86) % 18 / 2),
            212..612 => {
                (4 + (ordinal - 212) / 200, (ordinal - 212) % 200 / 20, (ordinal - 212) % 20 / 2)
            }
            612.. => return "HIGHER_VERSION".to_owned(),
        };
        let snapshot = if ordinal % 2 == 0 { "_SNAPSHOT" } else { "" };
        format!("V{major}_{minor}_{patch}{snapshot}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_names_are_those_of_the_original() {
        let table = [
            (0, "V3_0_0_SNAPSHOT"),
            (15, "V3_0_0_FINAL"),
            (16, "V3_0_1_SNAPSHOT"),
            (28, "V3_0_7_SNAPSHOT"),
            (36, "V3_0_11_SNAPSHOT"),
            (45, "V3_0_15"),
            (47, "V3_1_0"),
            (62, "V3_1_8_SNAPSHOT"),
            (79, "V3_2_6"),
            (85, "V3_2_9"),
            (87, "V3_3_1"),
            (211, "V3_9_9"),
            (213, "V4_0_0"),
            (317, "V4_5_2"),
            (401, "V4_9_4"),
            (413, "V5_0_0"),
            (475, "V5_3_1"),
            (479, "V5_3_3"),
            (513, "V5_5_0"),
            (611, "V5_9_9"),
            (612, "HIGHER_VERSION"),
        ];
        for (ordinal, name) in table {
            assert_eq!(version::name(ordinal), name);
        }
    }

    #[test]
    fn an_unknown_language_is_other() {
        assert_eq!(LanguageCode::from_name("COBOL"), LanguageCode::OTHER);
        assert_eq!(LanguageCode(77).name(), "OTHER");
        assert_eq!(LanguageCode::from_name("GO"), LanguageCode::GO);
    }
}
