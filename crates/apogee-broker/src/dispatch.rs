//! One table from request code to handler, lane and name. What is not in it is answered with
//! REQUEST_CODE_NOT_SUPPORTED.
//!
//! Handlers marked `Inline` are short and run on the connection's task; `Blocking` ones may read disks
//! or save documents and run on the blocking pool; `Relay` ones ask a client and wait. The latter two
//! hold a permit of their lane; a lane without permits answers SYSTEM_BUSY.

use crate::broker::Broker;
use crate::pop::{assign, looking, popping, settling};
use crate::processor::{
    admin, client, end_transaction, offset, query, queue_lock, recall, reply, send_back,
};
use apogee_net::{Connection, OutBuffer, Service};
use apogee_protocol::{HeaderError, RemotingCommand, ReplyTo, RequestCode, Response, ResponseCode};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// What a handler works with.
pub(crate) struct Context<'a> {
    pub(crate) broker: &'a Arc<Broker>,
    pub(crate) connection: &'a Arc<Connection>,
    pub(crate) request: &'a RemotingCommand,
    pub(crate) now: i64,
}

impl Context<'_> {
    /// The typed header, or the refusal that names what is wrong with it.
    pub(crate) fn header<H: apogee_protocol::Header>(&self) -> Result<H, Response> {
        self.request.header().map_err(|error: HeaderError| {
            Response::error(ResponseCode::SYSTEM_ERROR, error.to_string())
        })
    }

    /// The JSON body, or the refusal that says why it is none.
    pub(crate) fn body<B: apogee_protocol::bodies::JsonBody>(&self) -> Result<B, Response> {
        B::from_json(&self.request.body).map_err(|error| {
            let code = self.request.code;
            Response::error(ResponseCode::SYSTEM_ERROR, format!("request {code}: {error}"))
        })
    }
}

type Handled = Result<Response, Response>;
type Relayed = Pin<Box<dyn Future<Output = Handled> + Send>>;

/// Which limit a request counts against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// Sends.
    Send,
    /// Pulls.
    Pull,
    /// Heartbeats and membership.
    Client,
    /// Consumer offsets and locks.
    Consumer,
    /// Queries by key and id.
    Query,
    /// Everything an operator asks.
    Admin,
}

/// How a request is handled.
#[derive(Clone, Copy)]
pub(crate) enum Handler {
    Send,
    Pull,
    Waiting(fn(&Context<'_>) -> crate::processor::pull::Outcome),
    Inline(fn(&Context<'_>) -> Handled),
    Blocking(fn(&Context<'_>) -> Handled),
    Relay(fn(Arc<Broker>, Arc<Connection>, RemotingCommand) -> Relayed),
}

/// A line of the table.
pub struct Entry {
    /// The request code.
    pub code: RequestCode,
    /// Its limit.
    pub lane: Lane,
    pub(crate) handler: Handler,
}

pub(crate) const fn entry(code: RequestCode, lane: Lane, handler: Handler) -> Entry {
    Entry { code, lane, handler }
}

/// Every request that the broker answers.
pub static TABLE: &[Entry] = {
    use Handler::{Blocking, Inline, Pull, Relay, Send, Waiting};
    use RequestCode as C;
    &[
        entry(C::SEND_MESSAGE, Lane::Send, Send),
        entry(C::SEND_MESSAGE_V2, Lane::Send, Send),
        entry(C::SEND_BATCH_MESSAGE, Lane::Send, Send),
        entry(C::SEND_REPLY_MESSAGE, Lane::Send, Relay(reply::serve)),
        entry(C::SEND_REPLY_MESSAGE_V2, Lane::Send, Relay(reply::serve)),
        entry(C::RECALL_MESSAGE, Lane::Query, Relay(recall::serve)),
        entry(C::GET_TIMER_CHECK_POINT, Lane::Admin, Inline(recall::check_point)),
        entry(C::CONSUMER_SEND_MSG_BACK, Lane::Send, Relay(send_back::serve)),
        entry(C::END_TRANSACTION, Lane::Send, Inline(end_transaction::serve)),
        entry(C::RESUME_CHECK_HALF_MESSAGE, Lane::Admin, Blocking(end_transaction::resume_check)),
        entry(C::PULL_MESSAGE, Lane::Pull, Pull),
        entry(C::LITE_PULL_MESSAGE, Lane::Pull, Pull),
        entry(C::POP_MESSAGE, Lane::Pull, Waiting(popping::serve)),
        entry(C::ACK_MESSAGE, Lane::Consumer, Inline(settling::ack)),
        entry(C::BATCH_ACK_MESSAGE, Lane::Consumer, Inline(settling::batch_ack)),
        entry(
            C::CHANGE_MESSAGE_INVISIBLETIME,
            Lane::Consumer,
            Inline(settling::change_invisible_time),
        ),
        entry(C::PEEK_MESSAGE, Lane::Pull, Blocking(looking::peek)),
        entry(C::NOTIFICATION, Lane::Pull, Waiting(looking::notification)),
        entry(C::POLLING_INFO, Lane::Pull, Inline(looking::polling_info)),
        entry(C::QUERY_ASSIGNMENT, Lane::Consumer, Relay(assign::query)),
        entry(C::QUERY_MESSAGE, Lane::Query, Blocking(query::query_message)),
        entry(C::VIEW_MESSAGE_BY_ID, Lane::Query, Blocking(query::view_message_by_id)),
        entry(C::HEART_BEAT, Lane::Client, Inline(client::heart_beat)),
        entry(C::UNREGISTER_CLIENT, Lane::Client, Inline(client::unregister_client)),
        entry(C::CHECK_CLIENT_CONFIG, Lane::Client, Inline(client::check_client_config)),
        entry(C::GET_CONSUMER_LIST_BY_GROUP, Lane::Consumer, Inline(client::get_consumer_list)),
        entry(C::QUERY_CONSUMER_OFFSET, Lane::Consumer, Inline(offset::query_consumer_offset)),
        entry(C::UPDATE_CONSUMER_OFFSET, Lane::Consumer, Inline(offset::update_consumer_offset)),
        entry(C::LOCK_BATCH_MQ, Lane::Consumer, Inline(queue_lock::lock_batch)),
        entry(C::UNLOCK_BATCH_MQ, Lane::Consumer, Inline(queue_lock::unlock_batch)),
        entry(C::SEARCH_OFFSET_BY_TIMESTAMP, Lane::Query, Blocking(offset::search_offset)),
        entry(C::GET_MAX_OFFSET, Lane::Consumer, Inline(offset::get_max_offset)),
        entry(C::GET_MIN_OFFSET, Lane::Consumer, Inline(offset::get_min_offset)),
        entry(
            C::GET_EARLIEST_MSG_STORETIME,
            Lane::Query,
            Blocking(offset::get_earliest_store_time),
        ),
    ]
};

/// The line of a code, here or among the operator's requests.
pub fn find(code: i32) -> Option<&'static Entry> {
    // Hot codes stand at the front of a short table: a scan beats a map here.
    TABLE.iter().chain(admin::TABLE).find(|entry| entry.code.0 == code)
}

/// Permits of the lanes.
pub(crate) struct Lanes {
    query: Arc<Semaphore>,
    admin: Arc<Semaphore>,
}

impl Lanes {
    pub(crate) fn new(query: usize, admin: usize) -> Self {
        Self {
            query: Arc::new(Semaphore::new(query.clamp(1, Semaphore::MAX_PERMITS))),
            admin: Arc::new(Semaphore::new(admin.clamp(1, Semaphore::MAX_PERMITS))),
        }
    }

    fn of(&self, lane: Lane) -> &Arc<Semaphore> {
        if lane == Lane::Query { &self.query } else { &self.admin }
    }
}

/// The broker as a [`Service`]; `fast` is the port that serves no pulls.
pub(crate) struct Entrance {
    pub(crate) broker: Arc<Broker>,
    pub(crate) fast: bool,
}

impl Service for Entrance {
    fn serve(
        &self,
        connection: &Arc<Connection>,
        requests: &mut Vec<RemotingCommand>,
        replies: &mut OutBuffer,
    ) {
        let now = crate::clock::now_ms();
        let mut rest = requests.as_slice();
        while let Some(first) = rest.first() {
            let sends = rest.iter().take_while(|request| is_send(request.code)).count();
            if sends > 0 {
                let (run, after) = rest.split_at_checked(sends).unwrap_or((rest, &[]));
                crate::processor::send::serve(&self.broker, connection, run, now, replies);
                rest = after;
                continue;
            }
            self.serve_one(connection, first, now, replies);
            rest = rest.get(1..).unwrap_or_default();
        }
        requests.clear();
    }

    fn closed(&self, connection: &Arc<Connection>) {
        self.broker.connection_closed(connection.id());
    }
}

fn is_send(code: i32) -> bool {
    let code = RequestCode(code);
    code == RequestCode::SEND_MESSAGE_V2
        || code == RequestCode::SEND_MESSAGE
        || code == RequestCode::SEND_BATCH_MESSAGE
}

impl Entrance {
    fn serve_one(
        &self,
        connection: &Arc<Connection>,
        request: &RemotingCommand,
        now: i64,
        replies: &mut OutBuffer,
    ) {
        let mut reply = |response: Response| {
            if !request.is_oneway() {
                replies.reply(ReplyTo::from(request), response);
            }
        };
        let Some(entry) =
            find(request.code).filter(|entry| !(self.fast && entry.lane == Lane::Pull))
        else {
            let remark = format!(" request type {} not supported", request.code);
            reply(Response::error(ResponseCode::REQUEST_CODE_NOT_SUPPORTED, remark));
            return;
        };
        let context = Context { broker: &self.broker, connection, request, now };
        match entry.handler {
            Handler::Send => {}
            Handler::Inline(handle) => reply(handle(&context).unwrap_or_else(|refusal| refusal)),
            Handler::Pull => {
                use crate::processor::pull::{Outcome, serve};
                if let Outcome::Now(response) = serve(&self.broker, connection, request, now) {
                    reply(response);
                }
            }
            Handler::Waiting(serve) => {
                if let crate::processor::pull::Outcome::Now(response) = serve(&context) {
                    reply(response);
                }
            }
            Handler::Blocking(_) | Handler::Relay(_) => {
                if let Err(busy) = self.spawn(entry, connection, request, now) {
                    reply(busy);
                }
            }
        }
    }

    /// Starts what takes longer; it answers by itself.
    fn spawn(
        &self,
        entry: &'static Entry,
        connection: &Arc<Connection>,
        request: &RemotingCommand,
        now: i64,
    ) -> Result<(), Response> {
        let Ok(permit) = Arc::clone(self.broker.lanes.of(entry.lane)).try_acquire_owned() else {
            return Err(Response::error(
                ResponseCode::SYSTEM_BUSY,
                format!(
                    "[OVERLOAD]system busy, start flow control for a while: lane {:?} is full",
                    entry.lane
                ),
            ));
        };
        let (broker, connection, request) =
            (Arc::clone(&self.broker), Arc::clone(connection), request.clone());
        let tasks = broker.tasks.clone();
        let in_flight = connection.begin(1);
        let answer = move |connection: &Connection, request: &RemotingCommand, handled: Handled| {
            if !request.is_oneway() {
                connection.reply(ReplyTo::from(request), handled.unwrap_or_else(|refusal| refusal));
            }
            drop((permit, in_flight));
        };
        match entry.handler {
            Handler::Blocking(handle) => {
                tasks.spawn_blocking(move || {
                    let context = Context {
                        broker: &broker,
                        connection: &connection,
                        request: &request,
                        now,
                    };
                    answer(&connection, &request, handle(&context));
                });
            }
            Handler::Relay(ask) => {
                tasks.spawn(async move {
                    let handled = ask(broker, Arc::clone(&connection), request.clone()).await;
                    answer(&connection, &request, handled);
                });
            }
            _ => {}
        }
        Ok(())
    }
}
