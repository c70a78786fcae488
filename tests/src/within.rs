//! Nothing in a test waits for ever.

use std::future::Future;
use std::time::Duration;

use tokio::time;

/// Longer than any step takes on a machine under load. It is reached only when
/// a test fails: nothing is measured against it.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Waits for what must happen.
#[track_caller]
pub fn within<F: Future>(what: &str, future: F) -> impl Future<Output = F::Output> + use<F> {
    let waited_for = format!("{}: {what}", std::panic::Location::caller());
    async move {
        match time::timeout(PATIENCE, future).await {
            Ok(output) => output,
            Err(_) => panic!("waited in vain for {waited_for}"),
        }
    }
}

/// Asks again and again until there is an answer.
#[track_caller]
pub fn until<T, A: FnMut() -> Option<T>>(
    what: &str,
    mut ask: A,
) -> impl Future<Output = T> + use<T, A> {
    within(what, async move {
        loop {
            if let Some(answer) = ask() {
                return answer;
            }
            time::sleep(Duration::from_millis(5)).await;
        }
    })
}
