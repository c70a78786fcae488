//! Times that need the kernel: one clock for two processes, and this thread's CPU.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds on a clock that origin and client share, and that nobody sets.
pub(crate) fn monotonic_ns() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

/// Nanoseconds of CPU that this thread took so far.
pub(crate) fn thread_cpu_ns() -> u64 {
    nanoseconds(ClockId::ThreadCPUTime)
}

fn nanoseconds(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    // Neither clock is ever negative.
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}
