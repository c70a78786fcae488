//! Everything an operator can ask of a running gateway.
//!
//! Requests on the socket and signals are two spellings of this one list. Each
//! becomes an [`Action`], and only [`Controller::handle`] carries one out. What
//! changes something is recorded with who asked for it, also when it is refused.

use std::sync::Arc;
use std::time::Instant;

use audit::{ErrorChain, Operator, PolicyRefused, Text, Unavailable};
use protocol::control::{AuditStatus, Counts, Holds, Listening, PolicyStatus, Reloaded, Status};
use tokio::sync::{Mutex, watch};
use tokio::task;
use tracing::{info, warn};

use super::error::ActionError;
use crate::gateway::Gateway;
use crate::metrics::GaugeValues;
use crate::phase::{DrainPhase, Phases};
use crate::policy_file::{PolicyError, PolicyFile, ReadPolicy};

/// A parsed request from an operator who is allowed to make it.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Action {
    /// The certificate that the sandbox is to trust.
    CaCertificate,
    /// Stops accepting, and ends when every connection has ended.
    Drain,
    /// The requests that wait for a person.
    Holds,
    /// Numbers for a monitoring system.
    Metrics,
    /// Swaps in a policy: this one, or the configured file as it is now.
    Reload { text: Option<String> },
    /// How things stand.
    Status,
}

/// Who asks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ControlCaller {
    Peer { uid: u32 },
    Signal,
}

/// What an action comes to.
#[derive(Debug)]
pub(crate) enum ActionReply {
    CaCertificate(String),
    Draining,
    Holds(Holds),
    Metrics(String),
    Reloaded(Reloaded),
    Status(Box<Status>),
}

/// Carries out actions, on one gateway.
#[derive(Debug)]
pub(crate) struct Controller {
    gateway: Arc<Gateway>,
    policy_file: PolicyFile,
    listening: Vec<Listening>,
    started: Instant,
    phase: watch::Sender<DrainPhase>,
    /// Held while a policy is read and swapped in: two at once must not mix.
    reloading: Mutex<()>,
}

impl Controller {
    pub(crate) fn new(
        gateway: Arc<Gateway>,
        policy_file: PolicyFile,
        listening: Vec<Listening>,
    ) -> Self {
        Self {
            gateway,
            policy_file,
            listening,
            started: Instant::now(),
            phase: watch::Sender::new(DrainPhase::Serving),
            reloading: Mutex::new(()),
        }
    }

    /// How far the gateway is on its way to its end.
    pub(crate) fn phases(&self) -> Phases {
        self.phase.subscribe()
    }

    /// Goes on to `phase`, never back.
    pub(crate) fn advance(&self, phase: DrainPhase) {
        self.phase.send_if_modified(|now| {
            let further = *now < phase;
            *now = phase.max(*now);
            further
        });
        self.gateway.drain();
    }

    fn is_draining(&self) -> bool {
        *self.phase.borrow() >= DrainPhase::Draining
    }

    /// Carries out one action.
    ///
    /// The match has no `_` arm on purpose: a new action must say here what it
    /// does.
    pub(crate) async fn handle(
        &self,
        action: Action,
        by: ControlCaller,
    ) -> Result<ActionReply, ActionError> {
        match action {
            Action::CaCertificate => {
                Ok(ActionReply::CaCertificate(self.gateway.tls.authority().pem()))
            }
            Action::Drain => self.drain(by).await,
            Action::Holds => Ok(ActionReply::Holds(Holds::default())),
            Action::Metrics => Ok(ActionReply::Metrics(self.metrics())),
            Action::Reload { text } => self.reload(text, by).await,
            Action::Status => Ok(ActionReply::Status(Box::new(self.status()))),
        }
    }

    /// Asking twice changes nothing, so only the first is recorded.
    async fn drain(&self, by: ControlCaller) -> Result<ActionReply, ActionError> {
        if self.is_draining() {
            return Ok(ActionReply::Draining);
        }
        // A log that failed must not keep anyone from stopping the gateway.
        if let Err(err) = self.note("drain", by, None).await {
            warn!(%err, "stopping, and it cannot be recorded");
        }
        self.advance(DrainPhase::Draining);
        Ok(ActionReply::Draining)
    }

    /// Reads, records, and only then swaps. Whatever goes wrong, the policy
    /// before it stays.
    async fn reload(
        &self,
        text: Option<String>,
        by: ControlCaller,
    ) -> Result<ActionReply, ActionError> {
        let _one_at_a_time = self.reloading.lock().await;
        if self.is_draining() {
            return Err(ActionError::Draining);
        }
        let source = match text {
            Some(_) => "the policy that was sent".to_owned(),
            None => self.policy_file.path().display().to_string(),
        };
        let read = match self.read(&source, text).await {
            Ok(read) => read,
            Err(err) => {
                self.refused(&source, &err, by).await?;
                return Err(err.into());
            }
        };
        self.note("reload", by, None).await?;
        let before = self.gateway.policy.load().hash.clone();
        let loaded = read.loaded(source.as_str().into(), Some(before));
        self.gateway.log.record_safely(loaded).await?;
        let ReadPolicy { policy, hash } = read;
        let name = policy.name.to_string();
        let generation = self.gateway.load_policy(policy, hash.as_str());
        info!(policy = %name, %hash, generation, "policy loaded");
        Ok(ActionReply::Reloaded(Reloaded { name, hash, generation }))
    }

    async fn read(&self, source: &str, text: Option<String>) -> Result<ReadPolicy, PolicyError> {
        let (file, source) = (self.policy_file.clone(), source.to_owned());
        // Away from the threads that relay: it touches the disk and compiles patterns.
        let reading = task::spawn_blocking(move || match text {
            Some(text) => file.read_text(&source, &text),
            None => file.read(),
        });
        match reading.await {
            Ok(read) => read,
            Err(panicked) => {
                let path = self.policy_file.path().to_owned();
                Err(PolicyError::Read { path, source: std::io::Error::other(panicked) })
            }
        }
    }

    async fn refused(
        &self,
        source: &str,
        err: &PolicyError,
        by: ControlCaller,
    ) -> Result<(), Unavailable> {
        let text = ErrorChain(err).to_string();
        // One line: the rest is in the answer and in the record.
        let first = text.lines().next().unwrap_or_default();
        warn!(source, problem = first, "the policy was refused; the one before it stays");
        let refused = PolicyRefused {
            file: Some(source.into()),
            detail: text.into(),
            kept: Some(self.gateway.policy.load().hash.clone()),
        };
        self.gateway.log.record_safely(refused).await?;
        self.note("reload", by, Some("the policy was refused")).await
    }

    /// Records an operator's action, also when it was refused.
    async fn note(
        &self,
        action: &'static str,
        by: ControlCaller,
        refused: Option<&'static str>,
    ) -> Result<(), Unavailable> {
        let operator = Operator {
            action: Text::constant(action),
            user: Some(by.name()),
            accepted: refused.is_none(),
            detail: refused.map(Text::constant),
        };
        self.gateway.log.record_safely(operator).await.map(|_| ())
    }

    /// Records a caller who is not allowed to ask.
    pub(crate) fn record_rejected_caller(&self, uid: u32) {
        warn!(uid, "somebody else called at the control socket");
        let operator = Operator {
            action: Text::constant("connect"),
            user: Some(ControlCaller::Peer { uid }.name()),
            accepted: false,
            detail: Some(Text::constant("neither our own user nor root")),
        };
        if let Err(err) = self.gateway.log.record(operator) {
            warn!(%err, "and it cannot be recorded");
        }
    }

    fn status(&self) -> Status {
        let loaded = self.gateway.policy.load();
        let health = self.gateway.log.health();
        let limits = &self.gateway.limits;
        let draining = self.is_draining();
        Status {
            run: self.gateway.log.run().to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_seconds: self.started.elapsed().as_secs(),
            ready: !draining && health.unavailable.is_none(),
            draining,
            listening: self.listening.clone(),
            policy: PolicyStatus {
                name: loaded.policy.name.to_string(),
                file: self.policy_file.path().display().to_string(),
                hash: loaded.hash.to_string(),
                generation: loaded.generation,
                rules: loaded.policy.rules().count(),
                observing: loaded.policy.net.mode == policies::Mode::Observe,
            },
            counts: Counts {
                requests: self.gateway.metrics.requests_ended(),
                refused: self.gateway.metrics.refused(),
                open_connections: limits.open_connections(),
                uploaded: limits.uploaded(),
                downloaded: limits.downloaded(),
            },
            audit: AuditStatus {
                available: health.unavailable.is_none(),
                why_not: health.unavailable.map(|why| why.to_string()),
                written: health.written,
                unwritten: health.unwritten,
            },
        }
    }

    fn metrics(&self) -> String {
        let health = self.gateway.log.health();
        let limits = &self.gateway.limits;
        self.gateway.metrics.encode(GaugeValues {
            open_connections: limits.open_connections(),
            tasks: self.gateway.runtimes.alive_tasks(),
            uploaded: limits.uploaded(),
            downloaded: limits.downloaded(),
            leaves: self.gateway.tls.leaves().kept(),
            audit_available: health.unavailable.is_none(),
            audit_written: health.written,
            audit_unwritten: health.unwritten,
            policy_generation: self.gateway.policy.load().generation,
            draining: self.is_draining(),
        })
    }
}

impl ControlCaller {
    /// As records name them.
    fn name(self) -> audit::Name {
        match self {
            Self::Peer { uid } => format_args!("uid:{uid}").into(),
            Self::Signal => Text::constant("signal"),
        }
    }
}
