"""Whose files, batches and responses a request sees, by the keys that there are."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from llmfw.api.access.key_table import ADMIN
from llmfw.api.access.keyring import Keyring
from llmfw.api.access.ownership import Ownership, warn_of_unowned
from llmfw.api.text.terms import key_name
from llmfw.core.base.config import ServerConfig
from llmfw.core.testing.batch_model import job
from llmfw.core.testing.file_model import put
from llmfw.plugins.store_memory.batches import MemoryBatches
from llmfw.plugins.store_memory.files import MemoryFiles

ALL = None
NONE: tuple[tuple[str, str], ...] = ()
ONE, NAMED = (("", "k"),), (("ann", "k"),)
TWO = (("ann", "k"), ("bob", "l"))


def visible(
    tenant: str, keys: tuple[tuple[str, str], ...], adopter: str | None = None
) -> frozenset[str] | None:
    config = ServerConfig(served_model_name="m", api_key=keys, admin_api_key="root")
    token = key_name.set(tenant)
    try:
        return Ownership(Keyring(config), adopter).visible()
    finally:
        key_name.reset(token)


@pytest.mark.parametrize(
    ("tenant", "keys", "adopter", "expected"),
    [
        ("", NONE, None, ALL),
        (ADMIN, TWO, None, ALL),
        (ADMIN, ONE, "ann", ALL),
        ("", ONE, None, {""}),
        ("ann", NAMED, None, {"ann", ""}),
        ("bob", NAMED, None, {"bob"}),  # whose key is gone, and whose batch still runs
        ("ann", TWO, None, {"ann"}),
        ("ann", TWO, "bob", {"ann"}),
        ("bob", TWO, "bob", {"bob", ""}),
        ("ann", NAMED, "bob", {"ann"}),
    ],
)
def test_a_request_sees_only_its_tenant_s_objects(
    tenant: str, keys: tuple[tuple[str, str], ...], adopter: str | None, expected: set[str] | None
) -> None:
    assert visible(tenant, keys, adopter) == expected


@pytest.mark.parametrize("kind", ["nothing", "file", "batch", "owned"])
def test_objects_without_a_tenant_log_a_warning(
    caplog: pytest.LogCaptureFixture, kind: str, tmp_path: Path
) -> None:
    async def warn() -> None:
        files, batches = MemoryFiles(None), MemoryBatches(None)
        if kind in ("file", "owned"):
            await put(files, "file-1", tenant="" if kind == "file" else "ann")
        if kind in ("batch", "owned"):
            await batches.create(job(tenant="" if kind == "batch" else "ann"))
        await warn_of_unowned(files, batches)

    with caplog.at_level(logging.WARNING):
        asyncio.run(warn())
    assert ("--adopt-unowned NAME" in caplog.text) is (kind in ("file", "batch"))


def test_only_several_tenants_leave_objects_unowned() -> None:
    def leaves(keys: Any, adopter: str | None = None) -> bool:
        return Ownership(Keyring(ServerConfig(served_model_name="m", api_key=keys)), adopter).leaves_unowned()

    assert [leaves(keys) for keys in (NONE, ONE, NAMED, TWO)] == [False, False, False, True]
    assert leaves(TWO, "ann") is False
