//! Settings of a store that change while it runs: how long files stay and how full the disk may be.
//!
//! One short lock; cleaning rounds and disk measurements take a copy.

use crate::config::StoreConfig;
use crate::message_store::MessageStore;

/// When files go. The fields are those of the same names in [`StoreConfig`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retention {
    file_reserved_time: i64,
    delete_when: String,
    delete_file_batch_max: usize,
    disk_max_used_space_ratio: u32,
    disk_space_warning_level_ratio: u32,
    disk_space_clean_forcibly_ratio: u32,
    clean_file_forcibly_enable: bool,
    refuse_rather_than_delete_unread: bool,
}

impl Retention {
    /// The original's keys whose new values count at once.
    pub const LIVE_KEYS: &[&str] = &[
        "fileReservedTime",
        "deleteWhen",
        "deleteFileBatchMax",
        "diskMaxUsedSpaceRatio",
        "diskSpaceWarningLevelRatio",
        "diskSpaceCleanForciblyRatio",
        "cleanFileForciblyEnable",
    ];

    /// Those values of a configuration; [`StoreConfig::validate`] says whether they are good.
    #[must_use]
    pub fn of(config: &StoreConfig) -> Self {
        Self {
            file_reserved_time: config.file_reserved_time,
            delete_when: config.delete_when.clone(),
            delete_file_batch_max: config.delete_file_batch_max,
            disk_max_used_space_ratio: config.disk_max_used_space_ratio,
            disk_space_warning_level_ratio: config.disk_space_warning_level_ratio,
            disk_space_clean_forcibly_ratio: config.disk_space_clean_forcibly_ratio,
            clean_file_forcibly_enable: config.clean_file_forcibly_enable,
            refuse_rather_than_delete_unread: config.refuse_rather_than_delete_unread,
        }
    }

    /// `config` with these values.
    pub(crate) fn laid_over(&self, config: &StoreConfig) -> StoreConfig {
        StoreConfig {
            file_reserved_time: self.file_reserved_time,
            delete_when: self.delete_when.clone(),
            delete_file_batch_max: self.delete_file_batch_max,
            disk_max_used_space_ratio: self.disk_max_used_space_ratio,
            disk_space_warning_level_ratio: self.disk_space_warning_level_ratio,
            disk_space_clean_forcibly_ratio: self.disk_space_clean_forcibly_ratio,
            clean_file_forcibly_enable: self.clean_file_forcibly_enable,
            refuse_rather_than_delete_unread: self.refuse_rather_than_delete_unread,
            ..config.clone()
        }
    }
}

impl MessageStore {
    /// Takes other values for the files' retention; they count from the next measurement and round on.
    pub fn set_retention(&self, retention: Retention) {
        *self.retention.write() = Some(retention);
    }

    /// How long files are kept now (hours).
    #[must_use]
    pub fn file_reserved_time(&self) -> i64 {
        self.cleaning_config().file_reserved_time
    }

    /// The settings that count for cleaning now.
    pub(crate) fn cleaning_config(&self) -> std::borrow::Cow<'_, StoreConfig> {
        match &*self.retention.read() {
            Some(retention) => std::borrow::Cow::Owned(retention.laid_over(&self.config)),
            None => std::borrow::Cow::Borrowed(&self.config),
        }
    }
}
