"""The promises of every batch store, and those of this one."""

import asyncio

import msgspec
import psycopg
import pytest
from llmfw_postgres.batches import MIGRATIONS, PostgresBatches
from llmfw_postgres.conformance import PostgresBatchesTests, schema_of, schemas
from llmfw_postgres.database import Database

from llmfw.core import BatchRecord, LineResult


@pytest.fixture
def open_batches(url):
    yield from schemas(PostgresBatches, PostgresBatches.Options(url=url))


class TestPostgresBatches(PostgresBatchesTests):
    @pytest.fixture
    def options(self, url):
        return PostgresBatches.Options(url=url)


JOB = BatchRecord(
    id="batch_1",
    endpoint="/v1/completions",
    input_file_id="file-1",
    completion_window="24h",
    status="in_progress",
    created_at=1,
    expires_at=2,
)


def together(open_batches, folder, check):
    """Run a check of several stores of one schema, as several servers have them."""

    async def run():
        stores = [open_batches(folder) for _ in range(3)]
        try:
            await stores[0].create(JOB)
            await check(*stores)
        finally:
            for store in stores:
                await store.close()

    asyncio.run(run())


def test_one_of_several_servers_leases_a_job(open_batches, tmp_path):
    async def check(*stores):
        for _ in range(10):
            got = await asyncio.gather(
                *(store.lease("batch_1", f"server {n}", 60) for n, store in enumerate(stores))
            )
            assert got.count(True) == 1
            assert await stores[0].lease("batch_1", f"server {got.index(True)}", 0)

    together(open_batches, tmp_path, check)


def test_a_lease_outlives_its_server(open_batches, tmp_path):
    async def check(one, two, three):
        assert await one.lease("batch_1", "a", 60)
        await one.close()
        assert not await two.lease("batch_1", "b", 60)
        assert await three.lease("batch_1", "a", 60)

    together(open_batches, tmp_path, check)


def test_one_of_several_concurrent_updates_succeeds(open_batches, tmp_path):
    async def check(*stores):
        changed = [BatchRecord(**{**to_dict(JOB), "status": f"state {n}"}) for n in range(12)]
        done = await asyncio.gather(
            *(stores[n % 3].update(record, expected="in_progress") for n, record in enumerate(changed))
        )
        assert done.count(True) == 1
        assert await stores[0].get("batch_1") == changed[done.index(True)]

    together(open_batches, tmp_path, check)


def test_concurrent_servers_count_each_line_once(open_batches, tmp_path):
    async def check(*stores):
        async def work(store):
            for start in range(1, 200, 10):  # all have the same lines
                lines = [LineResult(n, n % 10 == 0, b"%d" % n) for n in range(start, start + 10)]
                await store.results("batch_1").add(lines)

        await asyncio.gather(*map(work, stores))
        record = await stores[0].get("batch_1")
        assert (record.num_completed, record.num_failed) == (180, 20)

    together(open_batches, tmp_path, check)


def test_an_ended_job_accepts_no_results(open_batches, tmp_path):
    """Another server may have ended the job."""

    async def check(one, two, _):
        adding = [one.results("batch_1").add([LineResult(n, False, b"x")]) for n in range(1, 30)]
        ending = two.update(BatchRecord(**{**to_dict(JOB), "status": "completed"}), expected="in_progress")
        *added, ended = await asyncio.gather(*adding, ending, return_exceptions=True)
        assert ended is True
        assert (await one.get("batch_1")).num_completed == added.count(None)
        with pytest.raises(KeyError):
            await one.results("batch_1").done()

    together(open_batches, tmp_path, check)


def to_dict(record):
    return {name: getattr(record, name) for name in record.__struct_fields__}


def test_jobs_of_an_older_schema_keep_tenants(url, tmp_path):
    schema = schema_of(tmp_path)
    Database(url, schema, 1, "batches", MIGRATIONS[:1])
    jobs = [msgspec.structs.replace(JOB, id=f"batch_{tenant}", tenant=tenant) for tenant in ("ann", "")]

    async def check():
        store = PostgresBatches(None, PostgresBatches.Options(url=url, schema=schema))
        for tenant, job in zip(("ann", ""), jobs, strict=True):
            assert [*await store.list(tenants=[tenant], limit=9)] == [job]
        await store.close()

    with psycopg.connect(url, autocommit=True) as connection:
        try:
            for job in jobs:
                connection.execute(
                    f"insert into {schema}.batches (id, status, ended, record) values (%s, %s, false, %s)",
                    [job.id, job.status, msgspec.json.encode(job).decode()],
                )
            asyncio.run(check())
        finally:
            connection.execute(f"drop schema {schema} cascade")
