"""What a killed process was told is kept is there, whole; and nothing is there by half."""

from __future__ import annotations

import random
import runpy
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from llmfw.core.testing.batch_model import lines
from llmfw.core.testing.file_model import read
from llmfw.plugins.store_sqlite.batches import SqliteBatches
from llmfw.plugins.store_sqlite.files import SqliteFiles

from ..length import of_length

SCRIPT = Path(__file__).with_name("writes_until_killed.py")
WRITER = runpy.run_path(str(SCRIPT))
KILLS = of_length(15, 25)
MAX_LINES = 300
"""Lines that a writer says at most before it is killed: enough for a few batches and dozens of files."""

Events = dict[str, dict[str, list[int]]]
"""What was said → id → the numbers that were said with it."""


def write_and_kill(folder: Path, name: str, num_lines: int) -> Events:
    """Kill a writer shortly after it has printed a number of lines; return all that it printed."""
    command = [sys.executable, str(SCRIPT), str(folder), name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        said = [writer.stdout.readline() for _ in range(num_lines)]
        writer.kill()
        said += writer.stdout.readlines()
    events: Events = defaultdict(lambda: defaultdict(list))
    for event, id, *numbers in map(str.split, said):
        events[event][id] += map(int, numbers)
    return events


async def check_files(folder: Path, name: str, events: Events) -> None:
    store = SqliteFiles(folder)
    found = {record.id: record for record in await store.list(limit=100_000)}
    assert len(list((folder / "files").iterdir())) == len(found)
    for id, record in found.items():
        if id.startswith(f"file-{name}-"):
            expected = WRITER["content"](record.filename)
            assert record.bytes == len(expected)
            assert await read(store, id) == expected
    for id, versions in events["put"].items():
        if id not in events["deleting"]:
            assert int(found[id].filename.rpartition(".")[2]) >= versions[-1]
    assert not found.keys() & events["deleted"].keys()
    await store.close()


async def check_batches(folder: Path, events: Events) -> None:
    store = SqliteBatches(folder)
    for id in events["created"]:
        record = await store.get(id)
        if id in events["ended"]:
            assert record.status == "completed"
        if record.status == "completed":
            assert record.num_completed + record.num_failed == 100
            continue
        done = sorted(await store.results(id).done())
        assert done == list(range(1, len(done) + 1))
        assert len(done) % WRITER["GROUP"] == 0
        assert len(done) >= max(events["added"][id], default=0)
        for failed, count in ((False, record.num_completed), (True, record.num_failed)):
            expected = [WRITER["data"](id, n) for n in done if (n % 7 == 0) == failed]
            assert [*await lines(store, id, failed=failed)] == expected
            assert len(expected) == count
    await store.close()


@pytest.mark.long
@pytest.mark.slow
async def test_acknowledged_data_survives_every_kill(tmp_path: Path) -> None:
    """Nothing is stored in part."""
    drawn = random.Random(1)
    seen: dict[str, Any] = defaultdict(int)
    for kill in range(KILLS):
        name = f"{kill:03}"
        events = write_and_kill(tmp_path, name, drawn.randrange(MAX_LINES))
        await check_files(tmp_path, name, events)
        await check_batches(tmp_path, events)
        for event, ids in events.items():
            seen[event] += len(ids)
    assert min(seen[event] for event in ("put", "deleted", "created", "added", "ended")) > KILLS, seen
