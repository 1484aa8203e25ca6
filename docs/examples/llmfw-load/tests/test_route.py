"""What `GET /load` answers, without a server."""

import pytest
from litestar import Litestar
from litestar.datastructures import State
from litestar.testing import TestClient
from llmfw_load.route import load

from llmfw.core import EngineStats

STATS = EngineStats(
    num_running=15,
    num_waiting=243,
    num_deferrable_running=12,
    num_deferrable_waiting=240,
    num_used_tokens=410,
    num_cached_tokens=300,
    num_total_tokens=1000,
    num_generated_tokens=90412,
)


class Engine:
    """What the route needs of an engine's client."""

    async def stats(self):
        return STATS


@pytest.fixture
def client():
    with TestClient(Litestar([load], state=State({"client": Engine()}))) as client:
        yield client


def test_it_reports_the_load_of_the_engine(client):
    assert client.get("/load").json() == {
        "running": 3,
        "waiting": 3,
        "batch_running": 12,
        "batch_waiting": 240,
        "kv_in_use": 0.41,
        "generated_tokens": 90412,
    }


@pytest.mark.parametrize(("most", "status"), [("3", 200), ("2", 503), ("-1", 400), ("few", 400)])
def test_too_many_waiting_requests_give_503(client, most, status):
    reply = client.get("/load", params={"max_waiting": most})
    assert reply.status_code == status
    if status != 400:
        assert reply.json()["waiting"] == 3
