//! SQL92 filters over the wire.

use crate::harness::{Fixture, Peer, pull_header, subscription};
use apogee_protocol::bodies::{CheckClientRequestBody, JsonBody, SubscriptionData};
use apogee_protocol::headers::{NoHeader, PullMessageRequestHeader};
use apogee_protocol::{RemotingCommand, RequestCode, ResponseCode, Str};
use bytes::Bytes;

async fn enabled() -> Fixture {
    Fixture::start_with(|config, _| config.enable_property_filter = true).await
}

fn sql(topic: &str, expression: &str, version: i64) -> SubscriptionData {
    SubscriptionData {
        expression_type: Some("SQL92".to_owned()),
        ..subscription(topic, expression, version)
    }
}

/// A pull that relies on the heartbeat.
fn registered_pull(group: &str, offset: i64, version: i64) -> PullMessageRequestHeader {
    PullMessageRequestHeader {
        sys_flag: 0,
        subscription: None,
        sub_version: version,
        expression_type: Some(Str::from_static("SQL92")),
        ..pull_header(group, "T", 0, offset)
    }
}

/// A pull that brings its expression along.
fn inline_pull(expression: &str) -> PullMessageRequestHeader {
    PullMessageRequestHeader {
        subscription: Some(Str::from(expression.to_owned())),
        expression_type: Some(Str::from_static("SQL92")),
        ..pull_header("CG", "T", 0, 0)
    }
}

async fn send_numbers(peer: &Peer, count: i32) {
    for n in 0..count {
        peer.send_with("T", 0, &format!("n\u{1}{n}\u{2}TAGS\u{1}A\u{2}"), &n.to_string()).await;
    }
}

async fn check_client(peer: &Peer, data: SubscriptionData) -> RemotingCommand {
    let body = CheckClientRequestBody {
        client_id: Some("c".to_owned()),
        group: Some("CG".to_owned()),
        subscription_data: Some(data),
        ..CheckClientRequestBody::default()
    };
    peer.ask_with(RequestCode::CHECK_CLIENT_CONFIG, &NoHeader, Bytes::from(body.to_raw())).await
}

fn remark(answer: &RemotingCommand) -> &str {
    answer.remark.as_deref().unwrap_or_default()
}

#[tokio::test]
async fn the_first_pulls_of_many_new_groups_get_what_matches_and_only_that() {
    let fixture = enabled().await;
    let peer = fixture.connect().await;
    send_numbers(&peer, 10).await;
    for group in (0..20).map(|n| format!("CG{n}")) {
        let data = sql("T", "n BETWEEN 3 AND 5 AND TAGS = 'A'", 1);
        let answer = peer.join("c", &group, vec![data]).await;
        assert_eq!(answer.response_code(), ResponseCode::SUCCESS);
        let pulled = peer.pull_with(&registered_pull(&group, 0, 1)).await;
        assert_eq!(pulled.bodies(), ["3", "4", "5"]);
        assert_eq!(pulled.header.next_begin_offset, 10);
    }
}

#[tokio::test]
async fn a_waiting_pull_passes_over_what_does_not_match() {
    let fixture = enabled().await;
    let peer = fixture.connect().await;
    send_numbers(&peer, 1).await;
    peer.join("c", "CG", vec![sql("T", "n = 4", 1)]).await;
    let mut header = registered_pull("CG", 1, 1);
    header.sys_flag = 2;
    header.suspend_timeout_millis = 10_000;
    let (pulled, ()) = tokio::join!(peer.pull_with(&header), async {
        while fixture.broker.waiting_pulls() == 0 {
            tokio::task::yield_now().await;
        }
        send_numbers(&peer, 5).await;
    });
    assert_eq!(pulled.bodies(), ["4"]);
}

#[tokio::test]
async fn a_pull_may_bring_its_expression() {
    let fixture = enabled().await;
    let peer = fixture.connect().await;
    send_numbers(&peer, 6).await;
    assert_eq!(peer.pull_with(&inline_pull("n > 3 OR n = 0")).await.bodies(), ["0", "4", "5"]);
    let refused = peer.ask(RequestCode::PULL_MESSAGE, &inline_pull("n > ")).await;
    assert_eq!(refused.response_code(), ResponseCode::SUBSCRIPTION_PARSE_FAILED);
    assert!(remark(&refused).contains("line 1, column 5"), "{}", remark(&refused));
}

#[tokio::test]
async fn a_wrong_expression_is_refused_with_its_place_before_and_after_the_heartbeat() {
    let fixture = enabled().await;
    let peer = fixture.connect().await;
    send_numbers(&peer, 1).await;
    let wrong = || sql("T", "a BETWEEN 1 AND AND", 1);
    let refused = check_client(&peer, wrong()).await;
    assert_eq!(refused.response_code(), ResponseCode::SUBSCRIPTION_PARSE_FAILED);
    assert!(remark(&refused).contains("line 1, column 17"), "{}", remark(&refused));
    let good = check_client(&peer, sql("T", "a BETWEEN 1 AND 2", 1)).await;
    assert_eq!(good.response_code(), ResponseCode::SUCCESS);

    assert_eq!(peer.join("c", "CG", vec![wrong()]).await.response_code(), ResponseCode::SUCCESS);
    let refused = peer.ask(RequestCode::PULL_MESSAGE, &registered_pull("CG", 0, 1)).await;
    assert_eq!(refused.response_code(), ResponseCode::FILTER_DATA_NOT_EXIST);
    assert!(remark(&refused).contains("column 17"), "{}", remark(&refused));
}

#[tokio::test]
async fn without_the_switch_the_refusal_names_it() {
    let fixture = Fixture::start().await;
    let peer = fixture.connect().await;
    send_numbers(&peer, 1).await;
    peer.join("c", "CG", vec![sql("T", "n = 0", 1)]).await;
    for answer in [
        check_client(&peer, sql("T", "n = 0", 1)).await,
        peer.ask(RequestCode::PULL_MESSAGE, &registered_pull("CG", 0, 1)).await,
        peer.ask(RequestCode::PULL_MESSAGE, &inline_pull("n = 0")).await,
    ] {
        assert_eq!(answer.response_code(), ResponseCode::SYSTEM_ERROR);
        assert!(remark(&answer).contains("enablePropertyFilter"), "{}", remark(&answer));
    }
    let by_tags = check_client(&peer, subscription("T", "A", 1)).await;
    assert_eq!(by_tags.response_code(), ResponseCode::SUCCESS);
}

#[tokio::test]
async fn filters_are_saved_at_the_stop_with_the_end_of_their_group() {
    let fixture = enabled().await;
    let peer = fixture.connect().await;
    peer.join("c", "CG_sql", vec![sql("T", "n = 0", 9)]).await;
    let folder = fixture.stop().await.unwrap();
    let path = folder.path().join("config").join("consumerFilter.json");
    let text = std::fs::read_to_string(path).unwrap();
    for part in [r#""expression":"n = 0""#, r#""clientVersion":9"#, r#""bitNum":112"#] {
        assert!(text.contains(part), "{text}");
    }
}
