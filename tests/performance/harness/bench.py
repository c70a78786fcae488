#!/usr/bin/env -S python3 -B
"""Measures forward proxies side by side, on loopback.

    tests/performance/harness/bench.py [OPTIONS]       after tests/performance/harness/set-up

In every repetition every proxy is started fresh, put through all workloads and ended. The
direct connection takes part in each, so that ratios come from the same repetition.
OUT/raw.jsonl gets one JSON object for each repetition, proxy and workload; `report.py` and
`../bars` read it. Needs root, for ports and mount namespaces.
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

from environment import COUNTERS, ORIGIN, Environment
from processes import Processes, tree_rss_kib
from proxy import Proxy, described
from workloads import WORKLOADS, add_sizes, arguments_of, can_run, sizes

HERE = pathlib.Path(__file__).resolve().parent
HARNESS_TARGET = HERE.parents[2] / "target/performance-harness"


def main():
    options = parsed_options()
    known = described()
    if options.attach:
        known[options.attach] = attached(options)
    names = chosen(options.proxies, known, "proxies") + ([options.attach] if options.attach else [])
    workloads = chosen(options.workloads, WORKLOADS, "workloads")
    # Told to end, it ends what it started too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    bench = Bench(options.out.resolve(), options.programs.resolve(), options.nice, options.limit)
    try:
        prepare(bench)
        with open(bench.out / "raw.jsonl", "a") as raw:
            for repetition in range(options.first_rep, options.first_rep + options.reps):
                for name in dict.fromkeys(names):
                    filled = sizes(options) | {"repetition": repetition}
                    measure(bench, known[name], workloads, filled, Recorder(raw, repetition, name))
    finally:
        bench.end_all()


def prepare(bench):
    try:
        bench.prepare()
    except RuntimeError as why:
        sys.exit(f"bench.py: {why}")


class Bench:
    """An environment, and loads in it."""

    def __init__(self, out, programs, niceness=0, limit=150):
        """`limit` is the seconds after which a workload is given up."""
        self.out, self.limit = out, limit
        out.mkdir(parents=True, exist_ok=True)
        self.processes = Processes(niceness)
        self.environment = Environment(out, programs, self.processes)

    def prepare(self):
        self.environment.prepare()

    def start(self, proxy):
        return proxy.start(self.environment, self.processes)

    def load(self, words, started, limit=None):
        """What `pbench load` measured, within so many seconds."""
        authorities = [self.environment.certificates / "origin-ca.pem", *started.authorities]
        watched = {"origin": self.environment.origin.pid, "proxy": started.pid}
        command = [self.environment.pbench, "load", *words, "--origin", ORIGIN, "--admin", COUNTERS]
        for authority in authorities:
            command += ["--ca", str(authority)]
        if started.address:
            command += ["--proxy", started.address]
        for name, pid in watched.items():
            command += ["--watch", f"{name}={pid}"] if pid else []
        status, printed, errors = self.processes.output(command, limit or self.limit)
        if status or not printed.strip():
            raise RuntimeError((errors or "it printed nothing")[-300:])
        return json.loads(printed)

    def end(self, started):
        if started.process:
            self.processes.end(started.process)

    def end_all(self):
        self.processes.end_all()


class Recorder:
    """Writes down what one proxy did in one repetition, and says it."""

    def __init__(self, raw, repetition, proxy):
        self.raw, self.repetition, self.proxy = raw, repetition, proxy

    def write(self, workload, said=None, **figures):
        line = {"rep": self.repetition, "proxy": self.proxy, "workload": workload, **figures}
        self.raw.write(json.dumps(line) + "\n")
        self.raw.flush()
        if said:
            print(f"[rep {self.repetition}] {self.proxy:12} {workload:6} {said}", flush=True)


def measure(bench, proxy, workloads, filled, recorder):
    """One proxy in one repetition. What fails is recorded too, and the next one goes on."""
    try:
        started = bench.start(proxy)
    except (OSError, RuntimeError) as why:
        recorder.write("start", f"does not start: {why}", error=str(why))
        return
    try:
        if started.pid:
            recorder.write("start", result={"rss_kib": tree_rss_kib(started.pid)})
        for workload in workloads:
            if can_run(workload, proxy) and not load(bench, proxy, workload, filled, started, recorder):
                break
    finally:
        bench.end(started)
    time.sleep(0.5)


def load(bench, proxy, workload, filled, started, recorder):
    """One workload; false if the proxy did not survive it."""
    words = arguments_of(workload, filled | proxy.sizes)
    begun = time.monotonic()
    try:
        result = bench.load(words, started)
    except (RuntimeError, json.JSONDecodeError, subprocess.TimeoutExpired) as why:
        said = f"FAILED after {time.monotonic() - begun:.0f} s: {str(why)[:200]}"
        recorder.write(workload, said, error=str(why)[:300])
    else:
        recorder.write(workload, in_short(result), load=os.getloadavg()[0], result=result)
    if started.process and started.process.poll() is not None:
        print(f"    {proxy.name} has died with status {started.process.returncode}", flush=True)
        return False
    return True


def in_short(result):
    """The figures of one workload on a line."""
    if "mib_per_s" in result:
        cpu = result["cpu_s_per_gib"].get("proxy") or 0
        parts = [f"{result['mib_per_s']:8.0f} MiB/s  cpu/GiB {cpu:.2f} s"]
    elif "idle" in result:
        held = result["idle"]
        memory = held["procs"].get("proxy") or held["procs"]["origin"]
        resident = memory["held_rss_kib"] // 1024
        parts = [f"held {held['held']}  {memory['kib_per_conn']:.1f} KiB/conn  rss {resident} MiB"]
    else:
        latency = result.get("hist", {}).get("latency", {})
        cpu = result.get("cpu", {}).get("proxy", {}).get("us_per_op", 0)
        p50, p99 = latency.get("p50_us", 0), latency.get("p99_us", 0)
        rate = result.get("ops_per_s", 0)
        parts = [f"{rate:9.0f} op/s  p50 {p50:7.0f} us  p99 {p99:8.0f} us  cpu/op {cpu:7.1f} us"]
    machine = result.get("machine", {})
    if machine.get("busy"):
        parts.append(f"foreign {machine['foreign'] / machine['busy']:.0%}")
    if result.get("errors"):
        first = next((note for note in result["notes"] if note.startswith("error")), "")
        parts.append(f"errors {result['errors']} {first}")
    return "  ".join(parts)


def parsed_options():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--out", type=pathlib.Path, default=HARNESS_TARGET / "out", help="where certificates, proxies' files and raw.jsonl go")
    arguments.add_argument("--programs", type=pathlib.Path, default=HARNESS_TARGET / "programs", help="the folder that set-up filled")
    arguments.add_argument("--proxies", default="all", help="names of proxies/*.toml and `direct`, with commas; or all")
    arguments.add_argument("--workloads", default="all", help=f"of {','.join(WORKLOADS)}; or all")
    arguments.add_argument("--reps", type=int, default=3, help="repetitions")
    arguments.add_argument("--first-rep", type=int, default=1, help="number of the first, to add to what OUT has")
    arguments.add_argument("--limit", type=float, default=150, help="seconds after which a workload is given up")
    arguments.add_argument("--nice", type=int, default=0, help="niceness of what is started; negative on a busy machine")
    arguments.add_argument("--attach", metavar="NAME", help="also a proxy that runs already, with --port, --ca, --pid, --has")
    arguments.add_argument("--port", type=int, help="where it listens on 127.0.0.1")
    arguments.add_argument("--ca", help="the CA of its leaves")
    arguments.add_argument("--pid", type=int, help="its process, for CPU and memory")
    arguments.add_argument("--has", default="", help="what it can do, with commas: h2,deny")
    add_sizes(arguments)
    return arguments.parse_args()


def attached(options):
    """A proxy that somebody else has started."""
    description = {"attached": True, "port": options.port, "ca": options.ca, "pid": options.pid}
    return Proxy(options.attach, description | {"has": options.has.split(",")})


def chosen(words, known, what):
    names = list(known) if words == "all" else words.split(",")
    if unknown := [name for name in names if name not in known]:
        sys.exit(f"bench.py: unknown {what}: {', '.join(unknown)}; there are {', '.join(known)}")
    return names


if __name__ == "__main__":
    main()
