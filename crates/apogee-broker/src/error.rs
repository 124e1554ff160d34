//! Why a broker cannot start or save what it knows.

/// An error of the broker.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] apogee_store::StoreError),
    /// A document does not hold what its name says.
    #[error("a document under config/ cannot be read: {0}")]
    Document(#[from] apogee_protocol::bodies::BodyError),
    /// The network failed.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A setting cannot be used.
    #[error("{0}")]
    Config(String),
}
