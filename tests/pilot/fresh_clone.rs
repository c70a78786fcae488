//! `docker compose up` in a fresh clone: everything is built inside Docker.
//!
//! It takes minutes, and base images that a registry would give; so
//! `scripts/full/compose-up` makes them, says their name in `SLUICE_TEST_BASE`, and
//! runs this. Everything else is what a person types.

use std::env;
use std::fs;
use std::io::Write as _;
use std::time::Instant;

use tests::boxes::wait_for;

use crate::pilot::{Pilot, can_run, clone};

#[test]
fn compose_up_is_all_it_takes() {
    let Ok(base) = env::var("SLUICE_TEST_BASE") else { return };
    if !can_run() {
        return;
    }
    let begun = Instant::now();
    let mut pilot = Pilot::in_fresh_clone("d", &base);
    let up = begun.elapsed().as_secs();

    crate::the_containers_are_confined_as_a_runs_are(&pilot);
    crate::what_is_allowed_passes_over_http1_and_http2(&pilot);
    crate::what_is_not_is_refused_with_a_reason(&pilot);
    crate::programs_that_ignore_the_proxy_are_caught(&pilot);
    crate::every_name_is_answered_by_the_gateway(&pilot);
    crate::the_walls_are_those_of_a_run(&pilot);
    crate::nothing_of_the_host_answers(&pilot);
    crate::the_gateway_shows_its_five_doors_and_no_other(&pilot);
    crate::neither_key_nor_log_nor_secrets_are_inside(&pilot);

    // What the documents say besides.
    assert_eq!(pilot.compose(&["kill", "-s", "HUP", "gateway"]).code, 0);
    wait_for("the policy to be read again", || {
        pilot.compose(&["logs", "gateway"]).all().contains("policy loaded").then_some(())
    });
    for line in shown() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let said = pilot.compose(&words);
        assert_eq!(said.code, 0, "docker compose {line}: {said:?}");
    }
    let review = pilot.compose(&["run", "--rm", "review"]);
    assert_eq!(review.code, 0, "{review:?}");
    review.assert_says("/audit: whole").assert_says("api.pilot.test/hello").assert_says("no_rule");
    let refused = pilot.compose(&["run", "--rm", "review", "--verdict", "deny"]);
    refused.assert_says("other.pilot.test").assert_says("DELETE");
    assert!(!refused.stdout.contains("/v1/widgets"), "{refused:?}");
    // What somebody else's image is called is not given to ours.
    let own = pilot.compose_with(&["build", "sandbox"], &[("PILOT_IMAGE", "my-agent")]);
    assert!(own.code != 0 && own.all().contains("PILOT_IMAGE is my-agent"), "{own:?}");

    // Somebody who never reviewed it has no such image; it is built to seal the log.
    pilot.remove_image("sluice-test/reviewer");
    assert_eq!(pilot.down(), "", "nothing is left");
    let kept = pilot.kept();
    let verified = pilot.verify(&kept[0]);
    assert_eq!(verified.code, 0, "{verified:?}");
    verified.assert_says("sealed 20");
    drop(pilot);
    let told = format!(
        "COMPOSE: `docker compose up` in a fresh clone built and started everything in {up} s; \
         its walls, the review and the sealed log hold"
    );
    writeln!(std::io::stdout(), "{told}").unwrap();
}

/// What the first page says to type, without a terminal.
fn shown() -> Vec<String> {
    let page = fs::read_to_string(clone().join("README.md")).unwrap();
    let lines = page.lines().filter_map(|line| line.strip_prefix("docker compose "));
    let lines = lines.map(|line| line.split("  #").next().unwrap().trim());
    let lines: Vec<String> = lines.map(|line| line.replace("exec ", "exec -T ")).collect();
    assert!(lines.len() > 2 && lines[0].starts_with("up "), "{lines:?}");
    lines
}
