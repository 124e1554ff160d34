//! Settings that change while the broker runs, and who is asked to change them.
//!
//! The broker reads these from atomics here and all others from its configuration. What always holds: a
//! change is checked and saved as a whole before any of it is applied; one change is made at a time.

use crate::config::BrokerConfig;
use apogee_protocol::bodies::DataVersion;
use apogee_store::Retention;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU64, AtomicUsize, Ordering};

/// Knows all settings by the original's keys: the program that started the broker.
pub trait SettingsChange: Send + Sync + std::fmt::Debug {
    /// Checks and saves new values by key; the answer has all values that count from now on.
    ///
    /// # Errors
    /// When a key must not be changed, a key or value is wrong, or nothing could be saved. Nothing is
    /// changed then.
    fn change(&self, pairs: &[(String, String)]) -> Result<Changed, ChangeRefused>;

    /// Every setting with its value as text, sorted by key.
    fn all(&self) -> Vec<(String, String)>;
}

/// Settings after a change.
#[derive(Debug, Clone)]
pub struct Changed {
    /// The broker's section.
    pub broker: BrokerConfig,
    /// What the store takes while it runs.
    pub retention: Retention,
    /// What was changed without any effect, and why; for the log.
    pub notes: Vec<String>,
}

/// Why settings were not changed; the texts are for whoever asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeRefused {
    /// A key that must not be changed from outside.
    Forbidden(String),
    /// An unknown key, or a wrong value.
    Invalid(String),
    /// The configuration file cannot be written.
    NotSaved(String),
}

macro_rules! live {
    ($($key:literal: $field:ident as $atomic:ty => $plain:ty,)*) => {
        /// What changes while the broker runs.
        #[derive(Debug)]
        pub(crate) struct Live {
            $($field: $atomic,)*
            /// Held while a change is made: how often that was.
            pub(crate) version: Mutex<DataVersion>,
        }

        impl Live {
            pub(crate) fn new(config: &BrokerConfig) -> Self {
                Self { $($field: <$atomic>::new(config.$field),)* version: Mutex::default() }
            }

            /// Takes over what may change.
            pub(crate) fn apply(&self, config: &BrokerConfig) {
                $(self.$field.store(config.$field, Ordering::Relaxed);)*
            }

            $(pub(crate) fn $field(&self) -> $plain {
                self.$field.load(Ordering::Relaxed)
            })*
        }

        impl BrokerConfig {
            /// Keys whose new values count at once.
            pub const LIVE_KEYS: &[&str] =
                &["autoCreateTopicEnable", "autoCreateSubscriptionGroup", $($key),*];
        }
    };
}

live! {
    "brokerPermission": broker_permission as AtomicI32 => i32,
    "traceOn": trace_on as AtomicBool => bool,
    "longPollingEnable": long_polling_enable as AtomicBool => bool,
    "shortPollingTimeMills": short_polling_time_mills as AtomicI64 => i64,
    "slaveReadEnable": slave_read_enable as AtomicBool => bool,
    "notifyConsumerIdsChangedEnable": notify_consumer_ids_changed_enable as AtomicBool => bool,
    "validateSystemTopicWhenUpdateTopic": validate_system_topic_when_update_topic as AtomicBool => bool,
    "registerBrokerTimeoutMills": register_broker_timeout_mills as AtomicU64 => u64,
    "sendThreadPoolQueueCapacity": send_thread_pool_queue_capacity as AtomicUsize => usize,
    "defaultQueryMaxNum": default_query_max_num as AtomicI32 => i32,
    "disableConsumeIfConsumerReadSlowly": disable_consume_if_consumer_read_slowly as AtomicBool => bool,
    "enablePropertyFilter": enable_property_filter as AtomicBool => bool,
    "rejectTransactionMessage": reject_transaction_message as AtomicBool => bool,
    "transactionTimeOut": transaction_time_out as AtomicI64 => i64,
    "transactionCheckMax": transaction_check_max as AtomicI32 => i32,
    "consumerFallbehindThreshold": consumer_fallbehind_threshold as AtomicI64 => i64,
}

impl BrokerConfig {
    /// Checks values that have the right type and would still harm.
    ///
    /// # Errors
    /// Key, value and what is allowed.
    pub fn validate(&self) -> Result<(), String> {
        let bits = self.broker_permission;
        if bits & !6 != 0 {
            return Err(format!(
                "brokerPermission={bits}: allowed are 6 (read, write), 4 (read), 2 (write), 0"
            ));
        }
        Ok(())
    }
}
