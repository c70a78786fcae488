"""A gateway of its own between the harness's load generator and its origin, for programs that measure one gateway.

SLUICE and GATEWAY name the programs (default: built for this). Needs root, and what
`harness/set-up` made.
"""

import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = ROOT / "tests/performance"
PROGRAMS = ROOT / "target/performance-harness/programs"

sys.path.insert(0, str(HERE / "harness"))
from bench import Bench  # noqa: E402
from environment import COUNTERS  # noqa: E402
from proxy import described  # noqa: E402


def choose_programs():
    """Sets SLUICE and GATEWAY to the programs as they ship, unless others are named; makes the load generator."""
    if {"SLUICE", "GATEWAY"} <= os.environ.keys() and (PROGRAMS / "pbench").exists():
        return
    built = subprocess.run([HERE / "harness/set-up"], check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    for name, program in zip(("GATEWAY", "SLUICE"), built):
        os.environ.setdefault(name, program)


class Harness:
    """The origin, and gateways that are started one after the other; all of it ends with the block."""

    def __init__(self, out):
        # Each connection is a socket in the client, two in the gateway, one in the origin.
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        # Copied, so that a build meanwhile does not replace them.
        programs = out.resolve() / "programs"
        programs.mkdir(parents=True, exist_ok=True)
        shutil.copy(os.environ["GATEWAY"], programs / "sluice-gateway")
        shutil.copy(PROGRAMS / "pbench", programs / "pbench")
        self._bench = Bench(out.resolve(), programs)

    def __enter__(self):
        try:
            self._bench.prepare()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self._bench.end_all()
        shutil.rmtree(self._bench.environment.work, ignore_errors=True)

    def origin(self):
        """What the origin counted, such as the requests that reached it."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://{COUNTERS}/", timeout=10) as answer:
            return json.load(answer)

    def gateway(self, limits=""):
        """A gateway as the benchmarks have it, with further `limits`, such as `audit: 1GiB`."""
        described_gateway = described()["sluice"]
        if limits:
            files = described_gateway.description["files"]
            files["gateway.yaml"] = files["gateway.yaml"].replace("limits: {", f"limits: {{{limits}, ")
        return Gateway(self._bench, described_gateway)


class Gateway:
    """One gateway; ends with the block."""

    def __init__(self, bench, proxy):
        self._bench, self._started = bench, bench.start(proxy)
        self.pid = self._started.pid
        self.folder = bench.environment.work / proxy.name
        self.control = self.folder / "control/control.sock"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._bench.end(self._started)

    def load(self, words, limit):
        """What the load generator says of one load; subprocess.TimeoutExpired once it was killed after `limit` seconds."""
        return self._bench.load(words, self._started, limit)
