"""Conformance tests of the listings of a file store, which `FileStoreTests` includes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from llmfw.core.interfaces.file_store import FileStore

from .file_model import ids, put
from .stores import StoreTests, assert_complete, on_a_loop, opened

OpenFiles = Callable[[Path], FileStore]

MANY = 150


class FileListingTests(StoreTests[FileStore]):
    """Conformance tests of the methods `list` and `expired`."""

    @on_a_loop
    async def test_listings_are_ordered_by_id(self, open_store: OpenFiles, tmp_path: Path) -> None:
        async with opened(open_store, tmp_path) as store:
            for number in (3, 1, 4, 5, 2):
                await put(store, f"file-{number}")
            newest = [f"file-{number}" for number in (5, 4, 3, 2, 1)]
            assert ids(await store.list(limit=10)) == newest
            assert ids(await store.list(limit=5)) == newest
            assert ids(await store.list(limit=2, newest_first=False)) == newest[:-3:-1]
            assert ids(await store.list(limit=2, after="file-4")) == newest[2:4]
            assert ids(await store.list(limit=9, after="file-4", newest_first=False)) == ["file-5"]
            assert ids(await store.list(limit=9, after="file-1")) == []

    @on_a_loop
    async def test_cursors_stay_valid_while_files_change(self, open_store: OpenFiles, tmp_path: Path) -> None:
        """A page continues after its cursor even if files were deleted or added meanwhile."""
        async with opened(open_store, tmp_path) as store:
            for number in range(10, 20):
                await put(store, f"file-{number}")
            seen = [*ids(await store.list(limit=4))]
            for gone in (seen[-1], seen[0], "file-14"):
                await store.delete(gone)
            await put(store, "file-20")
            while page := ids(await store.list(limit=4, after=seen[-1])):
                seen += page
            assert seen == [f"file-{number}" for number in range(19, 9, -1) if number != 14]

    @on_a_loop
    async def test_a_listing_has_one_space_and_purpose(self, open_store: OpenFiles, tmp_path: Path) -> None:
        async with opened(open_store, tmp_path) as store:
            for number, (space, purpose) in enumerate(
                [("files", "batch"), ("files", "user_data"), ("parts", "batch"), ("files", "batch")]
            ):
                await put(store, f"file-{number}", space=space, purpose=purpose)
            assert ids(await store.list(limit=9)) == ["file-3", "file-1", "file-0"]
            assert ids(await store.list(limit=9, purpose="batch")) == ["file-3", "file-0"]
            assert ids(await store.list(limit=1, purpose="batch", after="file-3")) == ["file-0"]
            assert ids(await store.list(limit=9, space="parts")) == ["file-2"]
            assert ids(await store.list(limit=9, space="parts", purpose="user_data")) == []
            assert ids(await store.list(limit=9, space="elsewhere")) == []

    @on_a_loop
    async def test_a_listing_has_only_the_named_tenants(self, open_store: OpenFiles, tmp_path: Path) -> None:
        async with opened(open_store, tmp_path) as store:
            for number, tenant in enumerate(("ann", "bob", "", "ann", "bob")):
                await put(store, f"file-{number}", tenant=tenant)
            await put(store, "file-5", tenant="ann", space="parts")
            assert len(await store.list(limit=9)) == 5
            assert ids(await store.list(limit=9, tenants=["ann"])) == ["file-3", "file-0"]
            assert ids(await store.list(limit=9, tenants={"ann", ""})) == ["file-3", "file-2", "file-0"]
            assert ids(await store.list(limit=9, tenants=("",), newest_first=False)) == ["file-2"]
            assert ids(await store.list(limit=1, tenants=["ann"], after="file-3")) == ["file-0"]
            assert ids(await store.list(limit=9, tenants=["eve"])) == []
            assert ids(await store.list(limit=9, tenants=[])) == []
            await put(store, "file-0", tenant="bob")  # a replacement may belong to another tenant
            assert ids(await store.list(limit=9, tenants=["bob"])) == ["file-4", "file-1", "file-0"]

    @on_a_loop
    async def test_expired_files_are_listed_and_not_removed(
        self, open_store: OpenFiles, tmp_path: Path
    ) -> None:
        """A file expires at the time `expires_at`, in seconds since the epoch."""
        async with opened(open_store, tmp_path) as store:
            await put(store, "file-1", expires_at=100)
            await put(store, "file-2", expires_at=200, space="parts")
            await put(store, "file-3")
            found = [sorted(ids(await store.expired(now))) for now in (99.9, 100, 199.9, 200.5, 1e12)]
            assert found == [[], ["file-1"], ["file-1"], ["file-1", "file-2"], ["file-1", "file-2"]]
            assert len(await store.list(limit=9)) == 2

    @on_a_loop
    async def test_long_listings_are_complete(self, open_store: OpenFiles, tmp_path: Path) -> None:
        """A list has all of 150 files, if `limit` allows that many."""
        async with opened(open_store, tmp_path) as store:
            names = [f"file-{number:03}" for number in range(MANY)]
            for name in names:
                await put(store, name, tenant="ann", expires_at=100)
            assert_complete(ids(await store.list(limit=MANY)), names[::-1])
            assert_complete(ids(await store.list(limit=10 * MANY, tenants=["ann"])), names[::-1])
            assert_complete(ids(await store.list(limit=MANY, newest_first=False, after=names[9])), names[10:])
            assert_complete(sorted(ids(await store.expired(200))), names)
