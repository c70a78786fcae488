//! A log of as many events as wanted: what searching and verifying are measured
//! on.

mod begin;

use std::path::Path;

use audit::{
    DecisionRecord, DestinationRecord, EntryOutcome, Http, Log, Options, SyncPolicy, Text,
    VerdictRecord,
};

use begin::begin;

/// Writes requests to a thousand hosts into a new log, a tenth of them refused.
///
/// The folder must be private or not there yet.
pub(crate) fn log(folder: &Path, events: u64) {
    let options = Options { sync: SyncPolicy::Never, ..Options::new("run-7f3a") };
    let (log, _) = Log::open(folder, options).expect("a new log can be opened");
    for number in 0..events {
        let mut entry = begin(&log);
        let refused = number % 10 == 0;
        entry.destination = DestinationRecord::new(format!("host-{}.example", number % 1000), 443);
        entry.http = Http {
            method: Some(Text::constant("GET")),
            scheme: Some(Text::constant("https")),
            path: Some(format_args!("/repos/acme/widgets/issues/{number}").into()),
            status: Some(if refused { 403 } else { 200 }),
            ..Http::default()
        };
        entry.decision = DecisionRecord {
            verdict: Some(if refused { VerdictRecord::Deny } else { VerdictRecord::Allow }),
            rule: Some(Text::constant("allow[1]")),
            reason: Some(Text::constant("rule")),
            policy: Some(Text::constant("9f86d081884c7d65")),
            ..DecisionRecord::default()
        };
        entry.close(if refused { EntryOutcome::Refused } else { EntryOutcome::Relayed });
    }
    log.close_blocking().expect("the disk has room");
}
