"""Whether a gateway leaks: what it holds at the quiet points early and late in a soak.

A quiet point is taken after a round, once all clients are gone and the gateway had
the time to close the upstream connections that it keeps. What is held there is
held for nobody. The points of the last quarter are compared with those of the first,
by their medians: one point that is off decides nothing.

Memory may make a step: the allocator keeps what was needed at once, and a minute in
which the machine was busy with something else has more requests waiting at once. A leak
goes on, so after a step it is compared with the quarter before the last.

Caches of host names are full before the first round. Of the rounds a quarter, but
no more than three, is left out: in them memory that is freed and taken again
spreads as far as the load needs.
"""

import math
import statistics

MAX_WARM_UP_ROUNDS = 3
# One to warm up, and two to compare.
MIN_ROUNDS = 3

# What may not be higher at all: everything that is kept for clients and upstreams is
# closed at a quiet point, so one more is one that was forgotten.
COUNTS = {
    "descriptors": "open descriptors",
    "tasks": "tasks",
    "connections": "open connections",
    "threads": "threads",
}
# With nothing changed, quiet points differ by up to 3 MiB of 40. Between the two quarters
# of half an hour there are more than a hundred thousand connections, so a leak of a few
# dozen bytes for each is more than this.
RSS_SHARE = 0.10
# From one quarter to the next, by their medians, they differ by less.
RSS_SHARE_AFTER_A_STEP = 0.03


def compare(points):
    """For each figure: its name, unit, early, late, the bound, and whether it holds."""
    kept = points[min(MAX_WARM_UP_ROUNDS, math.ceil(len(points) / 4)) :]
    quarter = max(1, math.ceil(len(kept) / 4))
    early, before, late = kept[:quarter], kept[-2 * quarter : -quarter], kept[-quarter:]
    rows = []
    for figure, name in COUNTS.items():
        first, last = middle(early, figure), middle(late, figure)
        rows.append((name, "", first, last, first, last <= first))
    first, third, last = (middle(quarter, "rss") for quarter in (early, before, late))
    bound = max(first * (1 + RSS_SHARE), third * (1 + RSS_SHARE_AFTER_A_STEP))
    rows.append(("resident memory", "MiB", first / 1024, last / 1024, bound / 1024, last <= bound))
    return rows


def middle(points, figure):
    return statistics.median(point[figure] for point in points)


def table(rows):
    lines = ["| at the quiet points | first quarter | last quarter | at most | verdict |", "|---|---:|---:|---:|---|"]
    for name, unit, first, last, bound, holds in rows:
        shown = [f"{value:.1f}" if unit else f"{value:g}" for value in (first, last, bound)]
        words = f"{name}, {unit}" if unit else name
        lines.append(f"| {words} | {' | '.join(shown)} | {'holds' if holds else '**leaks**'} |")
    return "\n".join(lines)
