"""Tables and figures as people read them. Rich is imported when a table is printed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .batch.words import plain

_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table; what steers a terminal is left out of its cells."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        table.add_row(*(Text(plain(cell)) for cell in row))
    console = Console()
    if not console.is_terminal:
        console = Console(width=240)  # a pipe has no width; do not cut what may be searched
    console.print(table)


def percent(part: float, whole: float) -> str:
    """Return a share as in "37.4 %"."""
    return f"{100 * part / whole:.1f} %" if whole else "0 %"


def seconds(count: float) -> str:
    """Return a time as in "850 ms", "12.3 s", "59.9 min"."""
    if count < 1:
        return f"{count * 1000:.0f} ms"
    size, unit = next(((size, unit) for size, unit in _UNITS if count >= size), (1.0, "s"))
    return f"{count / size:.1f} {unit}"
