//! Asynchronous remoting server and client on tokio.
