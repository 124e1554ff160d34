//! The remoting language of RocketMQ: frames, both header serialisations, codes, headers, bodies.
