//! Request and reply.

use crate::harness::{Fixture, send_header, subscription};
use apogee_protocol::headers::ReplyMessageRequestHeader;
use apogee_protocol::{RequestCode, ResponseCode};
use bytes::Bytes;

const TO: &str = "MSG_TYPE\u{1}reply\u{2}REPLY_TO_CLIENT\u{1}asker\u{2}CORRELATION_ID\u{1}c-1\u{2}";

#[tokio::test]
async fn a_reply_is_pushed_to_the_client_that_asked_and_confirmed_to_the_replier() {
    let fixture = Fixture::start().await;
    let (mut asker, replier) = (fixture.connect().await, fixture.connect().await);
    asker.join("asker", "CG", vec![subscription("T", "*", 1)]).await;
    asker.next_request().await;
    let replying = tokio::spawn(async move {
        let header = send_header("DefaultCluster_REPLY_TOPIC", 0, TO);
        replier
            .ask_with(RequestCode::SEND_REPLY_MESSAGE_V2, &header, Bytes::from_static(b"answer"))
            .await
    });
    let pushed = asker.next_request().await;
    assert_eq!(pushed.request_code(), RequestCode::PUSH_REPLY_MESSAGE_TO_CLIENT);
    assert_eq!(pushed.body, "answer");
    let header: ReplyMessageRequestHeader = pushed.header().unwrap();
    assert!(header.properties.as_deref().unwrap().contains("CORRELATION_ID\u{1}c-1\u{2}"));
    let confirm = apogee_protocol::Response::success();
    asker.connection.reply(apogee_protocol::ReplyTo::from(&pushed), confirm);
    assert_eq!(replying.await.unwrap().response_code(), ResponseCode::SUCCESS);
}

#[tokio::test]
async fn a_reply_to_a_client_that_is_not_there_is_an_error_that_names_it() {
    let fixture = Fixture::start().await;
    let replier = fixture.connect().await;
    let header = send_header("DefaultCluster_REPLY_TOPIC", 0, TO);
    let answer = replier
        .ask_with(RequestCode::SEND_REPLY_MESSAGE_V2, &header, Bytes::from_static(b"answer"))
        .await;
    assert_eq!(answer.response_code(), ResponseCode::SYSTEM_ERROR);
    assert_eq!(
        answer.remark.as_deref(),
        Some("push reply message fail, channel of <asker> not found.")
    );
    assert_eq!(answer.ext.get("queueOffset"), Some("0"));
}
