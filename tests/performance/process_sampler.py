"""What a running gateway holds: memory, descriptors and threads from /proc, tasks and connections from its metrics."""

import os
import pathlib
import re
import socket
import time


def sample(pid, control):
    """All of it at one moment; memory in KiB."""
    process = pathlib.Path(f"/proc/{pid}")
    status = (process / "status").read_text()
    # Before the metrics: reading them is a connection, which may be closed a little later.
    descriptors = len(os.listdir(process / "fd"))
    metrics = read_metrics(control)
    return {
        "at": time.monotonic(),
        "rss": number(status, "VmRSS"),
        "pss": number((process / "smaps_rollup").read_text(), "Pss"),
        "descriptors": descriptors,
        "threads": number(status, "Threads"),
        "tasks": metrics["sluice_tasks"],
        "connections": metrics["sluice_open_connections"],
        "leaves": metrics["sluice_leaf_certificates"],
        "unwritten": metrics["sluice_audit_unwritten"],
        "requests": metrics.get("sluice_requests_total", 0),
    }


def read_metrics(control):
    """The metrics page; series of one name are added up."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        connection.connect(str(control))
        connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\n\r\n")
        answer = b"".join(iter(lambda: connection.recv(1 << 16), b"")).decode()
    found = {}
    for name, value in re.findall(r"^(\w+)(?:\{.*\})? (\S+)$", answer, re.MULTILINE):
        found[name] = found.get(name, 0) + float(value)
    return found


def rss_kib(pid):
    return number(pathlib.Path(f"/proc/{pid}/status").read_text(), "VmRSS")


def cpu_seconds(pid):
    """Of user and kernel."""
    stat = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


def machine_seconds():
    """How long all processors were busy, and how long there were any."""
    ticks = [int(word) for word in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle = ticks[3] + ticks[4]
    return (sum(ticks) - idle) / os.sysconf("SC_CLK_TCK"), sum(ticks) / os.sysconf("SC_CLK_TCK")


def number(text, name):
    return int(re.search(rf"^{name}:\s+(\d+)", text, re.MULTILINE)[1])
