//! One rule as written, into one rule that can be compared with requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::capability::{Access, RegistryKind, RegistryLookup, expand_git, expand_npm, expand_pip};
use crate::document::{OneOrMany, RuleFields, RuleProtocol, Unless, WrittenRule};
use crate::header_fields::is_judgeable;
use crate::host_pattern::HostPattern;
use crate::names::SecretName;
use crate::policy::{PolicyNote, Secret};
use crate::problems::{Position, Source};
use crate::query::QueryKey;
use crate::reach::Reach;
use crate::rule::{Carries, Methods, Paths, PortSet, Rule, RuleLocation, Shape, Websocket};
use crate::summary::summary;
use crate::verdict::Verdict;

/// Which list of `net` a rule stands in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum RuleList {
    Of(Verdict),
    Passthrough,
}

impl RuleList {
    pub(crate) fn field(self) -> &'static str {
        match self {
            Self::Of(verdict) => verdict.as_str(),
            Self::Passthrough => "passthrough",
        }
    }

    fn verdict(self) -> Verdict {
        match self {
            Self::Of(verdict) => verdict,
            Self::Passthrough => Verdict::Allow,
        }
    }

    fn denies(self) -> bool {
        self == Self::Of(Verdict::Deny)
    }
}

/// What the rules of one document are compiled with.
pub(crate) struct RuleCompiler<'c> {
    pub(crate) source: &'c Source,
    pub(crate) prefix: &'c str,
    /// Nothing when some secret could not be read: then uses are not judged.
    pub(crate) secrets: Option<&'c BTreeMap<SecretName, Secret>>,
    pub(crate) registries: &'c RegistryLookup<'c>,
}

type Faults = Vec<String>;

impl RuleCompiler<'_> {
    /// Compiles one rule, or says everything that is wrong with it.
    pub(crate) fn rule(
        &self,
        list: RuleList,
        place: &str,
        at: Position,
        written: &WrittenRule,
    ) -> Result<(Rule, Option<PolicyNote>), Faults> {
        let bare;
        let fields = match written {
            WrittenRule::Bare(host) => {
                bare = RuleFields { host: Some(host.clone()), ..RuleFields::default() };
                &bare
            }
            WrittenRule::Fields(fields) => fields.as_ref(),
        };
        let mut faults = Vec::new();
        misplaced(list, fields, &mut faults);
        for name in fields.headers.keys().filter(|name| !is_judgeable(name.as_str())) {
            faults.push(format!(
                "no rule can be about the header `{name}`: it is about one connection or the gateway's own, and is not sent on as the client wrote it"
            ));
        }
        let reach = Reach::with_ranges(fields.addresses.clone());
        let (shapes, unresolved) = self.shapes(list, fields, &mut faults);
        addresses_can_be_dialled(list, &shapes, &reach, &mut faults);
        self.secret_fits(fields, &shapes, &mut faults);
        if !faults.is_empty() {
            return Err(faults);
        }
        let id: Arc<str> = match &fields.name {
            Some(name) => name.as_str().into(),
            None => format!("{}{place}", self.prefix).into(),
        };
        let note = unresolved.map(|message| PolicyNote { rule: Some(Arc::clone(&id)), message });
        let rule = Rule {
            id,
            verdict: list.verdict(),
            location: RuleLocation { source: Arc::clone(&self.source.name), line: at.line },
            reason: fields.reason.as_deref().map(Into::into),
            reach,
            secret: fields.secret.clone(),
            exempts_secret_rules: fields.unless == Some(Unless::Secret),
            shapes,
            summary: summary(fields).into(),
        };
        Ok((rule, note))
    }

    /// The shapes of the rule, and a note when there are none because no
    /// registry is known here.
    fn shapes(
        &self,
        list: RuleList,
        fields: &RuleFields,
        faults: &mut Faults,
    ) -> (Vec<Shape>, Option<String>) {
        let kinds = [
            fields.host.is_some(),
            fields.git.is_some(),
            fields.pip.is_some(),
            fields.npm.is_some(),
        ];
        match kinds.iter().filter(|there| **there).count() {
            0 => {
                faults.push("say what the rule is about: `host`, `git`, `pip` or `npm`".to_owned())
            }
            1 => {}
            _ => faults.push(
                "`host`, `git`, `pip` and `npm` exclude each other; write one rule for each"
                    .to_owned(),
            ),
        }
        if !faults.is_empty() {
            return (Vec::new(), None);
        }
        if let Some(host) = &fields.host {
            return (vec![host_shape(list, host, fields)], None);
        }
        if let Some(repository) = &fields.git {
            let refs = fields.refs.as_deref();
            return (expand_git(repository, fields.access, refs, list.verdict()), None);
        }
        self.package_shapes(list, fields, faults)
    }

    /// The shapes of a `pip` or `npm` rule.
    fn package_shapes(
        &self,
        list: RuleList,
        fields: &RuleFields,
        faults: &mut Faults,
    ) -> (Vec<Shape>, Option<String>) {
        let (manager, kind) = match fields.pip {
            Some(_) => ("pip", RegistryKind::Pip),
            None => ("npm", RegistryKind::Npm),
        };
        let registries = match &fields.registry {
            Some(registry) => vec![registry.clone()],
            None => (self.registries)(kind),
        };
        if registries.is_empty() {
            let missing = format!(
                "{manager} names no registry on this machine; write `registry: https://...` in the rule"
            );
            // A deny that matches nothing would be a hole; an allow is only unused.
            if list.denies() {
                faults.push(missing);
                return (Vec::new(), None);
            }
            return (Vec::new(), Some(missing));
        }
        // Where this machine's index keeps its files says nothing about another.
        let files = match (kind, &fields.registry, fields.files.as_slice()) {
            (RegistryKind::Pip, None, []) => (self.registries)(RegistryKind::PipFiles),
            (_, _, written) => written.to_vec(),
        };
        let mut shapes = Vec::new();
        for registry in &registries {
            let expanded = match (&fields.pip, &fields.npm) {
                (Some(packages), _) => expand_pip(packages, registry, &files),
                (None, Some(packages)) => expand_npm(packages, registry),
                (None, None) => Ok(Vec::new()),
            };
            match expanded {
                Ok(expanded) => shapes.extend(expanded),
                Err(err) => faults.push(err.to_string()),
            }
        }
        if list.denies() {
            for shape in &mut shapes {
                shape.methods = Methods::any();
            }
        }
        (shapes, None)
    }

    fn secret_fits(&self, fields: &RuleFields, shapes: &[Shape], faults: &mut Faults) {
        let (Some(name), Some(secrets)) = (&fields.secret, self.secrets) else { return };
        let Some(secret) = secrets.get(name) else {
            faults.push(format!("no secret is named `{name}`; declare it under `secrets:`"));
            return;
        };
        for shape in shapes {
            if !shape.host.is_among(&secret.hosts) {
                faults.push(format!(
                    "secret `{name}` is not meant for `{}`; add the host to `secrets.{name}.hosts` or drop it here",
                    shape.host
                ));
            }
            if shape.carries != Carries::Https {
                faults.push(format!("secret `{name}` needs https; it is never sent in the clear"));
            }
        }
    }
}

/// A rule about a host. A deny is as wide as it can be read, anything else as
/// narrow.
pub(crate) fn host_shape(list: RuleList, host: &HostPattern, fields: &RuleFields) -> Shape {
    let ports = match (&fields.port, fields.protocol) {
        (Some(OneOrMany(ports)), _) => PortSet::Only(ports.iter().map(|port| port.get()).collect()),
        (None, _) if list.denies() => PortSet::Any,
        (None, Some(RuleProtocol::Http)) => PortSet::Only(vec![80]),
        (None, _) => PortSet::Only(vec![443]),
    };
    let carries = match (list, fields.protocol) {
        (RuleList::Passthrough, _) => Carries::Passthrough,
        (RuleList::Of(_), Some(RuleProtocol::Http)) => Carries::Http,
        (RuleList::Of(_), Some(RuleProtocol::Https)) => Carries::Https,
        (RuleList::Of(_), Some(RuleProtocol::Tcp)) => Carries::Tcp,
        (RuleList::Of(Verdict::Deny), None) => Carries::Anything,
        (RuleList::Of(Verdict::Allow | Verdict::Ask), None) => Carries::Https,
    };
    let methods = match &fields.methods {
        Some(methods) => Methods::of(methods.iter().copied()),
        None if list.denies() => Methods::any(),
        None => Methods::safe(),
    };
    let websocket = match fields.websocket {
        Some(true) => Websocket::Only,
        Some(false) => Websocket::No,
        None if list.denies() => Websocket::Either,
        None => Websocket::No,
    };
    Shape {
        ports,
        carries,
        methods,
        paths: fields.paths.clone().map_or(Paths::Any, Paths::Patterns),
        query: fields
            .query
            .iter()
            .map(|(name, value)| (QueryKey::new(name), value.clone()))
            .collect(),
        headers: fields.headers.clone().into_iter().collect(),
        websocket,
        ..Shape::to(host.clone())
    }
}

/// Fields that mean nothing where they stand. Ignoring one would leave its
/// author with a rule that is not the one they wrote.
fn misplaced(list: RuleList, fields: &RuleFields, faults: &mut Faults) {
    let checks = misplaced_host_fields(list, fields).into_iter();
    let checks = checks.chain(misplaced_other_fields(list, fields));
    faults.extend(checks.filter(|(wrong, _)| *wrong).map(|(_, message)| message.to_owned()));
}

fn misplaced_host_fields(list: RuleList, fields: &RuleFields) -> [(bool, &'static str); 8] {
    let about_host = fields.host.is_some();
    let is_tcp = fields.protocol == Some(RuleProtocol::Tcp);
    let http_only = fields.methods.is_some()
        || fields.paths.is_some()
        || !fields.query.is_empty()
        || !fields.headers.is_empty()
        || fields.websocket.is_some();
    [
        (
            !about_host && (http_only || fields.port.is_some() || fields.protocol.is_some()),
            "`port`, `protocol`, `methods`, `paths`, `query`, `headers` and `websocket` go with `host`; `git`, `pip` and `npm` set them",
        ),
        (
            is_tcp && http_only,
            "`protocol: tcp` relays bytes unseen: `methods`, `paths`, `query`, `headers` and `websocket` cannot be judged",
        ),
        (is_tcp && fields.port.is_none(), "`protocol: tcp` needs a `port`"),
        (
            is_tcp && matches!(fields.host, Some(HostPattern::Wildcard(_))),
            "`protocol: tcp` needs one host, not a wildcard",
        ),
        (
            list == RuleList::Passthrough
                && (http_only || fields.protocol.is_some() || !about_host),
            "`passthrough` entries have `host`, `port`, `addresses`, `name` and `reason` alone: nothing inside is seen",
        ),
        (
            is_empty_list(&fields.methods),
            "`methods: []` matches nothing; leave it out for GET, HEAD and OPTIONS",
        ),
        (is_empty_list(&fields.paths), "`paths: []` matches nothing; leave it out for every path"),
        (
            fields.websocket == Some(true) && fields.methods.is_some(),
            "`websocket: true` implies its method; leave `methods` out",
        ),
    ]
}

fn misplaced_other_fields(list: RuleList, fields: &RuleFields) -> [(bool, &'static str); 11] {
    [
        (fields.access.is_some() && fields.git.is_none(), "`access` goes with `git`"),
        (
            fields.refs.is_some() && fields.access != Some(Access::Push),
            "`refs` goes with `git` and `access: push`",
        ),
        (
            is_empty_list(&fields.refs),
            "`refs: []` lets nothing be pushed; leave it out for every ref",
        ),
        (
            fields.refs.is_some() && list.denies(),
            "`refs` cannot be denied; allow the others instead",
        ),
        (
            fields.registry.is_some() && fields.pip.is_none() && fields.npm.is_none(),
            "`registry` goes with `pip` or `npm`",
        ),
        (!fields.files.is_empty() && fields.pip.is_none(), "`files` goes with `pip`"),
        (is_empty_list(&fields.pip), "`pip: []` names no package; name some or remove the rule"),
        (is_empty_list(&fields.npm), "`npm: []` names no package; name some or remove the rule"),
        (
            fields.secret.is_some() && (list.denies() || list == RuleList::Passthrough),
            "`secret` goes with rules that let requests pass",
        ),
        (fields.unless.is_some() && !list.denies(), "`unless` goes with `deny`"),
        (
            !fields.addresses.is_empty() && list.denies(),
            "`addresses` says what may be dialled; a deny dials nothing",
        ),
    ]
}

fn is_empty_list<T>(list: &Option<Vec<T>>) -> bool {
    list.as_ref().is_some_and(Vec::is_empty)
}

/// An address written out must be one that could ever be dialled.
fn addresses_can_be_dialled(list: RuleList, shapes: &[Shape], reach: &Reach, faults: &mut Faults) {
    if list.denies() {
        return;
    }
    for shape in shapes {
        let HostPattern::Address(address) = shape.host else { continue };
        if let Err(forbidden) = reach.check((address, 443).into()) {
            faults.push(forbidden.to_string());
        }
    }
}
