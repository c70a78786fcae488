"""Tables of `docs/performance.md`, between marks that name them."""

import re


def markdown(said):
    """Columns of text as tables: what stands two blanks apart is a cell."""
    lines, inside = [], False
    for line in said.splitlines():
        cells = re.split(r"\s{2,}", line.rstrip())
        row = len(cells) > 1
        if row != inside:
            lines.append("")
        if row:
            lines.append("| " + " | ".join(cells) + " |")
            if not inside:
                lines.append("|---" + "|---:" * (len(cells) - 1) + "|")
        else:
            lines.append(line)
        inside = row
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines).strip())


def filled(page, tables):
    """The page with each table between its marks; what was not measured stays as it is."""
    for name, table in tables.items():
        if table:
            marks = re.compile(rf"(<!-- table: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
            page = marks.sub(lambda mark: f"{mark[1]}\n{table}\n\n{mark[2]}", page)
    return page
