//! What the route table promises holds after any sequence of events.

use crate::route_table::{Command, Policy, Registration, RouteTable};
use apogee_protocol::bodies::TopicConfig;
use proptest::prelude::*;

const NAMES: [&str; 3] = ["a", "b", "c"];
const TOPICS: [&str; 4] = ["a", "b", "T", "U"];
const ADDRS: [&str; 4] = ["h:1", "h:2", "h:3", "h:4"];
const CLUSTERS: [&str; 2] = ["C", "D"];

#[derive(Debug, Clone)]
enum Event {
    Register {
        cluster: usize,
        name: usize,
        addr: usize,
        id: i64,
        topics: Vec<usize>,
        state: i64,
        acting: bool,
        connection: u64,
    },
    Unregister {
        cluster: usize,
        addr: usize,
        id: i64,
        connection: u64,
    },
    Closed(u64),
    Wait(i64),
    Wipe(usize),
    DeleteTopic {
        topic: usize,
        cluster: Option<usize>,
    },
}

fn event() -> impl Strategy<Value = Event> {
    let register = (
        0..2usize,
        0..3usize,
        0..4usize,
        0..3i64,
        prop::collection::vec(0..4usize, 0..4),
        0..3i64,
        any::<bool>(),
        1..6u64,
    )
        .prop_map(|(cluster, name, addr, id, topics, state, acting, connection)| {
            Event::Register { cluster, name, addr, id, topics, state, acting, connection }
        });
    let unregister =
        (0..2usize, 0..4usize, 0..3i64, 1..6u64).prop_map(|(cluster, addr, id, connection)| {
            Event::Unregister { cluster, addr, id, connection }
        });
    prop_oneof![
        4 => register,
        1 => unregister,
        1 => (1..6u64).prop_map(Event::Closed),
        1 => (0..200_000i64).prop_map(Event::Wait),
        1 => (0..3usize).prop_map(Event::Wipe),
        1 => (0..4usize, prop::option::of(0..2usize)).prop_map(|(topic, cluster)| Event::DeleteTopic { topic, cluster }),
    ]
}

fn apply(table: &mut RouteTable, event: Event, now_ms: &mut i64, commands: &mut Vec<Command>) {
    let policy = Policy { notify_min_broker_id: true, delete_missing_topics: *now_ms % 2 == 0 };
    match event {
        Event::Register { cluster, name, addr, id, topics, state, acting, connection } => {
            let mut from = Registration {
                cluster: CLUSTERS[cluster].to_owned(),
                broker_name: NAMES[name].to_owned(),
                broker_addr: ADDRS[addr].to_owned(),
                broker_id: id,
                enable_acting_master: Some(acting),
                ..Registration::default()
            };
            from.topics.data_version.state_version = state;
            for topic in topics {
                from.topics
                    .topic_config_table
                    .insert(TOPICS[topic].to_owned(), TopicConfig::default());
            }
            let _ = table.register(from, connection, policy, *now_ms, commands);
        }
        Event::Unregister { cluster, addr, id, connection } => {
            table.unregister(CLUSTERS[cluster], ADDRS[addr], id, connection, policy, commands);
        }
        Event::Closed(connection) => {
            table.connection_closed(connection, policy, commands);
            assert!(table.live.values().all(|live| live.connection != connection));
        }
        Event::Wait(ms) => {
            *now_ms += ms;
            table.expire(*now_ms, policy, commands);
        }
        Event::Wipe(name) => {
            table.wipe_write_permission(NAMES[name]);
        }
        Event::DeleteTopic { topic, cluster } => {
            table.delete_topic(TOPICS[topic], cluster.map(|at| CLUSTERS[at]));
        }
    }
}

fn check(table: &RouteTable) {
    for (name, group) in &table.brokers {
        assert!(!group.broker_addrs.is_empty(), "{name} without an address");
        let cluster = group.cluster.clone().unwrap();
        let homes = table.clusters.iter().filter(|(_, names)| names.contains(name));
        assert_eq!(homes.map(|(home, _)| home).collect::<Vec<_>>(), [&cluster]);
        for (id, address) in &group.broker_addrs {
            let live = table.live.get(&(cluster.clone(), address.clone()));
            let same = live.is_some_and(|live| live.broker_name == *name && live.broker_id == *id);
            assert!(same, "{name} {id} {address}: {live:?}");
        }
    }
    for ((cluster, address), live) in &table.live {
        let group = table.brokers.get(&live.broker_name).unwrap();
        assert_eq!(
            (group.cluster.as_ref(), group.broker_addrs.get(&live.broker_id)),
            (Some(cluster), Some(address))
        );
    }
    assert!(table.clusters.values().all(|names| !names.is_empty()));
    assert!(table.clusters.values().flatten().all(|name| table.brokers.contains_key(name)));
    for (topic, queues) in &table.topics {
        assert!(!queues.is_empty(), "{topic} without queues");
        assert!(
            queues.keys().all(|name| table.brokers.contains_key(name)),
            "{topic} of an unknown broker"
        );
    }
}

proptest! {
    #[test]
    fn the_table_keeps_its_promises_after_any_events(events in prop::collection::vec(event(), 1..40)) {
        let (mut table, mut now_ms, mut commands) = (RouteTable::new(), 0, Vec::new());
        for event in events {
            apply(&mut table, event, &mut now_ms, &mut commands);
            check(&table);
        }
    }
}
