"""Which passes are applied, and that one which changes what the model says is found when it is loaded."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ComponentError, ConfigError, UnknownComponentError
from llmfw.core.interfaces.module_pass import ModulePass
from llmfw.core.model.models import LoadedModel, load_model
from llmfw.core.model.trial.packed import packed_logits
from llmfw.core.plugin.registry import Entry, Registry

from ...engine.generation.tiny_models import save_random_model

applied: list[str] = []


class Marks(ModulePass):
    @classmethod
    def unsupported(cls, device: str, dtype: torch.dtype) -> str | None:
        return None

    def apply(self, model: nn.Module) -> int:
        applied.append(type(self).__name__)
        return 1


class Idle(Marks):
    def apply(self, model: nn.Module) -> int:
        super().apply(model)
        return 0


class OnlyHalf(Marks):
    @classmethod
    def unsupported(cls, device: str, dtype: torch.dtype) -> str | None:
        return None if dtype == torch.float16 else f"it is for float16, not for {dtype}"


class Breaks(Marks):
    def apply(self, model: nn.Module) -> int:
        torch.nn.init.ones_(model.get_submodule("model.layers.0.mlp.down_proj").weight)
        return 1


class Raises(Marks):
    def apply(self, model: nn.Module) -> int:
        raise ZeroDivisionError("oh")


class CountsNothing(Marks):
    def apply(self, model: nn.Module) -> int:
        return None  # type: ignore[return-value]


class RaisesHalfway(Marks):
    def apply(self, model: nn.Module) -> int:
        super().apply(model)
        model.get_submodule("model.layers.0.mlp").down_proj = nn.Identity()
        raise NotImplementedError("the second half\nis missing")


class CannotRun(Marks):
    def apply(self, model: nn.Module) -> int:
        super().apply(model)
        model.get_submodule("model.layers.1.mlp").forward = lambda hidden: 1 / 0
        return 1


class HidesAttention(Marks):
    """Gives attention other tensors, in a way that the logits of tokens without a window do not show."""

    def apply(self, model: nn.Module) -> int:
        for module in model.modules():
            if hasattr(module, "scaling"):
                module.scaling *= 1.5
        return 1


def entry(kind: type[ModulePass], rank: int = 0, needs: tuple[str, ...] = ()) -> Entry:
    path = f"{kind.__module__}:{kind.__name__}"
    return Entry("module_pass", kind.__name__, path, "p", "d", "1", needs=needs, rank=rank)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_model(tmp_path_factory.mktemp("llama"), "LlamaConfig", {"num_hidden_layers": 2})


def load(folder: Path, names: str, *entries: Entry) -> LoadedModel:
    applied.clear()
    config = EngineConfig(model=str(folder), dtype="float32", module_passes=names)
    return load_model(config, torch.device("cpu"), Registry(entries))


def test_auto_applies_usable_passes_by_rank(llama: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The log says why the others are not applied."""
    caplog.set_level(logging.DEBUG)
    lacking = Entry("module_pass", "lacking", "no.where:At", "p", "d", "1", needs=("no_such_module",))
    model = load(llama, "auto", entry(Marks, 1), entry(Idle, 5), entry(OnlyHalf), lacking)
    assert applied == ["Idle", "Marks"]
    assert model.module_passes == ("Marks",)
    [line] = [text for text in caplog.messages if text.startswith("Module passes that do not apply: ")]
    assert "lacking (needs no_such_module)" in line
    assert "OnlyHalf (it is for float16, not for torch.float32)" in line
    assert "Marks: modules=1, logits moved by 0.0e+00" in caplog.text


def test_passes_for_other_devices_are_not_logged(llama: Path, caplog: pytest.LogCaptureFixture) -> None:
    """There is nothing that the reader could do about them; --log-level debug shows them."""
    elsewhere = replace(entry(Raises, needs=("no_such_module",)), devices=("cuda",))
    caplog.set_level(logging.INFO)
    assert load(llama, "auto", elsewhere).module_passes == ()
    assert "Raises" not in caplog.text
    caplog.set_level(logging.DEBUG)
    load(llama, "auto", elsewhere)
    assert "Module passes for other devices than cpu: Raises (it is for cuda)" in caplog.messages


def test_named_passes_are_applied_by_rank(llama: Path) -> None:
    entries = (entry(Marks, 1), entry(Idle, 5), entry(Raises))
    load(llama, "Marks, Idle", *entries)
    assert applied == ["Idle", "Marks"]
    assert load(llama, "none", *entries).module_passes == ()
    assert applied == []


@pytest.mark.parametrize(
    ("names", "error", "said"),
    [
        ("OnlyHalf", ComponentError, "OnlyHalf.* cannot be applied: it is for float16"),
        ("Breaks", ComponentError, "after .*Breaks.* the model says something else .*--module-passes"),
        ("Raises", ComponentError, "Raises.* failed: ZeroDivisionError: oh; .*--module-passes"),
        (
            "HidesAttention",
            ComponentError,
            "after .*HidesAttention.* call attention in another way; .*--module",
        ),
        ("Marks,Marks", ConfigError, "'Marks' is named twice"),
        ("Mark", UnknownComponentError, "unknown module pass 'Mark'.*Did you mean 'Marks'"),
    ],
)
def test_an_inapplicable_named_pass_is_refused(
    llama: Path, names: str, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        load(llama, names, *(entry(kind) for kind in (OnlyHalf, Breaks, Raises, HidesAttention, Marks)))


@pytest.mark.long
@pytest.mark.parametrize("kind", [Raises, RaisesHalfway, CountsNothing, CannotRun, Breaks, HidesAttention])
def test_auto_skips_a_failing_pass(
    llama: Path, kind: type[ModulePass], caplog: pytest.LogCaptureFixture
) -> None:
    """The other passes are applied, and the model answers as if the broken one were not installed."""
    expected = packed_logits(load(llama, "none").module, 300)
    model = load(llama, "auto", entry(Marks, 3), entry(kind, 2))
    assert model.module_passes == ("Marks",)
    assert torch.equal(packed_logits(model.module, 300), expected)
    [said] = [record for record in caplog.records if "passed over" in record.message]
    assert f"Module pass {kind.__name__} is passed over: " in said.message
    assert "\n" not in said.message


def test_an_unchanged_model_is_not_loaded_again(llama: Path, caplog: pytest.LogCaptureFixture) -> None:
    load(llama, "auto", entry(Raises))
    assert "again" not in caplog.text
    load(llama, "auto", entry(RaisesHalfway))
    assert "Loading the model again, without module pass RaisesHalfway" in caplog.text
