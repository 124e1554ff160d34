//! Broker: turns remoting requests into store operations.
