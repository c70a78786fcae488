#!/usr/bin/env -S python3 -B
"""Prints what `bench.py` wrote down as Markdown tables.

    tests/performance/harness/report.py [RAW.JSONL]

Figures are medians, with the least and the most over repetitions in brackets. Ratios are
taken within each repetition, against the direct connection of the same one. "CPU floor" is
what client and origin spend on an operation when nothing stands between them.
"""

import pathlib
import sys
from statistics import median

from results import FLOOR, OURS, PEERS, Results, dig, middle, shown

TARGET = pathlib.Path(__file__).resolve().parents[3] / "target/performance-harness"
ORDER = ["direct", FLOOR, "tinyproxy", *(name for names in PEERS.values() for name in names), OURS]

OPERATIONS = {
    "get1": ("Keep-alive GET 1 KiB, 1 connection", "req/s"),
    "get64": ("Keep-alive GET 1 KiB, 64 connections", "req/s"),
    "h2": ("h2 GET 1 KiB, 1 connection x 64 streams", "req/s"),
    "conn1": ("New connection per request, 1 at a time (full handshakes)", "conn/s"),
    "conn8": ("New connection per request, 8 at a time (full handshakes)", "conn/s"),
    "connr": ("New connection per request, 8 at a time, client offers TLS resumption", "conn/s"),
    "many": ("New connection to a new host name each time (leaf generation), 8 at a time", "conn/s"),
    "deny": ("Denied host, 1 at a time", "op/s"),
    "sse": ("SSE delivery delay, 8 streams x 100 events/s", "ev/s"),
}
TRANSFERRED = {
    "down": "Download, 1 connection",
    "down4": "Download, 4 connections",
    "up": "Upload, 1 connection",
}


def main():
    raw = sys.argv[1] if len(sys.argv) > 1 else TARGET / "out/raw.jsonl"
    results = Results(raw)
    parts = [operations(results, workload) for workload in OPERATIONS if workload in results.workloads()]
    parts += [transfers(results, workload) for workload in TRANSFERRED if workload in results.workloads()]
    if "idle" in results.workloads():
        parts.append(memory(results))
    parts += [highest_memory(results), noise(results), denials(results)]
    print("\n".join(part for part in parts if part))


def operations(results, workload):
    title, unit = OPERATIONS[workload]
    least = results.least_cpu(workload)
    head = ["proxy", unit, "of direct", "p50 us", "p99 us", "p50 / direct", "proxy CPU us/op", "CPU / floor"]
    head.append("upstream conns per request")
    rows = []
    for proxy in ordered(results.proxies(workload)):
        rates = results.values(workload, proxy, "ops_per_s")
        if not any(rates):
            rows.append([proxy, problem(results, workload, proxy), *[""] * (len(head) - 2)])
            continue
        delay = results.p50_of_direct(workload, proxy)
        rows.append([
            proxy,
            spread(rates),
            shown(results.share(workload, proxy)),
            spread(results.values(workload, proxy, "hist", "latency", "p50_us")),
            spread(results.values(workload, proxy, "hist", "latency", "p99_us")),
            shown(delay) + "x" if delay else "–",
            shown(results.cpu(workload, proxy)),
            shown(results.cpu_of_least(workload, proxy)),
            upstream_side(results.good(workload, proxy).values()),
        ])
    return table(title + (f" — CPU floor {shown(least)} us" if least else ""), head, rows)


def upstream_side(good):
    """How a proxy treats its upstream: connections for each request, resumed sessions, errors."""
    connections, resumed, client_resumed, errors = [], [], [], 0
    for result in good:
        seen = result.get("origin_stats") or {}
        requests = seen.get("h1_requests", 0) + seen.get("h2_requests", 0)
        if requests:
            connections.append(seen.get("tcp", 0) / requests)
            resumed.append(seen.get("tls_resumed", 0) / max(1, seen.get("tcp", 0)))
        of_client = (result.get("notes") or {}).get("client side resumed", 0)
        client_resumed.append(of_client / max(1, result.get("ops") or 1))
        errors += result.get("errors") or 0
    said = shown(middle(connections))
    if middle(resumed):
        said += f" ({middle(resumed):.0%} resumed)"
    if middle(client_resumed):
        said += f"; client {middle(client_resumed):.0%} resumed"
    return said + (f"; {errors} errors" if errors else "")


def transfers(results, workload):
    least = results.least_cpu(workload)
    head = ["proxy", "MiB/s", "of direct", "proxy CPU s/GiB", "CPU / floor", "peak RSS MiB"]
    rows = []
    for proxy in ordered(results.proxies(workload)):
        rates = results.values(workload, proxy, "mib_per_s")
        if not any(rates):
            rows.append([proxy, problem(results, workload, proxy), *[""] * (len(head) - 2)])
            continue
        resident = results.middle(workload, proxy, "mem", "proxy", "rss_peak_kib")
        rows.append([
            proxy,
            spread(rates),
            shown(results.share(workload, proxy)),
            spread(results.values(workload, proxy, "cpu_s_per_gib", "proxy")),
            shown(results.cpu_of_least(workload, proxy)),
            shown(resident and resident / 1024),
        ])
    return table(TRANSFERRED[workload] + (f" — CPU floor {shown(least)} s/GiB" if least else ""), head, rows)


def memory(results):
    head = ["proxy", "RSS MiB after start", "RSS MiB after the load runs", "RSS MiB with the held connections"]
    head += ["KiB per held connection", "held", "open at origin"]
    rows = []
    for proxy in ordered(results.proxies("idle") - {"direct"}):
        begun = spread([kib / 1024 for kib in results.values("start", proxy, "rss_kib")])
        of_proxy = lambda name: results.values("idle", proxy, "idle", "procs", "proxy", name)
        if not of_proxy("held_rss_kib"):
            rows.append([proxy, begun, problem(results, "idle", proxy), *[""] * (len(head) - 3)])
            continue
        rows.append([
            proxy,
            begun,
            spread([kib / 1024 for kib in of_proxy("before_rss_kib")]),
            spread([kib / 1024 for kib in of_proxy("held_rss_kib")]),
            spread(of_proxy("kib_per_conn")),
            f"{results.middle('idle', proxy, 'idle', 'held'):,.0f}",
            f"{results.middle('idle', proxy, 'idle', 'origin_open') or 0:,.0f}",
        ])
    return table("Memory", head, rows)


def highest_memory(results):
    highest = {}
    for _, proxy, line in results.each():
        resident = dig(line, "result", "mem", "proxy", "rss_peak_kib")
        if resident and proxy != "direct":
            highest[proxy] = max(resident / 1024, highest.get(proxy, 0))
    rows = [[proxy, shown(highest[proxy])] for proxy in ordered(highest)]
    return table("Highest RSS seen in any workload", ["proxy", "MiB"], rows)


def noise(results):
    """How much others did meanwhile."""
    shares = results.foreign_shares()
    if not shares:
        return ""
    late = shares[int(len(shares) * 0.9)]
    return (
        "\nNoise: share of busy CPU time used by processes that are no part of the benchmark: "
        f"median {100 * median(shares):.0f} %, 90th percentile {100 * late:.0f} % of {len(shares)} measurements."
    )


def denials(results):
    seen = {}
    for workload, proxy, line in results.each():
        if workload == "deny":
            seen.setdefault(proxy, set()).update(dig(line, "result", "notes") or {})
    said = [f"{proxy}: {', '.join(sorted(seen[proxy]))}" for proxy in ordered(seen)]
    return "\nHow a denial shows: " + "; ".join(said) if said else ""


def problem(results, workload, proxy):
    """Why there is no figure."""
    lines = results.lines(workload, proxy)
    if not lines:
        return "not run"
    if error := lines[-1].get("error"):
        return error[:60]
    notes = dig(lines[-1], "result", "notes") or {}
    return next((note for note in notes if note.startswith("error")), "no result")[:70]


def spread(values):
    """The median, with the least and the most."""
    if len(values) < 2:
        return shown(middle(values))
    return f"{shown(median(values))} [{shown(min(values))}..{shown(max(values))}]"


def ordered(names):
    return [name for name in ORDER if name in names] + sorted(set(names) - set(ORDER))


def table(title, head, rows):
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return f"\n### {title}\n\n" + "\n".join("| " + " | ".join(line) + " |" for line in lines)


if __name__ == "__main__":
    main()
