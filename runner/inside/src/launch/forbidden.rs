//! Which knob of the machine keeps a person from making namespaces.

use std::io;

/// What stands in the way, for a person.
pub fn explain(err: &io::Error) -> String {
    match knob(&|path| std::fs::read_to_string(path).ok()) {
        Some(advice) => format!("{err}; {advice}"),
        None if err.kind() == io::ErrorKind::StorageFull => {
            format!("{err}; there are as many as `sysctl user.max_user_namespaces` permits")
        }
        None => err.to_string(),
    }
}

/// What to change, if anything forbids user namespaces.
pub fn knob(read: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let is = |path: &str, value: &str| read(path).is_some_and(|text| text.trim() == value);
    let advice = if is("/proc/sys/user/max_user_namespaces", "0") {
        "this machine permits no user namespaces: `sysctl user.max_user_namespaces=10000` does"
    } else if is("/proc/sys/kernel/unprivileged_userns_clone", "0") {
        "only root may make user namespaces here: `sysctl kernel.unprivileged_userns_clone=1` \
         permits it to everybody"
    } else if is("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1") {
        "AppArmor takes the rights out of user namespaces here: `sysctl \
         kernel.apparmor_restrict_unprivileged_userns=0`, or a profile with `userns` for \
         sluice-launch, gives them back"
    } else {
        return None;
    };
    Some(advice.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_forbidden_namespaces_is_told_what_to_change() {
        for (path, value, named) in [
            ("/proc/sys/user/max_user_namespaces", "0\n", "user.max_user_namespaces"),
            ("/proc/sys/kernel/unprivileged_userns_clone", "0\n", "unprivileged_userns_clone"),
            (
                "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
                "1\n",
                "apparmor_restrict_unprivileged_userns",
            ),
        ] {
            let advice = knob(&|asked| (asked == path).then(|| value.to_owned())).unwrap();
            assert!(advice.contains(named), "{advice}");
        }
        assert_eq!(knob(&|_| Some("15000".to_owned())), None);
        assert_eq!(knob(&|_| None), None);
    }
}
