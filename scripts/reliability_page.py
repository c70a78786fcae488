"""Replaces the sections of docs/reliability.md that programs write.

A section stands between `<!-- NAME: begin -->` and `<!-- NAME: end -->`.
"""

import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parents[1]
page = root / "docs/reliability.md"


def divided(name):
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
    text = page.read_text()
    if text.count(begin) != 1 or text.count(end) != 1:
        sys.exit(f"docs/reliability.md must have one line {begin.strip()} and one line {end}")
    before, rest = text.split(begin)
    inside, after = rest.split(end)
    return before + begin, inside, end + after


def read_section(name):
    return divided(name)[1].strip("\n")


def write_section(name, text):
    before, _, after = divided(name)
    page.write_text(before + text.strip("\n") + "\n" + after)


def last_full_commit():
    """The commit of the last full run; nothing if there was none."""
    found = re.search(r"^- commit: ([0-9a-f]{40})", read_section("last-full-run"), re.MULTILINE)
    return found.group(1) if found else None
