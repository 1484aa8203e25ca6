"""Prints tables that fit the terminal, or tab-separated rows if stdout is not a terminal.

Identifiers are never truncated. If the columns do not fit, the least useful ones are dropped; if that is not
enough, each row is printed as a record, one "title: cell" line per column. Rich is imported only if stdout is
a terminal.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import click

Cell = str | int | None
"""Cell of a row. Integers have thousands separators on a terminal, but not in a pipe. None is an empty
cell."""

GAP = 2
"""Number of spaces between two columns."""
MIN_TEXT = 20
"""Minimum width of a column whose text wraps."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table.

    Attributes:
        title: column header, and the key in a record.
        drop: rank for dropping the column if the terminal is too narrow; the largest rank is dropped first.
            A column with rank 0 is dropped only if all its cells are empty.
        wraps: whether cells hold free text that may wrap. Cells of other columns are never wrapped or
            truncated.
        right: whether to align cells to the right, as for numbers.
        style: style of the cells, as a Rich style name.
    """

    title: str
    drop: int = 0
    wraps: bool = False
    right: bool = False
    style: str = ""


def print_table(columns: Sequence[Column | str], rows: Iterable[Sequence[Cell]]) -> None:
    """Print a table to stdout, with control characters in cells replaced with spaces.

    On a terminal, the table is at most as wide as the environment variable `COLUMNS` says, by default as wide
    as the terminal. If columns that are not empty are dropped, a line on stderr names them.

    Args:
        columns: columns of the table. A string stands for `Column(title)`.
        rows: rows with one cell per column.
    """
    all_columns = [Column(each) if isinstance(each, str) else each for each in columns]
    if sys.stdout.isatty():
        texts = [[_text(cell, "{:,}") for cell in row] for row in rows]
        _print_to_terminal(all_columns, texts, shutil.get_terminal_size().columns)
        return
    click.echo("\t".join(column.title for column in all_columns))
    for row in rows:
        click.echo("\t".join(_text(cell, "{}") for cell in row))


def plain(value: object) -> str:
    """Return a value as one line of text without control characters."""
    return _CONTROL.sub(" ", str(value))


def _text(cell: Cell, number: str) -> str:
    return "" if cell is None else number.format(cell) if isinstance(cell, int) else plain(cell)


def _print_to_terminal(columns: list[Column], rows: list[list[str]], width: int) -> None:
    kept, widths = _fitting(columns, rows, width)
    if widths is None:
        click.echo("\n\n".join(_record(columns, row) for row in rows))
        return
    _print_with_rich([columns[i] for i in kept], [[row[i] for i in kept] for row in rows], widths)
    left_out = [i for i in range(len(columns)) if i not in kept and any(row[i] for row in rows)]
    if left_out:
        click.echo(
            f"No room for {', '.join(columns[i].title for i in left_out)} in {width} columns; a wider terminal or a pipe shows all",
            err=True,
        )


def _record(columns: Sequence[Column], row: Sequence[str]) -> str:
    lines = zip(columns, row, strict=True)
    return "\n".join(f"{column.title}: {cell}" for column, cell in lines if cell)


def _fitting(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int
) -> tuple[list[int], list[int] | None]:
    """Choose the columns to print, dropping columns until the rest fits. Empty columns are dropped first.

    Returns:
        The indices of the columns to print, and their widths; None instead of widths if the columns still do
        not fit.
    """
    kept = list(range(len(columns)))
    droppable = [i for i in kept if rows and not any(row[i] for row in rows)]
    droppable += sorted((i for i in kept if columns[i].drop), key=lambda i: -columns[i].drop)
    for i in dict.fromkeys(droppable):
        widths = _widths([columns[i] for i in kept], [[row[i] for i in kept] for row in rows], width)
        if widths is not None:
            return kept, widths
        kept.remove(i)
    return kept, _widths([columns[i] for i in kept], [[row[i] for i in kept] for row in rows], width)


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> list[int] | None:
    """Return the width of each column, so that columns and gaps fit into `width`; None if they cannot.

    If space is scarce, titles wrap and columns with wrapping text get narrower. Spare space goes to the other
    columns first, and then to the columns with wrapping text. Among these, the column with the longest cells
    comes first.
    """
    from rich.cells import cell_len

    widths, wishes = [], []
    for i, column in enumerate(columns):
        longest = max((cell_len(row[i]) for row in rows), default=0)
        word = max(map(cell_len, column.title.split()))
        widths.append(max(word, min(longest, MIN_TEXT) if column.wraps else longest))
        wishes.append(max(longest, cell_len(column.title)))
    spare = width - sum(widths) - GAP * (len(columns) - 1)
    if spare < 0:
        return None
    for i in sorted(range(len(columns)), key=lambda i: (columns[i].wraps, -wishes[i])):
        more = min(wishes[i] - widths[i], spare)
        widths[i] += more
        spare -= more
    return widths


def _print_with_rich(columns: Sequence[Column], rows: Iterable[Sequence[str]], widths: Sequence[int]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, GAP - 1, 0, 0))
    for column, width in zip(columns, widths, strict=True):
        table.add_column(
            column.title,
            justify="right" if column.right else "left",
            style=column.style,
            width=width,
            overflow="fold",
        )
    for row in rows:
        table.add_row(*map(Text, row))
    Console(width=sum(widths) + GAP * len(columns), height=25).print(table)
