"""What `bench.py` wrote down, and the figures that tables, bars and charts are made of.

A figure is the median over repetitions. CPU is scaled by the loop that runs before and
after each workload, which takes out how fast the machine happened to be.
"""

import json
from statistics import median

# The floor is no peer but a lower bound, written for this measurement. Tinyproxy is none
# either: it does not look inside.
FLOOR, OURS = "floor", "sluice"
PEERS = {
    "Squid": ["squid"],
    "mitmproxy": ["mitmproxy"],
    "hudsucker": ["hudsucker", "hudsucker-nd", "hudsucker-h2"],
}
TRANSFERS = {"down", "down4", "up"}


class Results:
    """By workload, proxy and repetition. A later line of the file replaces an earlier one."""

    def __init__(self, raw):
        self._lines = {}
        with open(raw) as lines:
            for line in map(json.loads, lines):
                of_workload = self._lines.setdefault(line["workload"], {})
                of_workload.setdefault(line["proxy"], {})[line["rep"]] = line
        self._take_out_speed()

    def _take_out_speed(self):
        """Scales CPU to the median speed of the machine over the whole run."""
        every = [line["result"] for _, _, line in self.each() if dig(line, "result", "calibration_us")]
        if not every:
            return
        reference = median(result["calibration_us"] for result in every)
        for result in every:
            factor = reference / result["calibration_us"]
            for of_process in (result.get("cpu") or {}).values():
                of_process["us_per_op"] *= factor
            per_gib = result.get("cpu_s_per_gib") or {}
            for process in per_gib:
                # Nothing was transferred: there is no CPU of it.
                per_gib[process] = per_gib[process] and per_gib[process] * factor

    def each(self):
        """(workload, proxy, line) of everything."""
        for workload, by_proxy in self._lines.items():
            for proxy, by_repetition in by_proxy.items():
                for line in by_repetition.values():
                    yield workload, proxy, line

    def workloads(self):
        return self._lines.keys()

    def proxies(self, workload=None):
        """Those that took part, in a workload or at all."""
        if workload:
            return set(self._lines.get(workload, {}))
        return {proxy for _, proxy, _ in self.each()}

    def repetitions(self):
        return len({line["rep"] for _, _, line in self.each()})

    def lines(self, workload, proxy):
        return list(self._lines.get(workload, {}).get(proxy, {}).values())

    def good(self, workload, proxy):
        """Results by repetition, without repetitions that failed."""
        by_repetition = self._lines.get(workload, {}).get(proxy, {})
        return {rep: line["result"] for rep, line in by_repetition.items() if is_good(workload, line)}

    def values(self, workload, proxy, *path):
        """One figure of each good repetition."""
        found = (dig(result, *path) for result in self.good(workload, proxy).values())
        return [value for value in found if value is not None]

    def middle(self, workload, proxy, *path):
        return middle(self.values(workload, proxy, *path))

    def of_direct(self, workload, proxy, *path):
        """A figure as a part of the direct connection's in the same repetition."""
        direct = self.good(workload, "direct")
        pairs = [
            (dig(result, *path), dig(direct.get(repetition), *path))
            for repetition, result in self.good(workload, proxy).items()
        ]
        return middle([ours / theirs for ours, theirs in pairs if ours and theirs])

    def share(self, workload, proxy):
        """Throughput, as a part of the direct connection's."""
        return self.of_direct(workload, proxy, "mib_per_s" if workload in TRANSFERS else "ops_per_s")

    def cpu(self, workload, proxy):
        """CPU of the proxy: microseconds an operation, or seconds a gibibyte."""
        return self.middle(workload, proxy, *cpu_path(workload, "proxy"))

    def least_cpu(self, workload):
        """What client and origin spend when nothing stands between them."""
        client, origin = cpu_path(workload, "client"), cpu_path(workload, "origin")
        pairs = [(dig(one, *client), dig(one, *origin)) for one in self.good(workload, "direct").values()]
        return middle([client + origin for client, origin in pairs if None not in (client, origin)])

    def cpu_of_least(self, workload, proxy):
        spent, least = self.cpu(workload, proxy), self.least_cpu(workload)
        return spent / least if spent and least else None

    def p50(self, workload, proxy):
        """Microseconds."""
        return self.middle(workload, proxy, "hist", "latency", "p50_us")

    def p50_of_direct(self, workload, proxy):
        return self.of_direct(workload, proxy, "hist", "latency", "p50_us")

    def p99_ms(self, workload, proxy):
        value = self.middle(workload, proxy, "hist", "latency", "p99_us")
        return value and value / 1000

    def mib_after_start(self, _workload, proxy):
        value = self.middle("start", proxy, "rss_kib")
        return value and value / 1024

    def kib_per_connection(self, workload, proxy):
        return self.middle(workload, proxy, "idle", "procs", "proxy", "kib_per_conn")

    def foreign_shares(self):
        """Of the CPU of each measurement, what processes took that have nothing to do with it."""
        machines = [dig(line, "result", "machine") for _, _, line in self.each()]
        return sorted(one["foreign"] / one["busy"] for one in machines if one and one.get("busy"))


def is_good(workload, line):
    """A repetition counts when operations were completed and at most 5 % failed."""
    result = line.get("result")
    if not result or workload == "start":
        return bool(result)
    completed = result["idle"]["held"] if "idle" in result else result.get("ops", 0)
    return completed > 0 and result.get("errors", 0) <= max(1, 0.05 * completed)


def cpu_path(workload, process):
    return ["cpu_s_per_gib", process] if workload in TRANSFERS else ["cpu", process, "us_per_op"]


def dig(value, *path):
    """What is under these names, one in the other; None if anything of it is missing."""
    for name in path:
        if not isinstance(value, dict) or name not in value:
            return None
        value = value[name]
    return value


def middle(values):
    """The median, if there is anything."""
    return median(values) if values else None


def shown(value):
    """Three digits or all whole ones."""
    if value is None:
        return "–"
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if size >= 100 else f"{value:.1f}" if size >= 10 else f"{value:.2f}"
