//! HTTP/1.1 on the control socket: from a request to an [`Action`], and from
//! what it came to back to a response.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use protocol::control::RefusedAction;
use serde::Serialize;
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tokio::time;
use tracing::debug;

use super::action::{Action, ActionReply, ControlCaller, Controller};
use super::error::ActionError;
use super::socket::ControlSocket;
use crate::listen::back_off;
use crate::policy_file;

/// Answers callers, for ever.
pub(crate) async fn serve(socket: ControlSocket, controller: Arc<Controller>) {
    let room = Arc::new(Semaphore::new(MAX_CALLERS));
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        match socket.accept().await {
            Ok(Ok((stream, uid))) => {
                let controller = Arc::clone(&controller);
                tokio::spawn(async move {
                    serve_connection(stream, ControlCaller::Peer { uid }, controller).await;
                    drop(permit);
                });
            }
            Ok(Err(uid)) => controller.record_rejected_caller(uid),
            Err(err) => back_off("control", &err).await,
        }
    }
}

async fn serve_connection(stream: UnixStream, by: ControlCaller, controller: Arc<Controller>) {
    let service = service_fn(|request| {
        let controller = Arc::clone(&controller);
        async move { Ok::<_, Infallible>(respond(request, by, &controller).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(err) = connection.await {
        debug!(%err, "a caller left early");
    }
}

async fn respond(
    request: Request<Incoming>,
    by: ControlCaller,
    controller: &Controller,
) -> Response<Full<Bytes>> {
    let (parts, body) = request.into_parts();
    let body = Limited::new(body, policy_file::MAX_POLICY_BYTES as usize).collect();
    let body = match time::timeout(REQUEST_TIMEOUT, body).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(err)) => return refused(StatusCode::BAD_REQUEST, "bad_body", err),
        Err(_) => return refused(StatusCode::REQUEST_TIMEOUT, "bad_body", "the body did not come"),
    };
    let action = match parse(&parts.method, parts.uri.path(), &body) {
        Ok(action) => action,
        Err(NotAnAction { status, code, detail }) => return refused(status, code, detail),
    };
    match controller.handle(action, by).await {
        Ok(answer) => response(answer),
        Err(err) => error_response(&err),
    }
}

/// A request that asks for nothing we know.
struct NotAnAction {
    status: StatusCode,
    code: &'static str,
    detail: String,
}

/// The one table of what can be asked.
fn parse(method: &Method, path: &str, body: &[u8]) -> Result<Action, NotAnAction> {
    let not = |status, code, detail: &str| NotAnAction { status, code, detail: detail.to_owned() };
    let (wanted, action) = match path {
        "/ca.pem" => (Method::GET, Action::CaCertificate),
        "/drain" => (Method::POST, Action::Drain),
        "/holds" => (Method::GET, Action::Holds),
        "/metrics" => (Method::GET, Action::Metrics),
        "/reload" => {
            let Ok(text) = std::str::from_utf8(body) else {
                return Err(not(StatusCode::BAD_REQUEST, "bad_body", "a policy is text"));
            };
            let text = (!text.is_empty()).then(|| text.to_owned());
            (Method::POST, Action::Reload { text })
        }
        "/status" => (Method::GET, Action::Status),
        _ => {
            let known = "known are GET /status, POST /reload, POST /drain, GET /holds, \
                         GET /ca.pem, GET /metrics";
            return Err(not(StatusCode::NOT_FOUND, "no_such_action", known));
        }
    };
    if *method == wanted {
        Ok(action)
    } else {
        let detail = format!("write {wanted} {path}");
        Err(not(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", &detail))
    }
}

fn response(answer: ActionReply) -> Response<Full<Bytes>> {
    match answer {
        ActionReply::CaCertificate(pem) => text(pem, "application/x-pem-file"),
        ActionReply::Draining => {
            json(StatusCode::ACCEPTED, &serde_json::json!({ "draining": true }))
        }
        ActionReply::Holds(holds) => json(StatusCode::OK, &holds),
        ActionReply::Metrics(metrics) => {
            text(metrics, "application/openmetrics-text; version=1.0.0; charset=utf-8")
        }
        ActionReply::Reloaded(reloaded) => json(StatusCode::OK, &reloaded),
        ActionReply::Status(status) => json(StatusCode::OK, &*status),
    }
}

fn error_response(err: &ActionError) -> Response<Full<Bytes>> {
    let (status, code) = err.status_and_code();
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let detail = err.to_string();
    json(status, &RefusedAction { code: code.to_owned(), detail, problems: err.problems() })
}

fn refused(status: StatusCode, code: &'static str, detail: impl ToString) -> Response<Full<Bytes>> {
    let refused =
        RefusedAction { code: code.into(), detail: detail.to_string(), problems: Vec::new() };
    json(status, &refused)
}

fn json(status: StatusCode, body: &impl Serialize) -> Response<Full<Bytes>> {
    // Our own types are strings, numbers and lists: they can be written.
    let mut body = serde_json::to_string_pretty(body).unwrap_or_default();
    body.push('\n');
    let mut response = text(body, "application/json");
    *response.status_mut() = status;
    response
}

fn text(body: String, content_type: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(content_type));
    response
}

const MAX_CALLERS: usize = 16;
const MAX_HEAD_BYTES: usize = 16 * 1024;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
