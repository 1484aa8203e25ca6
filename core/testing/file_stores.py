"""Conformance tests of the `FileStore` interface."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from llmfw.core.interfaces.file_store import FileRecord

from .file_listings import FileListingTests, OpenFiles
from .file_model import (
    OPERATIONS,
    BrokenError,
    FileModel,
    StoreAdapter,
    breaking,
    ids,
    put,
    read,
    record_of,
    stream,
    undescribed,
)
from .long_values import brief
from .resources import assert_loop_stays_free, folder_bytes, peak_memory
from .stores import (
    Operation,
    assert_same_results,
    drawn,
    fresh,
    on_a_loop,
    opened,
    outcome,
    structs,
)

MIB = 2**20
LARGE = random.Random(1).randbytes(3 * MIB + 9)
STRANGE_IDS = (
    *("", "file-2", "../file-1", "/etc/passwd", "file-1\0", "file-1/", "\udcff", "%", "é" * 500),
    *("FILE-1", " file-1", "file-1\n", "file-１"),
)


class FileStoreTests(FileListingTests):
    """Conformance tests of a file store.

    Derive from this class and override the fixture `open_store`, and `survives_reopening` if the store keeps
    its contents when it is closed.
    """

    @given(
        chunks=st.lists(st.binary(max_size=200), max_size=5), record=structs(FileRecord, id=st.just("file-1"))
    )
    @drawn
    @on_a_loop
    async def test_a_file_keeps_its_bytes_and_fields(
        self, open_store: OpenFiles, tmp_path: Path, chunks: Sequence[bytes], record: FileRecord
    ) -> None:
        data = b"".join(chunks)
        sizes = []

        def describe(size: int) -> FileRecord:
            sizes.append(size)
            fields = {name: getattr(record, name) for name in FileRecord.__struct_fields__}
            return FileRecord(**fields | {"bytes": size})

        async with fresh(open_store, tmp_path) as store:
            kept = await store.put(stream(*chunks), describe)
            assert sizes == [len(data)]
            assert kept == describe(len(data)) == await store.get("file-1")
            assert await read(store, "file-1") == data

    @given(name=st.text(st.characters(), max_size=30))
    @example("../../etc/passwd")
    @example("a\\b\0 c\n")
    @example("\udcff\ud83d")
    @example("e\u0301 \N{GRINNING FACE} " * 100)
    @drawn
    @on_a_loop
    async def test_a_filename_is_returned_as_written(
        self, open_store: OpenFiles, tmp_path: Path, name: str
    ) -> None:
        async with fresh(open_store, tmp_path) as store:
            await put(store, "file-1", filename=name)
            assert (await store.get("file-1")).filename == name

    @pytest.mark.parametrize("size", [1000, 64 * 1024, len(LARGE)])
    @on_a_loop
    async def test_a_large_file_is_read_in_small_pieces(
        self, open_store: OpenFiles, tmp_path: Path, size: int
    ) -> None:
        """No piece is empty or larger than one MiB."""
        chunks = [LARGE[start : start + size] for start in range(0, len(LARGE), size)]
        async with opened(open_store, tmp_path) as store:
            await store.put(stream(*chunks), lambda size: record_of("file-1", size))
            pieces = [piece async for piece in store.read("file-1")]
            assert max(map(len, pieces)) <= MIB
            assert min(map(len, pieces)) > 0
            assert brief(b"".join(pieces)) == brief(LARGE)

    @given(
        data=st.binary(min_size=9, max_size=40), start=st.integers(0, 50), end=st.none() | st.integers(0, 50)
    )
    @example(b"0123456789", 3, 5)
    @example(b"0123456789", 5, 3)
    @example(b"0123456789", 0, 0)
    @example(b"0123456789", 9, 99)
    @example(b"", 0, None)
    @drawn
    @on_a_loop
    async def test_a_range_returns_exactly_its_bytes(
        self, open_store: OpenFiles, tmp_path: Path, data: bytes, start: int, end: int | None
    ) -> None:
        async with fresh(open_store, tmp_path) as store:
            await put(store, "file-1", data)
            assert await read(store, "file-1", start, end) == data[start:end]

    @pytest.mark.parametrize("border", [MIB, MIB // 4, len(LARGE)])
    @on_a_loop
    async def test_ranges_may_cross_chunk_borders(
        self, open_store: OpenFiles, tmp_path: Path, border: int
    ) -> None:
        async with opened(open_store, tmp_path) as store:
            await put(store, "file-1", LARGE)
            for start in (border - 1, border, border + 1):
                for end in (start, start + 1, border + 1, 2 * border, None):
                    assert brief(await read(store, "file-1", start, end)) == brief(LARGE[start:end])

    @pytest.mark.parametrize("before", [None, b"older"])
    @on_a_loop
    async def test_an_aborted_upload_leaves_nothing(
        self, open_store: OpenFiles, tmp_path: Path, before: bytes | None
    ) -> None:
        """An older file with the same id stays."""
        async with opened(open_store, tmp_path) as store:
            if before is not None:
                await put(store, "file-1", before)
            for chunks in (breaking(b"half"), breaking(LARGE), breaking()):
                with pytest.raises(BrokenError):
                    await store.put(chunks, lambda size: record_of("file-1", size))
            with pytest.raises(BrokenError):
                await store.put(stream(LARGE), undescribed)
            assert ids(await store.list(limit=10)) == ([] if before is None else ["file-1"])
            expected = KeyError if before is None else before
            assert brief(await outcome(read(store, "file-1"))) == brief(expected)

    @pytest.mark.parametrize("rounds", [0, 1, 2, 5, 10, 20, 50])
    @on_a_loop
    async def test_a_cancelled_upload_is_complete_or_absent(
        self, open_store: OpenFiles, tmp_path: Path, rounds: int
    ) -> None:
        async with opened(open_store, tmp_path) as store:
            task = asyncio.create_task(put(store, "file-1", LARGE))
            for _ in range(rounds):
                await asyncio.sleep(0.0005)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            listed = ids(await store.list(limit=10))
            assert brief(await outcome(read(store, "file-1"))) == brief(LARGE if listed else KeyError)
            await put(store, "file-1", b"another")
            assert await read(store, "file-1") == b"another"

    @on_a_loop
    async def test_unfinished_uploads_leave_no_bytes_behind(
        self, open_store: OpenFiles, tmp_path: Path
    ) -> None:
        """Soon after an upload was cancelled or has failed, the folder has its old size again."""
        async with opened(open_store, tmp_path) as store:
            await put(store, "file-1")
            for rounds in range(0, 20, 4):
                task = asyncio.create_task(put(store, "file-2", LARGE))
                await asyncio.sleep(0.001 * rounds)
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
                    await store.delete("file-2")
            with pytest.raises(BrokenError):
                await store.put(breaking(LARGE), lambda size: record_of("file-3", size))
            for _ in range(50):
                if folder_bytes(tmp_path) < MIB:
                    break
                await asyncio.sleep(0.1)
            if "file-2" in ids(await store.list(limit=9)):  # cancelled after the last byte
                await store.delete("file-2")
        assert folder_bytes(tmp_path) < MIB

    @on_a_loop
    async def test_no_call_holds_up_the_event_loop(self, open_store: OpenFiles, tmp_path: Path) -> None:
        chunks = [LARGE[start : start + 2**16] for start in range(0, len(LARGE), 2**16)]
        async with opened(open_store, tmp_path) as store:

            async def use() -> None:
                await store.put(stream(*chunks), lambda size: record_of("file-1", size))
                assert [piece async for piece in store.read("file-1")]
                await store.get("file-1")
                await store.list(limit=10)
                await store.expired(1.0)
                await store.delete("file-1")

            await assert_loop_stays_free(use)

    @pytest.mark.usefixtures("lasting")
    @on_a_loop
    async def test_a_file_is_never_in_memory_whole(self, open_store: OpenFiles, tmp_path: Path) -> None:
        """Writing and reading a file of 48 MiB takes less than 16 MiB."""

        async def upload() -> AsyncIterator[bytes]:
            for number in range(48):
                yield bytes([number]) * MIB

        async with opened(open_store, tmp_path) as store:
            with peak_memory() as peaks:
                await store.put(upload(), lambda size: record_of("file-1", size))
            with peak_memory() as read_peaks:
                async for piece in store.read("file-1"):
                    assert len(piece) <= MIB
            assert max(*peaks, *read_peaks) < 16 * MIB

    @pytest.mark.parametrize("id", STRANGE_IDS, ids=ascii)
    @on_a_loop
    async def test_an_unknown_id_raises_key_error(
        self, open_store: OpenFiles, tmp_path: Path, id: str
    ) -> None:
        async with opened(open_store, tmp_path) as store:
            await put(store, "file-1")
            assert await outcome(store.get(id)) is KeyError
            assert await outcome(store.delete(id)) is KeyError
            assert await outcome(read(store, id)) is KeyError
            assert await read(store, "file-1") == b"data"

    @on_a_loop
    async def test_an_upload_replaces_the_file_with_its_id(
        self, open_store: OpenFiles, tmp_path: Path
    ) -> None:
        async with opened(open_store, tmp_path) as store:
            await put(store, "file-1", b"a long old one")
            for data in (b"new", b"newer and longer"):
                record = await put(store, "file-1", data, filename="new", purpose="user_data", space="parts")
                assert await store.get("file-1") == record
                assert await read(store, "file-1") == data
                assert await store.list(limit=10) == []
                assert ids(await store.list(space="parts", limit=10)) == ["file-1"]

    @pytest.mark.parametrize("change", ["delete", "replace"])
    @on_a_loop
    async def test_open_reads_survive_deletion_and_replacement(
        self, open_store: OpenFiles, tmp_path: Path, change: str
    ) -> None:
        async with opened(open_store, tmp_path) as store:
            await put(store, "file-1", LARGE)
            reading = aiter(store.read("file-1"))
            found = await anext(reading)
            if change == "delete":
                await store.delete("file-1")
                assert await outcome(read(store, "file-1")) is KeyError
            else:
                await put(store, "file-1", b"\0" * len(LARGE))
            await put(store, "file-2", b"\1" * len(LARGE))  # may reuse the space of the old file
            async for piece in reading:
                found += piece
            assert brief(found) == brief(LARGE)

    @on_a_loop
    async def test_concurrent_readers_see_complete_files(self, open_store: OpenFiles, tmp_path: Path) -> None:
        versions = [bytes([number]) * (MIB + number) for number in range(8)]
        whole = [brief(data) for data in versions]
        async with opened(open_store, tmp_path) as store:
            await put(store, "file-x", versions[0])

            async def work(number: int) -> None:
                await put(store, f"file-{number}", versions[number])
                await put(store, "file-x", versions[number])
                assert brief(await read(store, "file-x")) in whole
                assert brief(await read(store, f"file-{number}")) == whole[number]
                await store.delete(f"file-{number}")

            await asyncio.gather(*map(work, range(8)))
            assert ids(await store.list(limit=99)) == ["file-x"]
            data = await read(store, "file-x")
            assert brief(data) in whole
            assert (await store.get("file-x")).bytes == len(data)

    @pytest.mark.usefixtures("lasting")
    @on_a_loop
    async def test_files_survive_reopening(self, open_store: OpenFiles, tmp_path: Path) -> None:
        async with opened(open_store, tmp_path) as store:
            for number in range(4):
                await put(store, f"file-{number}", b"old")
            record = await put(store, "file-1", LARGE, filename="\ud800 \0 ü", expires_at=5)
            await store.delete("file-2")
            with pytest.raises(BrokenError):
                await store.put(breaking(LARGE), lambda size: record_of("file-3", size))
        async with opened(open_store, tmp_path) as store:
            assert ids(await store.list(limit=9)) == ["file-3", "file-1", "file-0"]
            assert await store.get("file-1") == record
            assert brief(await read(store, "file-1")) == brief(LARGE)
            assert await read(store, "file-3") == b"old"
            assert await outcome(read(store, "file-2")) is KeyError

    @given(operations=OPERATIONS)
    @drawn
    @on_a_loop
    async def test_it_behaves_like_the_model(
        self,
        open_store: OpenFiles,
        survives_reopening: bool,
        tmp_path: Path,
        operations: Sequence[Operation],
    ) -> None:
        """Any sequence of operations and reopenings gives the results of a store made of a dictionary."""
        model = FileModel()
        await assert_same_results(
            open_store, tmp_path, StoreAdapter, model, operations, reopening=survives_reopening
        )
