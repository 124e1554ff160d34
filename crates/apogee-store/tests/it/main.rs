//! Tests of the store through its public interface.
#![allow(unreachable_pub, reason = "modules of a test binary share helpers and publish nothing")]

mod basics;
mod cleaning;
mod golden;
mod model;
mod support;
