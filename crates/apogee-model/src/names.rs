//! Rules for topic and group names. A name that passed here is safe as a folder name.
//!
//! Allowed characters: digits, letters, `%`, `|`, `-`, `_`. So no path part, NUL, blank or
//! non-ASCII character ever reaches the file system through a name.

/// Longest topic, in bytes.
pub const MAX_TOPIC_LEN: usize = 127;
/// Longest retry or dead-letter topic, in bytes.
pub const MAX_RETRY_TOPIC_LEN: usize = 255;
/// Longest group, in bytes.
pub const MAX_GROUP_LEN: usize = 120;
/// Prefix of a group's retry topic.
pub const RETRY_PREFIX: &str = "%RETRY%";
/// Prefix of a group's dead-letter topic.
pub const DLQ_PREFIX: &str = "%DLQ%";
/// Prefix of system topics.
pub const SYSTEM_TOPIC_PREFIX: &str = "rmq_sys_";
/// Prefix of system consumer groups.
pub const SYSTEM_GROUP_PREFIX: &str = "CID_RMQ_SYS_";
/// Topic in which delayed messages wait.
pub const SCHEDULE_TOPIC: &str = "SCHEDULE_TOPIC_XXXX";
/// Topic of half messages.
pub const TRANS_HALF_TOPIC: &str = "RMQ_SYS_TRANS_HALF_TOPIC";
/// Topic of op messages, which mark half messages as done.
pub const TRANS_OP_HALF_TOPIC: &str = "RMQ_SYS_TRANS_OP_HALF_TOPIC";
/// Topic of half messages that were checked too often.
pub const TRANS_CHECK_MAX_TIME_TOPIC: &str = "TRANS_CHECK_MAX_TIME_TOPIC";
/// Topic of message traces.
pub const TRACE_TOPIC: &str = "RMQ_SYS_TRACE_TOPIC";
/// Template of automatically created topics.
pub const AUTO_CREATE_TOPIC: &str = "TBW102";
/// Self test topic.
pub const SELF_TEST_TOPIC: &str = "SELF_TEST_TOPIC";
/// Legacy event topic.
pub const OFFSET_MOVED_EVENT: &str = "OFFSET_MOVED_EVENT";
/// Topic for benchmarks.
pub const BENCHMARK_TOPIC: &str = "BenchmarkTest";

/// Topics that every broker knows by name.
pub const SYSTEM_TOPICS: &[&str] = &[
    AUTO_CREATE_TOPIC,
    SCHEDULE_TOPIC,
    BENCHMARK_TOPIC,
    TRANS_HALF_TOPIC,
    TRACE_TOPIC,
    TRANS_OP_HALF_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    SELF_TEST_TOPIC,
    OFFSET_MOVED_EVENT,
    "CHECKPOINT_TOPIC",
];

/// Topics that a client may not send to.
pub const NOT_ALLOWED_TO_SEND: &[&str] = &[
    SCHEDULE_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    SELF_TEST_TOPIC,
    OFFSET_MOVED_EVENT,
    "rmq_sys_wheel_timer",
];

/// Groups that exist on every broker or are refused to clients.
pub const SYSTEM_GROUPS: &[&str] = &[
    "DEFAULT_CONSUMER",
    "DEFAULT_PRODUCER",
    "TOOLS_CONSUMER",
    "SCHEDULE_CONSUMER",
    "FILTERSRV_CONSUMER",
    "__MONITOR_CONSUMER",
    "CLIENT_INNER_PRODUCER",
    "SELF_TEST_P_GROUP",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_ONSAPI_PULL",
    "CID_RMQ_SYS_TRANS",
];

/// Why a name is refused. The text names the field, the value and the rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Empty or only blanks.
    #[error("the specified {0} is blank")]
    Blank(&'static str),
    /// A character outside the allowed set.
    #[error(
        "the specified {kind} {name:?} contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    )]
    Characters {
        /// "topic" or "group".
        kind: &'static str,
        /// The name, cut to 64 characters.
        name: String,
    },
    /// Too long.
    #[error("the specified {kind} has {length} characters, longer than the maximum length {limit}")]
    TooLong {
        /// "topic" or "group".
        kind: &'static str,
        /// Its length.
        length: usize,
        /// The limit.
        limit: usize,
    },
}

fn allowed(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'%' | b'|' | b'-' | b'_')
}

fn check(kind: &'static str, name: &str, limit: usize) -> Result<(), NameError> {
    if name.trim().is_empty() {
        return Err(NameError::Blank(kind));
    }
    if !name.bytes().all(allowed) {
        return Err(NameError::Characters { kind, name: name.chars().take(64).collect() });
    }
    if name.len() > limit {
        return Err(NameError::TooLong { kind, length: name.len(), limit });
    }
    Ok(())
}

/// Checks a topic name: up to 127 characters, up to 255 with a retry or dead-letter prefix.
///
/// # Errors
/// [`NameError`] with the rule that was broken.
pub fn validate_topic(topic: &str) -> Result<(), NameError> {
    let internal = topic.starts_with(RETRY_PREFIX) || topic.starts_with(DLQ_PREFIX);
    check("topic", topic, if internal { MAX_RETRY_TOPIC_LEN } else { MAX_TOPIC_LEN })
}

/// Checks a group name: up to 120 characters.
///
/// # Errors
/// [`NameError`] with the rule that was broken.
pub fn validate_group(group: &str) -> Result<(), NameError> {
    check("group", group, MAX_GROUP_LEN)
}

/// Whether the name may become a folder below the store. Broker-made names (pop retry version 2
/// holds a `+`) are wider than what clients may choose; path separators never are.
#[must_use]
pub fn is_safe_path_part(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= MAX_RETRY_TOPIC_LEN
        && name.bytes().all(|byte| allowed(byte) || byte == b'+')
}

/// Whether the topic belongs to the system on every broker (the broker adds its own names).
#[must_use]
pub fn is_system_topic(topic: &str) -> bool {
    topic.starts_with(SYSTEM_TOPIC_PREFIX) || SYSTEM_TOPICS.contains(&topic)
}

/// Whether the group belongs to the system.
#[must_use]
pub fn is_system_group(group: &str) -> bool {
    group.starts_with(SYSTEM_GROUP_PREFIX) || SYSTEM_GROUPS.contains(&group)
}

/// The retry topic of a group.
#[must_use]
pub fn retry_topic(group: &str) -> String {
    format!("{RETRY_PREFIX}{group}")
}

/// The dead-letter topic of a group.
#[must_use]
pub fn dlq_topic(group: &str) -> String {
    format!("{DLQ_PREFIX}{group}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_parts_control_characters_and_wide_letters_are_refused() {
        let bad = [
            "../../x",
            "a/b",
            "",
            " ",
            "a\0b",
            "a b",
            "a.b",
            "全角",
            "%RETRY%../x",
            "a\\b",
            "ａ",
            "a+b",
            ".",
        ];
        for name in bad {
            assert!(validate_topic(name).is_err(), "{name:?}");
            assert!(validate_group(name).is_err(), "{name:?}");
        }
        assert!(
            !is_safe_path_part("..")
                && !is_safe_path_part("a/b")
                && is_safe_path_part("%RETRY%g+t")
        );
    }

    #[test]
    fn limits_are_127_for_topics_255_for_retry_topics_and_120_for_groups() {
        assert!(validate_topic(&"t".repeat(127)).is_ok());
        assert_eq!(
            validate_topic(&"t".repeat(128)).unwrap_err().to_string(),
            "the specified topic has 128 characters, longer than the maximum length 127"
        );
        assert!(validate_topic(&format!("%RETRY%{}", "t".repeat(248))).is_ok());
        assert!(validate_topic(&format!("%RETRY%{}", "t".repeat(249))).is_err());
        assert!(validate_group(&"g".repeat(120)).is_ok());
        assert!(validate_group(&"g".repeat(121)).is_err());
    }

    #[test]
    fn a_long_illegal_name_is_not_echoed_whole() {
        let error = validate_topic(&"/".repeat(100_000)).unwrap_err().to_string();
        assert!(error.len() < 300);
    }
}
