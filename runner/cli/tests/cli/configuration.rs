//! `sluice config`: what is typed from `docs/configuration.md`.

use crate::world::World;

#[test]
fn a_configuration_is_written_once_shown_and_found_wrong_by_line_and_column() {
    let world = World::new();
    let shown = world.sluice(&["config", "show"]);
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    assert!(shown.stderr.contains("`sluice config init` writes one"), "{}", shown.stderr);

    let made = world.sluice(&["config", "init"]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let file = made.stdout.trim().strip_prefix("wrote ").unwrap();
    let again = world.sluice(&["config", "init"]);
    assert_eq!(again.code, 2, "{}", again.stderr);
    assert!(again.stderr.contains("already exists"), "{}", again.stderr);
    let printed = world.sluice(&["config", "init", "--stdout"]);
    assert_eq!(printed.stdout, std::fs::read_to_string(file).unwrap());

    std::fs::write(file, "backend: namespaces\nlimits: {memory: 3GiB}\n").unwrap();
    let shown = world.sluice(&["config", "show"]);
    let line = |name: &str| shown.stdout.lines().find(|line| line.starts_with(name)).unwrap();
    assert!(line("backend").contains("namespaces"), "{}", shown.stdout);
    assert!(line("limits.memory").ends_with(file), "{}", shown.stdout);
    assert!(line("image").ends_with("default"), "{}", shown.stdout);
    let listed = world.sluice(&["config", "show", "-o", "json"]);
    let listed: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap();
    assert_eq!(listed[0]["value"], "namespaces");

    std::fs::write(file, "backend: namespaces\nlimits: {memory: plenty}\n").unwrap();
    for words in [&["config", "show"][..], &["run", "--", "true"]] {
        let wrong = world.sluice(words);
        assert_eq!(wrong.code, 2, "{}", wrong.stderr);
        assert!(wrong.stderr.contains(":2:18: limits.memory: `plenty`"), "{}", wrong.stderr);
    }
}
