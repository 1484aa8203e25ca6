"""The names by which clients call the model and its adapters."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmfw.api.text.model_names import MAX_LISTED, ModelNames, check_adapter_names
from llmfw.core.base.config import EngineConfig
from llmfw.core.base.control import AdapterInfo
from llmfw.core.base.errors import ConfigError, ModelNotFoundError


def ready(name: str) -> AdapterInfo:
    return AdapterInfo(name, f"/{name}", 1, state="ready", digest=name)


@pytest.mark.parametrize("name", ["demo", "models/demo"])
def test_adapters_cannot_have_the_model_s_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name would mean the model, so that no request could ask for the adapter."""
    monkeypatch.chdir(tmp_path)
    Path("models/demo").mkdir(parents=True)
    config = EngineConfig(model="models/demo", adapters=("red=x", f"{name}=y"))
    with pytest.raises(ConfigError, match=f"the name '{name}', which is the model's"):
        check_adapter_names(config, "demo")
    check_adapter_names(EngineConfig(model="models/demo", adapters=("red=x",)), "demo")


def test_errors_list_few_of_many_adapters() -> None:
    names = ModelNames("demo", "demo", [ready(f"a{i:03}") for i in range(100)])
    with pytest.raises(ModelNotFoundError) as caught:
        names.adapter_of("red")
    assert str(caught.value).endswith(f"'a018' and {101 - MAX_LISTED} more")


@pytest.mark.parametrize("name", ["__proto__", "base", "a/b", "é漢🙂", "base:red", "a b", "constructor"])
def test_odd_names_are_names(name: str) -> None:
    names = ModelNames("base model", "base model", [ready(name)])
    assert names.adapter_of(name) == names.adapter_of(f"base model:{name}") == name
    assert name in names
