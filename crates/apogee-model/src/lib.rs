//! Words of the domain and the stored record of RocketMQ: no I/O, no clock.
