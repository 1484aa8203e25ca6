"""What tables look like on terminals of several widths, and in a pipe."""

from __future__ import annotations

import io

import pytest

from llmfw.core.terminal.tables import Column, print_table

COLUMNS = (
    Column("id"),
    Column("lines done", right=True),
    Column("created", drop=1),
    Column("endpoint", drop=2),
    Column("summary", wraps=True),
)
ID = "batch_" + 32 * "0"
ROWS = [
    (ID, 12345, "2025-05-22 23:07:25", "/v1/completions", "one two three four five six seven"),
    ("b\x1b[2J", None, "", "/v1\tx", ""),
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def printed(monkeypatch: pytest.MonkeyPatch, stdout: io.StringIO, width: int = 80) -> list[str]:
    monkeypatch.setattr("sys.stdout", stdout)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "dumb")
    print_table(COLUMNS, ROWS)
    return [line.rstrip(" ") for line in stdout.getvalue().splitlines()]


@pytest.mark.parametrize("width", [10, 200])
def test_a_pipe_gets_tab_separated_rows(monkeypatch, width):
    assert printed(monkeypatch, io.StringIO(), width) == [
        "id\tlines done\tcreated\tendpoint\tsummary",
        "\t".join((ID, "12345", *ROWS[0][2:])),
        "b [2J\t\t\t/v1 x\t",
    ]


def test_a_wide_terminal_shows_every_column(monkeypatch, capsys):
    header, rule, first, second = printed(monkeypatch, Terminal(), 150)
    assert header.split()[-2:] == ["endpoint", "summary"]
    assert set(rule) == {"─"}
    assert first == f"{ID}      12,345  {'  '.join(ROWS[0][2:])}"
    assert second.split() == ["b", "[2J", "/v1", "x"]
    assert capsys.readouterr().err == ""


def test_a_narrow_terminal_drops_the_least_useful(monkeypatch, capsys):
    lines = printed(monkeypatch, Terminal(), 85)
    [row] = [line for line in lines if ID in line]
    assert row.split("  ")[-2:] == ["12,345", "one two three four five six seven"]
    assert capsys.readouterr().err.startswith("No room for created, endpoint in 85 columns")


@pytest.mark.parametrize("width", range(60, 140, 7))
def test_no_line_is_wider_than_the_terminal(monkeypatch, width):
    lines = printed(monkeypatch, Terminal(), width)
    assert max(map(len, lines)) <= width or lines[0] == f"id: {ID}"
    assert any(ID in line for line in lines)
    assert "seven" in "".join(lines)


def test_text_wraps_and_titles_too(monkeypatch):
    lines = printed(monkeypatch, Terminal(), len(ID) + 2 + len("12,345") + 2 + 20)
    assert [lines[0].split(), lines[1].split()] == [["lines"], ["id", "done", "summary"]]
    assert [line[-20:].strip() for line in lines[3:5]] == ["one two three four", "five six seven"]


def test_too_narrow_terminals_show_records(monkeypatch):
    assert printed(monkeypatch, Terminal(), 50) == [
        f"id: {ID}",
        "lines done: 12,345",
        "created: 2025-05-22 23:07:25",
        "endpoint: /v1/completions",
        "summary: one two three four five six seven",
        "",
        "id: b [2J",
        "endpoint: /v1 x",
    ]


def test_empty_columns_are_dropped_first(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdout", stdout := Terminal())
    monkeypatch.setenv("COLUMNS", "50")
    print_table(["id", Column("lacks", wraps=True), Column("created", drop=1)], [(ID, "", "today")])
    assert "lacks" not in stdout.getvalue()
    assert "today" in stdout.getvalue()
    assert capsys.readouterr().err == ""


def test_an_empty_table_has_its_header(monkeypatch):
    monkeypatch.setattr("sys.stdout", stdout := io.StringIO())
    print_table(["id", "status"], [])
    assert stdout.getvalue() == "id\tstatus\n"
