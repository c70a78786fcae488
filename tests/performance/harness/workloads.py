"""The workloads: what `pbench load` is told, and what a proxy must be able to do for each.

A word in braces is a size, which the command line, a repetition or a proxy's own
description fills in.
"""

# Outside the zone that every proxy allows.
DENIED_HOST = "blocked.deny.test"
TIMED = "--duration {duration} --warmup {warmup}"

# By name: arguments of `pbench load`, and what the proxy needs. `idle` comes first, since
# it wants a fresh process.
WORKLOADS = {
    "idle": ("idle --conns {idle} --duration {hold} --settle {settle}", set()),
    "get1": (f"get --conns 1 {TIMED}", set()),
    "get64": (f"get --conns 64 {TIMED}", set()),
    "conn1": (f"conn --conns 1 {TIMED}", set()),
    "conn8": (f"conn --conns 8 {TIMED}", set()),
    "connr": (f"conn --conns 8 {TIMED} --resume", set()),
    "many": ("conn --conns 8 --count {many} --many h{repetition}x", set()),
    "down": ("download --bytes {down}", set()),
    "down4": ("download --conns 4 --bytes {down4}", set()),
    "up": ("upload --bytes {up}", {"upload"}),
    "sse": ("sse --conns 8 --events {events} --every 10", set()),
    "deny": (f"deny --conns 1 {TIMED} --host {DENIED_HOST}", {"deny"}),
    "h2": (f"get --h2 --streams 64 {TIMED}", {"h2"}),
}

MIB = 1 << 20


def add_sizes(arguments):
    """Options for how much is done."""
    arguments.add_argument("--duration", type=float, default=4, help="seconds that timed workloads are measured")
    arguments.add_argument("--many", type=int, default=1000, help="distinct host names")
    arguments.add_argument("--down-mib", type=int, default=1024, help="MiB of a download")
    arguments.add_argument("--up-mib", type=int, default=1024, help="MiB of an upload")
    arguments.add_argument("--idle", type=int, default=1000, help="connections that are held")
    arguments.add_argument("--hold", type=float, default=2, help="seconds for which they are held")
    arguments.add_argument("--settle", type=float, default=2, help="seconds before their memory is looked at")
    arguments.add_argument("--events", type=int, default=1000, help="events of a stream")


def sizes(options):
    """What stands for the words in braces."""
    return {
        "duration": options.duration,
        "warmup": min(1.0, options.duration / 4),
        "many": options.many,
        "down": options.down_mib * MIB,
        "down4": options.down_mib * MIB // 4,
        "up": options.up_mib * MIB,
        "idle": options.idle,
        "hold": options.hold,
        "settle": options.settle,
        "events": options.events,
    }


def arguments_of(workload, filled):
    """The words of `pbench load`."""
    pattern, _ = WORKLOADS[workload]
    return pattern.format(**filled).split()


def can_run(workload, proxy):
    """Whether it makes sense for a proxy, by its description."""
    _, needs = WORKLOADS[workload]
    return needs <= proxy.abilities and workload not in proxy.skipped
