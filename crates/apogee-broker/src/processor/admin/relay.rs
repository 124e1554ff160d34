//! Questions that a client answers: the broker passes them on and waits.

use crate::broker::Broker;
use crate::clients::Member;
use apogee_model::id::OffsetId;
use apogee_net::{Connection, InvokeError};
use apogee_protocol::bodies::{GetConsumerStatusBody, JsonBody};
use apogee_protocol::headers::{
    ConsumeMessageDirectlyResultRequestHeader, GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
};
use apogee_protocol::{HeaderError, RemotingCommand, RequestCode, Response, ResponseCode};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

type Handled = Result<Response, Response>;
type Relayed = Pin<Box<dyn Future<Output = Handled> + Send>>;

/// How long a client may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

fn bad_header(error: &HeaderError) -> Response {
    Response::error(ResponseCode::SYSTEM_ERROR, error.to_string())
}

/// GET_CONSUMER_RUNNING_INFO.
pub(crate) fn running_info(
    broker: Arc<Broker>,
    _: Arc<Connection>,
    request: RemotingCommand,
) -> Relayed {
    Box::pin(async move {
        let header: GetConsumerRunningInfoRequestHeader =
            request.header().map_err(|error| bad_header(&error))?;
        let member = find(&broker, &header.consumer_group, &header.client_id)?;
        ask(&member, request).await
    })
}

/// CONSUME_MESSAGE_DIRECTLY: a member gets one message of the log and says how it went.
pub(crate) fn consume_directly(
    broker: Arc<Broker>,
    _: Arc<Connection>,
    mut request: RemotingCommand,
) -> Relayed {
    Box::pin(async move {
        let header: ConsumeMessageDirectlyResultRequestHeader =
            request.header().map_err(|error| bad_header(&error))?;
        let client_id = header.client_id.as_deref().unwrap_or_default();
        let member = find(&broker, &header.consumer_group, client_id)?;
        let id = OffsetId::parse(header.msg_id.as_deref().unwrap_or_default())
            .map_err(|error| Response::error(ResponseCode::INVALID_PARAMETER, error.to_string()))?;
        let store = Arc::clone(&broker.store);
        let found = tokio::task::spawn_blocking(move || {
            store.get_by_physical_offset(id.physical_offset, None)
        })
        .await;
        let Ok(Ok(Some(message))) = found else {
            return Err(Response::error(
                ResponseCode::SYSTEM_ERROR,
                format!("can not find message by the offset, {}", id.physical_offset),
            ));
        };
        request.body = message;
        ask(&member, request).await
    })
}

/// INVOKE_BROKER_TO_GET_CONSUMER_STATUS: the positions that members hold in memory. A member that does not
/// answer is left out.
pub(crate) fn consumer_status(
    broker: Arc<Broker>,
    _: Arc<Connection>,
    request: RemotingCommand,
) -> Relayed {
    Box::pin(async move {
        let header: GetConsumerStatusRequestHeader =
            request.header().map_err(|error| bad_header(&error))?;
        let group = header.group.as_str();
        let members = broker
            .clients
            .consumer_group(group)
            .map(|members| members.members())
            .unwrap_or_default();
        if members.is_empty() {
            return Err(Response::error(
                ResponseCode::SYSTEM_ERROR,
                format!("No Any Consumer online in the consumer group: [{group}]"),
            ));
        }
        let only = header.client_addr.as_deref().filter(|id| !id.trim().is_empty());
        let asked: Vec<&Member> = members
            .iter()
            .filter(|member| only.is_none_or(|id| member.client_id.as_ref() == id))
            .collect();
        let question = GetConsumerStatusRequestHeader {
            topic: header.topic.clone(),
            group: header.group.clone(),
            ..GetConsumerStatusRequestHeader::default()
        };
        let mut answers = tokio::task::JoinSet::new();
        for member in asked.into_iter().cloned() {
            let question =
                RemotingCommand::request(RequestCode::GET_CONSUMER_STATUS_FROM_CLIENT, &question);
            answers.spawn(async move {
                (member.client_id.to_string(), member.connection.invoke(question, PATIENCE).await)
            });
        }
        let mut body = GetConsumerStatusBody::default();
        while let Some(answer) = answers.join_next().await {
            let Ok((client_id, Ok(answer))) = answer else { continue };
            if let Ok(status) = GetConsumerStatusBody::from_json(&answer.body)
                && answer.response_code() == ResponseCode::SUCCESS
            {
                body.consumer_table.insert(client_id, status.message_queue_table);
            }
        }
        Ok(Response::success().body(body.to_raw()))
    })
}

fn find(broker: &Broker, group: &str, client_id: &str) -> Result<Member, Response> {
    let members =
        broker.clients.consumer_group(group).map(|members| members.members()).unwrap_or_default();
    members.into_iter().find(|member| member.client_id.as_ref() == client_id).ok_or_else(|| {
        Response::error(
            ResponseCode::CONSUMER_NOT_ONLINE,
            format!("The Consumer <{group}> <{client_id}> not online"),
        )
    })
}

async fn ask(member: &Member, request: RemotingCommand) -> Handled {
    match member.connection.invoke(request, PATIENCE).await {
        Ok(answer) => {
            let mut response = Response::new(answer.response_code()).body(answer.body);
            response.remark = answer.remark;
            Ok(response)
        }
        Err(InvokeError::Timeout { timeout_ms, .. }) => Err(Response::error(
            ResponseCode::CONSUME_MSG_TIMEOUT,
            format!("the client {} did not answer within {timeout_ms} ms", member.client_id),
        )),
        Err(error) => Err(Response::error(ResponseCode::SYSTEM_ERROR, error.to_string())),
    }
}
