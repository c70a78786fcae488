"""Whether what was answered in a soak is in its audit log, and the log is whole."""

import os
import subprocess


def check_records(folder, measured):
    """What the log holds, and a sentence for each thing that is not as it must be."""
    records = count(folder)
    faults = []
    verified = subprocess.run([os.environ["SLUICE"], "audit", "verify", folder], capture_output=True, text=True)
    if verified.returncode != 0:
        faults.append(f"the log does not verify: {(verified.stdout + verified.stderr).strip()[-300:]}")
    refused = measured["answered"].get("refused hosts", 0)
    answered = sum(measured["answered"].values()) - refused
    reached = measured["origin"]["h1_requests"] + measured["origin"]["h2_requests"]
    # The gateway's own count is taken before its end, when no request is under way.
    counted = int(measured["quiet"][-1]["requests"])
    # Clients that are killed have had answers that nobody counted.
    for fewer, more, words in [
        (answered, records["relayed"], "{} answers were counted by clients, and {} requests are recorded as relayed"),
        (reached, records["requests"], "{} requests reached the origin, and {} are recorded"),
        (refused, records["refused"], "{} refusals were counted by clients, and {} are recorded"),
        (counted, records["requests"], "the gateway counted {} requests, and recorded {}"),
        (records["requests"], counted, "{} requests are recorded, and the gateway counted {}"),
    ]:
        if fewer > more:
            faults.append(words.format(f"{fewer:,}", f"{more:,}"))
    return records | {"answered": answered, "refusals": refused}, faults


def count(folder):
    """Closing records, by what became of them; lines are flat JSON without blanks."""
    counted = {"requests": 0, "relayed": 0, "refused": 0, "bytes": 0}
    for segment in sorted(folder.glob("audit*.jsonl")):
        with open(segment, "rb") as lines:
            for line in lines:
                counted["bytes"] += len(line)
                request = b'"kind":"request"' in line
                counted["requests"] += request
                counted["relayed"] += request and b'"sluice.outcome":"relayed"' in line
                counted["refused"] += b'"sluice.outcome":"refused"' in line and b'"kind":"opened"' not in line
    return counted
