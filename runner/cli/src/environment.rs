//! The variables of this process, read once.

use std::env;
use std::sync::LazyLock;

use engine::environment::Environment;

/// The snapshot that everything asks. Our own programs are beside this one.
pub fn of_this_process() -> &'static Environment {
    static SNAPSHOT: LazyLock<Environment> = LazyLock::new(|| {
        let environment = Environment::new(env::vars_os());
        let beside = env::current_exe().ok().and_then(|us| us.parent().map(ToOwned::to_owned));
        match beside {
            Some(folder) => environment.with_programs(folder),
            None => environment,
        }
    });
    &SNAPSHOT
}
