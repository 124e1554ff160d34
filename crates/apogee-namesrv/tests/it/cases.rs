//! The rules of the name server, one by one.

use crate::support::{Broker, World};
use apogee_namesrv::Command;
use apogee_protocol::bodies::*;
use apogee_protocol::headers::*;
use apogee_protocol::{RemotingCommand, RequestCode, ResponseCode};

fn master() -> Broker {
    Broker::new("a", 0, "h:1", &["a", "T", "TBW102"])
}

fn replica(id: i64, addr: &'static str) -> Broker {
    Broker { acting: Some(true), ..Broker::new("a", id, addr, &["a", "T", "TBW102"]) }
}

fn addrs(route: &TopicRouteData) -> Vec<(i64, String)> {
    route.broker_datas.iter().flat_map(|group| group.broker_addrs.clone()).collect()
}

fn changed(answer: &RemotingCommand) -> bool {
    answer.header::<QueryDataVersionResponseHeader>().unwrap().changed
}

#[test]
fn a_restarted_name_server_takes_the_full_table_after_a_partial_one_with_the_same_version() {
    let mut world = World::new(&[]);
    let one = Broker { topics: vec!["New"], ..master() };
    let refused = world.register(1, &one);
    assert_eq!(refused.response_code(), ResponseCode::SYSTEM_ERROR);
    assert!(refused.remark.unwrap().starts_with("register broker failed"));
    // Two changed topics slip through the check for one, so the table must stay known as partial.
    assert_eq!(world.register(1, &Broker { topics: vec!["New", "Other"], ..master() }).code, 0);
    assert!(changed(&world.send(1, master().query_version()).unwrap()));
    assert_eq!(world.register(1, &master()).code, 0);
    assert!(!changed(&world.send(1, master().query_version()).unwrap()));
    for topic in ["New", "Other", "T", "TBW102"] {
        assert_eq!(world.route_data(topic).queue_datas.len(), 1, "{topic}");
    }
}

#[test]
fn a_fresh_name_server_says_not_ready_until_a_broker_has_come_or_time_has_passed() {
    let mut world = World::new(&[]);
    let answer = world.route("T");
    assert_eq!(answer.response_code(), ResponseCode::SYSTEM_ERROR);
    assert!(answer.remark.unwrap().starts_with("name server not ready"));
    world.now_ms = 45_000;
    let answer = world.route("T");
    assert_eq!(answer.response_code(), ResponseCode::TOPIC_NOT_EXIST);
    assert!(answer.remark.unwrap().contains("no broker is registered"));
    world.now_ms = 1;
    world.register(1, &master());
    let answer = world.route("Nosuch");
    assert_eq!(answer.response_code(), ResponseCode::TOPIC_NOT_EXIST);
    let remark = answer.remark.unwrap();
    assert!(
        remark.starts_with("No topic route info in name server for the topic: Nosuch"),
        "{remark}"
    );
}

#[test]
fn every_route_waits_when_the_setting_says_so() {
    let mut world = World::new(&[("needWaitForService", "true"), ("waitSecondsForService", "10")]);
    world.register(1, &master());
    assert_eq!(world.route("T").response_code(), ResponseCode::SYSTEM_ERROR);
    world.now_ms = 10_000;
    assert_eq!(world.route("T").code, 0);
}

#[test]
fn what_an_older_connection_says_does_not_touch_a_newer_registration() {
    let mut world = World::new(&[]);
    world.register(1, &master());
    world.register(2, &master());
    assert_eq!(world.send(1, master().unregistration()).unwrap().code, 0);
    world.closed(1);
    assert_eq!(world.route("T").code, 0);
    world.send(2, master().unregistration());
    assert_ne!(world.route("T").code, 0);
}

#[test]
fn an_unregistration_under_an_old_id_does_not_touch_the_new_role() {
    let mut world = World::new(&[]);
    world.register(1, &replica(1, "h:1"));
    world.register(1, &Broker { acting: Some(true), ..master() });
    world.send(1, replica(1, "h:1").unregistration());
    assert_eq!(addrs(&world.route_data("T")), [(0, "h:1".to_owned())]);
}

#[test]
fn a_closed_connection_takes_its_brokers_and_their_topics_along() {
    let mut world = World::new(&[]);
    world.register(1, &master());
    world.register(2, &Broker::new("b", 0, "h:2", &["b", "T", "Only"]));
    world.closed(2);
    assert_eq!(addrs(&world.route_data("T")), [(0, "h:1".to_owned())]);
    assert_ne!(world.route("Only").code, 0);
    let info =
        ClusterInfo::from_json(&world.ask(RequestCode::GET_BROKER_CLUSTER_INFO, &NoHeader).body)
            .unwrap();
    assert_eq!(info.cluster_addr_table["C"].iter().collect::<Vec<_>>(), ["a"]);
}

#[test]
fn a_silent_broker_expires_after_the_time_it_named_and_heartbeats_put_that_off() {
    let mut world = World::new(&[]);
    world.register(1, &Broker { timeout_ms: Some(10_000), ..master() });
    world.register(2, &Broker::new("b", 0, "h:2", &["b", "T"]));
    world.now_ms = 9_000;
    let beat = BrokerHeartbeatRequestHeader {
        cluster_name: "C".into(),
        broker_addr: "h:1".into(),
        broker_name: "a".into(),
        ..Default::default()
    };
    let beat = RemotingCommand::request(RequestCode::BROKER_HEARTBEAT, &beat).oneway();
    assert!(world.send(1, beat).is_none());
    world.tick(19_000);
    assert_eq!(world.route_data("T").broker_datas.len(), 2);
    world.tick(19_001);
    assert_eq!(addrs(&world.route_data("T")), [(0, "h:2".to_owned())]);
    assert_eq!(world.commands, [Command::Close { connection: 1 }]);
    world.tick(120_000);
    assert_eq!(world.route("T").code, 0);
    world.tick(120_001);
    assert_ne!(world.route("T").code, 0);
}

#[test]
fn asking_for_the_version_is_a_sign_of_life() {
    let mut world = World::new(&[]);
    world.register(1, &master());
    world.now_ms = 100_000;
    world.send(1, master().query_version());
    world.tick(200_000);
    assert_eq!(world.route("T").code, 0);
}

#[test]
fn wiped_write_permission_lasts_until_the_next_changed_registration() {
    let mut world = World::new(&[]);
    world.register(1, &master());
    let wipe = WipeWritePermOfBrokerRequestHeader { broker_name: "a".into() };
    let answer = world.ask(RequestCode::WIPE_WRITE_PERM_OF_BROKER, &wipe);
    assert_eq!(answer.header::<WipeWritePermOfBrokerResponseHeader>().unwrap().wipe_topic_count, 3);
    assert_eq!(world.route_data("T").queue_datas[0].perm, 4);
    world.register(1, &master());
    assert_eq!(world.route_data("T").queue_datas[0].perm, 4);
    world.register(1, &Broker { counter: 2, ..master() });
    assert_eq!(world.route_data("T").queue_datas[0].perm, 6);
    world.ask(RequestCode::WIPE_WRITE_PERM_OF_BROKER, &wipe);
    let add = AddWritePermOfBrokerRequestHeader { broker_name: "a".into() };
    let answer = world.ask(RequestCode::ADD_WRITE_PERM_OF_BROKER, &add);
    assert_eq!(answer.header::<AddWritePermOfBrokerResponseHeader>().unwrap().add_topic_count, 3);
    assert_eq!(world.route_data("T").queue_datas[0].perm, 6);
}

#[test]
fn a_replica_is_told_its_master_and_brings_no_topics_while_there_is_one() {
    let mut world = World::new(&[]);
    world.register(1, &master());
    let mut second = replica(1, "h:2");
    second.topics.push("OnlyOnReplica");
    let told = world.register(2, &second).header::<RegisterBrokerResponseHeader>().unwrap();
    assert_eq!(
        (told.master_addr.as_deref(), told.ha_server_addr.as_deref()),
        (Some("h:1"), Some("ha-h:1"))
    );
    assert_ne!(world.route("OnlyOnReplica").code, 0);
    assert_eq!(addrs(&world.route_data("T")), [(0, "h:1".to_owned()), (1, "h:2".to_owned())]);
}

#[test]
fn the_smallest_replica_acts_as_master_read_only_when_the_master_is_gone() {
    let mut world =
        World::new(&[("supportActingMaster", "true"), ("notifyMinBrokerIdChanged", "true")]);
    world.register(1, &Broker { acting: Some(true), ..master() });
    world.register(2, &replica(1, "h:2"));
    world.register(3, &replica(2, "h:3"));
    world.closed(1);
    let route = world.route_data("T");
    assert_eq!(addrs(&route), [(0, "h:2".to_owned()), (2, "h:3".to_owned())]);
    assert_eq!(route.queue_datas[0].perm, 4);
    let told = Command::NotifyMinBrokerId {
        addresses: vec!["h:2".to_owned(), "h:3".to_owned()],
        broker_name: "a".to_owned(),
        min_broker_id: 1,
        min_broker_addr: "h:2".to_owned(),
        offline_broker_addr: Some("h:1".to_owned()),
        ha_broker_addr: None,
    };
    assert_eq!(world.commands, [told]);
    world.commands.clear();
    world.register(4, &Broker { acting: Some(true), counter: 2, ..master() });
    let told = Command::NotifyMinBrokerId {
        addresses: vec!["h:2".to_owned(), "h:3".to_owned()],
        broker_name: "a".to_owned(),
        min_broker_id: 0,
        min_broker_addr: "h:1".to_owned(),
        offline_broker_addr: None,
        ha_broker_addr: Some("ha-h:1".to_owned()),
    };
    assert_eq!(world.commands, [told]);
    assert_eq!(world.route_data("T").queue_datas[0].perm, 6);
}

#[test]
fn an_old_master_that_wakes_up_does_not_take_its_id_back() {
    let mut world = World::new(&[]);
    world.register(1, &master());
    world.register(2, &Broker { addr: "h:2", state: 5, ..master() });
    assert_eq!(addrs(&world.route_data("T")), [(0, "h:2".to_owned())]);
    assert_eq!(world.register(3, &Broker { state: 4, ..master() }).code, 0);
    assert_eq!(addrs(&world.route_data("T")), [(0, "h:2".to_owned())]);
    world.closed(1);
    world.closed(3);
    assert_eq!(world.route("T").code, 0);
}

#[test]
fn routes_speak_the_dialect_of_the_client() {
    let mut world = World::new(&[]);
    world.register(1, &master());
    let ask = |version: i32, standard: Option<bool>| {
        let header = GetRouteInfoRequestHeader {
            topic: "T".into(),
            accept_standard_json_only: standard,
            ..Default::default()
        };
        RemotingCommand {
            version,
            ..RemotingCommand::request(RequestCode::GET_ROUTEINFO_BY_TOPIC, &header)
        }
    };
    for (version, standard, expected) in [
        (317, None, "{0:"),
        (400, None, "{0:"),
        (401, None, "{\"0\":"),
        (317, Some(true), "{\"0\":"),
    ] {
        let body = world.send(9, ask(version, standard)).unwrap().body;
        assert!(String::from_utf8_lossy(&body).contains(expected), "{version} {body:?}");
    }
}

#[test]
fn zones_hide_the_brokers_of_other_zones_but_not_those_without_a_master() {
    let mut world = World::new(&[]);
    world.register(1, &Broker { zone: Some("east"), ..master() });
    world.register(2, &Broker { zone: Some("west"), ..Broker::new("b", 0, "h:2", &["b", "T"]) });
    world.register(3, &Broker { zone: Some("west"), ..Broker::new("c", 1, "h:3", &["c", "T"]) });
    let header = GetRouteInfoRequestHeader { topic: "T".into(), ..Default::default() };
    let mut request = RemotingCommand::request(RequestCode::GET_ROUTEINFO_BY_TOPIC, &header);
    request.ext.set("__ZONE_NAME", "EAST");
    let all = world.send(9, request.clone()).unwrap();
    assert_eq!(TopicRouteData::from_json(&all.body).unwrap().queue_datas.len(), 3);
    request.ext.set("__ZONE_MODE", "true");
    let near = TopicRouteData::from_json(&world.send(9, request).unwrap().body).unwrap();
    let names: Vec<_> = near.broker_datas.iter().map(|group| group.broker_name.as_str()).collect();
    assert_eq!((names, near.queue_datas.len()), (vec!["a", "c"], 2));
}

#[test]
fn ordered_topics_stand_in_routes_when_enabled_and_are_told_to_brokers() {
    let mut world = World::new(&[("orderMessageEnable", "true")]);
    let put = PutKVConfigRequestHeader {
        namespace: "ORDER_TOPIC_CONFIG".into(),
        key: "T".into(),
        value: "a:4".into(),
    };
    world.ask(RequestCode::PUT_KV_CONFIG, &put);
    let table = KVTable::from_json(&world.register(1, &master()).body).unwrap();
    assert_eq!(table.table["T"], "a:4");
    assert_eq!(world.route_data("T").order_topic_conf.as_deref(), Some("a:4"));
    assert_eq!(world.route_data("TBW102").order_topic_conf, None);
}

#[test]
fn a_full_registration_drops_missing_topics_only_when_told_to() {
    for (setting, gone) in [("false", false), ("true", true)] {
        let mut world = World::new(&[("deleteTopicWithBrokerRegistration", setting)]);
        world.register(1, &master());
        // A partial registration says nothing about the others.
        world.register(1, &Broker { topics: vec!["New"], counter: 2, ..master() });
        assert_eq!(world.route("T").code, 0);
        world.register(1, &Broker { topics: vec!["a", "TBW102"], counter: 3, ..master() });
        assert_eq!(world.route("T").code != 0, gone);
    }
}

#[test]
fn topics_are_listed_deleted_and_entered_by_hand() {
    let mut world = World::new(&[]);
    world.register(1, &master());
    world.register(2, &Broker { cluster: "D", ..Broker::new("b", 0, "h:2", &["b", "T"]) });
    let list = |answer: RemotingCommand| TopicList::from_json(&answer.body).unwrap().topic_list;
    let all = list(world.ask(RequestCode::GET_ALL_TOPIC_LIST_FROM_NAMESERVER, &NoHeader));
    assert_eq!(all, ["T", "TBW102", "a", "b"]);
    let of_cluster = GetTopicsByClusterRequestHeader { cluster: "D".into() };
    assert_eq!(list(world.ask(RequestCode::GET_TOPICS_BY_CLUSTER, &of_cluster)), ["T", "b"]);
    assert_eq!(
        list(world.ask(RequestCode::GET_SYSTEM_TOPIC_LIST_FROM_NS, &NoHeader)),
        ["C", "D", "a", "b"]
    );
    let mut delete = DeleteTopicFromNamesrvRequestHeader {
        topic: "T".into(),
        cluster_name: Some("D".into()),
        ..Default::default()
    };
    world.ask(RequestCode::DELETE_TOPIC_IN_NAMESRV, &delete);
    assert_eq!(addrs(&world.route_data("T")), [(0, "h:1".to_owned())]);
    delete.cluster_name = None;
    world.ask(RequestCode::DELETE_TOPIC_IN_NAMESRV, &delete);
    assert_ne!(world.route("T").code, 0);
    let header = RegisterTopicRequestHeader { topic: "ByHand".into(), ..Default::default() };
    let queues =
        |name: &str| QueueData { broker_name: name.to_owned(), perm: 6, ..QueueData::default() };
    let body =
        TopicRouteData { queue_datas: vec![queues("a"), queues("nosuch")], ..Default::default() };
    let request = RemotingCommand::request(RequestCode::REGISTER_TOPIC_IN_NAMESRV, &header)
        .body(body.to_raw());
    assert_eq!(world.send(9, request).unwrap().code, 0);
    assert_eq!(world.route_data("ByHand").queue_datas, [queues("a")]);
}

#[test]
fn names_that_are_paths_or_hold_control_characters_are_not_taken() {
    let mut world = World::new(&[]);
    for name in ["", "../../x", "a/b", "x\0", "x y", "..", "a\\b"] {
        assert_eq!(
            world.register(1, &Broker { name, ..master() }).response_code(),
            ResponseCode::SYSTEM_ERROR,
            "{name}"
        );
        world.register(1, &Broker { topics: vec!["a", "T", name], counter: 9, ..master() });
    }
    let all = world.ask(RequestCode::GET_ALL_TOPIC_LIST_FROM_NAMESERVER, &NoHeader);
    assert_eq!(TopicList::from_json(&all.body).unwrap().topic_list, ["T", "a"]);
}

#[test]
fn an_update_of_path_keys_or_with_line_breaks_is_refused_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("namesrv.properties");
    let mut world = World::new(&[("configStorePath", store.to_str().unwrap())]);
    let update = |body: &str| {
        RemotingCommand::request(RequestCode::UPDATE_NAMESRV_CONFIG, &NoHeader)
            .body(body.to_owned())
    };
    let cases = [
        ("kvConfigPath=/x", ResponseCode::NO_PERMISSION),
        ("configStorePath=/x", ResponseCode::NO_PERMISSION),
        ("rocketmqHome=/x", ResponseCode::NO_PERMISSION),
        ("configBlackList=", ResponseCode::NO_PERMISSION),
        ("orderMessageEnable=true\nkvConfigPath=/x", ResponseCode::NO_PERMISSION),
        ("productEnvName=a\\nkvConfigPath=/x", ResponseCode::INVALID_PARAMETER),
        ("nosuch=1", ResponseCode::INVALID_PARAMETER),
        ("orderMessageEnable=perhaps", ResponseCode::INVALID_PARAMETER),
    ];
    for (body, code) in cases {
        assert_eq!(world.send(9, update(body)).unwrap().response_code(), code, "{body}");
    }
    assert!(!store.exists());
    assert_eq!(world.send(9, update("orderMessageEnable=true\n")).unwrap().code, 0);
    assert!(std::fs::read_to_string(&store).unwrap().contains("\norderMessageEnable=true\n"));
    let dump = world.ask(RequestCode::GET_NAMESRV_CONFIG, &NoHeader).body;
    assert!(String::from_utf8_lossy(&dump).contains("\norderMessageEnable=true\n"));
}

#[test]
fn wrong_requests_are_refused_with_their_reason() {
    let mut world = World::new(&[]);
    let unknown = RemotingCommand::with_ext(99_998, [].into_iter().collect());
    let answer = world.send(9, unknown).unwrap();
    assert_eq!(answer.response_code(), ResponseCode::REQUEST_CODE_NOT_SUPPORTED);
    assert_eq!(answer.remark.unwrap(), " request type 99998 not supported");
    let answer = world.ask(RequestCode::GET_ROUTEINFO_BY_TOPIC, &NoHeader);
    assert_eq!(answer.remark.unwrap(), "GetRouteInfoRequestHeader: field \"topic\" is missing");
    let mut wrong_crc = master().registration();
    wrong_crc.ext.set("bodyCrc32", "1");
    assert_eq!(world.send(1, wrong_crc).unwrap().remark.unwrap(), "crc32 not match");
    let kv = GetKVConfigRequestHeader { namespace: "nosuch".into(), key: "k".into() };
    let answer = world.ask(RequestCode::GET_KV_CONFIG, &kv);
    assert_eq!(answer.response_code(), ResponseCode::QUERY_NOT_FOUND);
    assert_eq!(answer.remark.unwrap(), "No config item, Namespace: nosuch Key: k");
}

#[test]
fn a_broker_name_is_in_one_cluster_only_and_moves_when_it_is_alone() {
    let mut world = World::new(&[]);
    world.register(1, &master());
    let elsewhere = Broker { cluster: "D", addr: "h:2", ..master() };
    let refused = world.register(2, &elsewhere);
    assert_eq!(refused.response_code(), ResponseCode::SYSTEM_ERROR);
    assert!(refused.remark.unwrap().contains("broker name a is registered in cluster C"));
    assert_eq!(world.register(1, &Broker { cluster: "D", ..master() }).code, 0);
    let info =
        ClusterInfo::from_json(&world.ask(RequestCode::GET_BROKER_CLUSTER_INFO, &NoHeader).body)
            .unwrap();
    assert_eq!(info.cluster_addr_table.keys().collect::<Vec<_>>(), ["D"]);
}
