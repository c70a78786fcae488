"""What was promised of growth, held against what `growth` measured: a verdict for each bar, in Markdown."""

from verdicts import markdown, shown, verdict


def judged(figures):
    head = ["promise", "measured", "bar", "verdict"]
    return markdown(head, [bar.row(figures) for bar in BARS])


class Bar:
    """One promise: the largest of a figure's lines at one size, and what it must not pass; a multiple, with `of` a smaller size."""

    def __init__(self, promise, figure, size, bar, of=None):
        self.promise, self.figure, self.size, self.bar, self.of = promise, figure, size, bar, of

    def row(self, figures):
        lines = figures.get(self.figure, {"series": {}})["series"].values()
        values = [self.value(dict(map(tuple, line))) for line in lines]
        most = max((value for value in values if value is not None), default=None)
        words = f"at most {self.bar:,}" + (f" of that at {self.of:,}" if self.of else "")
        return [self.promise, f"**{shown(most)}**", words, verdict(most, self.bar)]

    def value(self, line):
        """What of a line, by size, is held against the bar."""
        if self.size not in line or self.of not in (None, *line):
            return None
        return line[self.size] / line[self.of] if self.of else line[self.size]


BARS = [
    Bar("a decision under 10,000 rules, ns", "decide", 10_000, 1_000),
    Bar("a decision under 10,000 rules", "decide", 10_000, 1.5, of=10),
    Bar("reading a policy of 10,000 rules, ms", "read", 10_000, 1_000),
    Bar("memory of each of 10,000 held connections", "connection", 10_000, 1.1, of=1_000),
    Bar("memory of each of 1,000 active connections", "active-connection", 1_000, 1.1, of=100),
    Bar("a search in 1,000,000 events, ms", "search", 1_000_000, 1_000),
    Bar("a search in 10,000,000 events, ms", "search", 10_000_000, 10_000),
]
