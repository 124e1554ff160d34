//! Asking: by either side of a connection.

use crate::support::{ECHO, HOLD, Running, request, within};
use apogee_net::client::NoService;
use apogee_net::{ClientError, Connection, InvokeError, Limits, OutBuffer, Service};
use apogee_protocol::{RemotingCommand, ReplyTo, Response};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(20);

#[tokio::test]
async fn each_asker_gets_its_own_answer_whatever_order_they_come_in() {
    let mut server = Running::start(Limits::default());
    let client = server.client(Limits::default(), Arc::new(NoService));
    let connection = client.connect(&server.address.to_string()).await.unwrap();
    let mut askers = Vec::new();
    let mut held = Vec::new();
    for n in 0..20_u8 {
        let connection = Arc::clone(&connection);
        askers.push(tokio::spawn(async move {
            // The same opaque for all: the connection gives each its own.
            connection.invoke(request(HOLD, 1, &[n]), LONG).await.unwrap().body
        }));
        held.push(server.next_held().await);
    }
    for one in held.iter().rev() {
        let body = Response::success().body(one.request.body.clone());
        one.connection.reply(ReplyTo::from(&one.request), body);
    }
    for (n, asker) in askers.into_iter().enumerate() {
        assert_eq!(asker.await.unwrap(), [n as u8].as_slice());
    }
}

#[tokio::test]
async fn an_answer_that_comes_too_late_is_dropped_and_the_connection_goes_on() {
    let mut server = Running::start(Limits::default());
    let client = server.client(Limits::default(), Arc::new(NoService));
    let address = server.address.to_string();
    let timeout = Duration::from_millis(30);
    let error = client.invoke(&address, request(HOLD, 0, b""), timeout).await.unwrap_err();
    let ClientError::Invoke(InvokeError::Timeout { peer, timeout_ms }) = error else {
        panic!("{error}");
    };
    assert_eq!((peer, timeout_ms), (server.address, 30));
    server.next_held().await.reply(b"late");
    let answer = client.invoke(&address, request(ECHO, 0, b"next"), LONG).await.unwrap();
    assert_eq!(&answer.body[..], b"next");
}

#[tokio::test]
async fn who_waits_hears_at_once_that_the_connection_has_ended() {
    let mut server = Running::start(Limits::default());
    let client = server.client(Limits::default(), Arc::new(NoService));
    let connection = client.open(&server.address.to_string()).await.unwrap();
    let asker = Arc::clone(&connection);
    let waiting = tokio::spawn(async move { asker.invoke(request(HOLD, 0, b""), LONG * 60).await });
    server.next_held().await.connection.close();
    let told = within(waiting).await.unwrap();
    assert_eq!(told.unwrap_err(), InvokeError::Closed(server.address));
    let after = within(connection.invoke(request(ECHO, 0, b""), LONG * 60)).await;
    assert_eq!(after.unwrap_err(), InvokeError::Closed(server.address));
}

#[tokio::test]
async fn more_waiting_requests_than_the_limit_are_refused_and_a_given_up_one_makes_room() {
    let mut server = Running::start(Limits::default());
    let client = server.client(Limits { max_pending: 2, ..Limits::default() }, Arc::new(NoService));
    let connection = client.open(&server.address.to_string()).await.unwrap();
    let mut waiting = Vec::new();
    for _ in 0..2 {
        let connection = Arc::clone(&connection);
        waiting.push(tokio::spawn(
            async move { connection.invoke(request(HOLD, 0, b""), LONG).await },
        ));
        server.next_held().await;
    }
    let refused = connection.invoke(request(ECHO, 0, b""), LONG).await.unwrap_err();
    assert_eq!(refused, InvokeError::TooManyPending { peer: server.address, limit: 2 });
    let given_up = waiting.remove(0);
    given_up.abort();
    assert!(given_up.await.unwrap_err().is_cancelled());
    assert!(connection.invoke(request(ECHO, 0, b""), LONG).await.is_ok());
}

struct Reversing;

impl Service for Reversing {
    fn serve(&self, _: &Arc<Connection>, requests: &mut Vec<RemotingCommand>, out: &mut OutBuffer) {
        for request in requests.drain(..) {
            let body: Vec<u8> = request.body.iter().rev().copied().collect();
            out.reply(ReplyTo::from(&request), Response::success().body(body));
        }
    }
}

#[tokio::test]
async fn a_server_asks_its_client_over_the_connection_that_the_client_made() {
    let mut server = Running::start(Limits::default());
    let client = server.client(Limits::default(), Arc::new(Reversing));
    let connection = client.open(&server.address.to_string()).await.unwrap();
    let asker = Arc::clone(&connection);
    let waiting = tokio::spawn(async move { asker.invoke(request(HOLD, 0, b""), LONG).await });
    let held = server.next_held().await;
    // Both directions at once, with the same opaque in both.
    let answer = held.connection.invoke(request(ECHO, 0, b"abc"), LONG).await.unwrap();
    assert_eq!(&answer.body[..], b"cba");
    held.reply(b"done");
    assert_eq!(waiting.await.unwrap().unwrap().body, Bytes::from_static(b"done"));
}

#[tokio::test]
async fn an_address_has_one_connection_which_is_made_again_after_its_end() {
    let mut server = Running::start(Limits::default());
    let client = server.client(Limits::default(), Arc::new(NoService));
    let address = server.address.to_string();
    let (one, two) = tokio::join!(client.connect(&address), client.connect(&address));
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_eq!(one.id(), two.id());
    assert!(one.invoke(request(ECHO, 0, b""), LONG).await.is_ok());
    one.close();
    within(server.closed.recv()).await.unwrap();
    let third = client.connect(&address).await.unwrap();
    assert_ne!(third.id(), one.id());
    assert!(third.invoke(request(ECHO, 0, b""), LONG).await.is_ok());
}

#[tokio::test]
async fn a_server_that_is_away_is_named() {
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = gone.local_addr().unwrap().to_string();
    drop(gone);
    let server = Running::start(Limits::default());
    let client = server.client(Limits::default(), Arc::new(NoService));
    let error = client.invoke(&address, request(ECHO, 0, b""), LONG).await.unwrap_err();
    assert!(matches!(error, ClientError::Connect { .. }));
    assert!(error.to_string().contains(&address), "{error}");
}

/// A listener that answers no connection attempt: its queue is full.
async fn silent_listener() -> (socket2::Socket, String, Vec<tokio::net::TcpStream>) {
    use socket2::{Domain, Socket, Type};
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let any = std::net::SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, 0));
    socket.bind(&any.into()).unwrap();
    socket.listen(0).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let mut queued = Vec::new();
    while let Ok(Ok(stream)) =
        tokio::time::timeout(Duration::from_millis(100), tokio::net::TcpStream::connect(address))
            .await
    {
        queued.push(stream);
        assert!(queued.len() < 100, "the queue does not fill up");
    }
    (socket, address.to_string(), queued)
}

#[tokio::test]
async fn an_address_that_does_not_answer_holds_up_nobody_who_wants_another() {
    let server = Running::start(Limits::default());
    let client = Arc::new(server.client(Limits::default(), Arc::new(NoService)));
    let (_socket, silent, _queued) = silent_listener().await;
    let asker = Arc::clone(&client);
    let stuck = tokio::spawn(async move { asker.connect(&silent).await.map(|_| ()) });
    tokio::task::yield_now().await;
    let address = server.address.to_string();
    let asking = client.invoke(&address, request(ECHO, 0, b"x"), LONG);
    let answer = tokio::time::timeout(Duration::from_secs(2), asking).await;
    assert_eq!(&answer.expect("it waits for the other").unwrap().body[..], b"x");
    assert!(!stuck.is_finished());
    stuck.abort();
}
