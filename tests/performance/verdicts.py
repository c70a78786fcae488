"""How a figure is held against a bar, and how that is shown."""

import operator


def verdict(ours, bar, better=min, strictly=False):
    if ours is None or bar is None:
        return "not measured"
    holds = operator.gt if strictly else operator.ge
    if holds(ours, bar) if better is max else holds(bar, ours):
        return "met"
    return f"**missed by {abs(ours - bar) / bar:.0%}**".replace("%", " %")


def shown(number):
    """Three digits, as the harness shows them."""
    if number is None:
        return "–"
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def markdown(head, rows):
    lines = [head, ["---"] + ["---:"] * (len(head) - 3) + ["---", "---"], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
