"""What the pictures share: no background and middle tones, so that they can be read on white and on black."""

import html
import re

WIDTH = 640
GREY, COLOURS = "#7a8490", ["#2f81d6", "#d9822b", "#3a9a55", "#b0559f"]


def picture(height, parts):
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">'
    return "\n".join([head, *parts, "</svg>\n"])


def caption(machine):
    """Where figures come from, on a line: of the table that `machine` has printed."""
    rows = dict(re.findall(r"^\| (.+?) \| (.+?) \|$", machine.read_text(), re.MULTILINE)) if machine.exists() else {}
    said = [rows.get("measured"), f"commit {rows.get('commit')}", rows.get("processor"), rows.get("memory")]
    return ", ".join(part for part in said if part) if rows else ""


def amount(value, unit):
    """In the unit a person would choose."""
    for units, step in ((["ns", "µs", "ms", "s"], 1000), (["KiB", "MiB", "GiB"], 1024)):
        if unit in units:
            at = units.index(unit)
            # Axes are in tens: a thousand MiB stay a thousand.
            while step == 1000 and value >= step and at + 1 < len(units):
                value, at = value / step, at + 1
            while step == 1000 and value < 1 and at > 0:
                value, at = value * step, at - 1
            return f"{value:,.0f} {units[at]}" if value >= 100 else f"{value:.3g} {units[at]}"
    raise ValueError(f"no such unit: {unit}")


def plain(words):
    return html.escape(words.replace("`", ""))


def line(x1, y1, x2, y2):
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="{GREY}" stroke-opacity=".35"/>'


def text(x, y, words, anchor, colour=GREY, size=12, weight="normal"):
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" font-size="{size}" font-weight="{weight}"'
        f' text-anchor="{anchor}">{words}</text>'
    )
