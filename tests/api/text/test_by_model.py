"""The objects that serve several models, by the model that a request names."""

from __future__ import annotations

import pytest

from llmfw.api.text.by_model import ByModel
from llmfw.api.text.model_names import ModelNames
from llmfw.core.base.control import AdapterInfo
from llmfw.core.base.errors import ModelNotFoundError


def two_models() -> tuple[ByModel[str], ModelNames, ModelNames]:
    adapters = [AdapterInfo("sql", "/sql", 1, state="ready", digest="sql")]
    one, two = ModelNames("one", "org/one"), ModelNames("two", "org/two", adapters)
    return ByModel([(one, "first"), (two, "second")]), one, two


async def no_search(name: str, tenant: str) -> None:
    """Find no adapter."""


@pytest.mark.parametrize(("model", "served"), [(None, "first"), ("one", "first"), ("two", "second")])
def test_requests_get_the_model_they_name(model: str | None, served: str) -> None:
    models, _, _ = two_models()
    assert models.of(model) == served


def test_adapters_lead_to_their_model() -> None:
    models, _, two = two_models()
    assert models.of("sql") == models.of("two:sql") == "second"
    assert models.names_of("sql") is two
    assert "sql" in models
    assert "one:sql" not in models


def test_adapters_of_other_models_are_refused() -> None:
    models, _, _ = two_models()
    with pytest.raises(ModelNotFoundError, match=r"no model 'one:sql'; this server has 'one', 'two', 'sql'$"):
        models.of("one:sql")


def test_unknown_names_go_where_adapters_are_searched() -> None:
    """The search decides whether there is such an adapter. Known names do not get there."""
    models, _, two = two_models()
    with pytest.raises(ModelNotFoundError, match="no model 'new'"):
        models.of("new")
    two.search = no_search
    assert (models.of("new"), models.of("one")) == ("second", "first")
    assert "new" not in models


def test_adapters_that_load_later_are_known() -> None:
    models, one, _ = two_models()
    one.update([AdapterInfo("late", "/late", 1, state="ready", digest="late")])
    assert models.of("late") == "first"


def test_mapped_objects_keep_names_and_order() -> None:
    models, one, _ = two_models()
    mapped = models.map(len)
    assert (list(mapped), len(mapped), mapped.first) == ([5, 6], 2, 5)
    assert mapped.served_names == ("one", "two")
    assert mapped.names_of(None) is one
