"""Which model adapter is chosen, and that a faulty one is found and named when a model is loaded."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ComponentError, ConfigError, ModelError, UnknownComponentError
from llmfw.core.interfaces.model_adapter import Attend, ModelAdapter
from llmfw.core.model.models import LoadedModel, load_model
from llmfw.core.plugin.registry import Entry, Registry

from ....models.checkpoint import save_checkpoint
from ....models.tiny_config import tiny_config


class Good(ModelAdapter):
    """Adapts GPT-Neo, whose layers have windows by turns and no scale."""

    model_types = ("gpt_neo",)
    scaling: float | None = 1.0
    calls = 1

    def window(self, module: Any) -> int | None:
        return module.config.window_size if module.attention_type == "local" else None

    def adapt(self, model: nn.Module, attend: Attend) -> None:
        for module in model.modules():
            if hasattr(module, "_attn"):
                self.replace(module, attend)

    def replace(self, module: Any, attend: Attend) -> None:
        module.layer_idx = module.layer_id

        def attn(query: Any, key: Any, value: Any, mask: Any) -> Any:
            for _ in range(self.calls):
                output = attend(
                    module, query, key, value, None, scaling=self.scaling, sliding_window=self.window(module)
                )
            return output.transpose(1, 2), None

        module._attn = attn


class Other(Good):
    pass


class ForOthers(Good):
    model_types = ("llama",)


class Scales(Good):
    scaling = None


class CallsTwice(Good):
    calls = 2


class ForgetsWindows(Good):
    def window(self, module: Any) -> int | None:
        return None


class MistakesWindows(Good):
    def window(self, module: Any) -> int | None:
        found = super().window(module)
        return None if found is None else found + 1


class LeavesALayer(Good):
    def replace(self, module: Any, attend: Attend) -> None:
        if module.layer_id != 2:
            super().replace(module, attend)


class AdaptsNothing(Good):
    def adapt(self, model: nn.Module, attend: Attend) -> None:
        pass


class Raises(Good):
    def adapt(self, model: nn.Module, attend: Attend) -> None:
        raise ZeroDivisionError("oh\nno")


class ReturnsACount(Good):
    def adapt(self, model: nn.Module, attend: Attend) -> None:
        super().adapt(model, attend)
        return 4  # type: ignore[return-value]


class RenamesWeights(Good):
    def adapt(self, model: nn.Module, attend: Attend) -> None:
        super().adapt(model, attend)
        model.get_submodule("transformer.h.0.ln_1").weight = None  # type: ignore[assignment]


class ChangesValues(Good):
    def adapt(self, model: nn.Module, attend: Attend) -> None:
        super().adapt(model, attend)
        model.get_submodule("transformer.h.0.attn.attention.v_proj").weight.data.mul_(1.1)  # type: ignore[operator, union-attr]


class RaisesLater(Good):
    def replace(self, module: Any, attend: Attend) -> None:
        module._attn = lambda *args: 1 / 0


class NamesNoTypes(Good):
    model_types = ()


class NamesTextAsTypes(Good):
    model_types = "gpt_neo"  # type: ignore[assignment]


class Refuses(Good):
    @classmethod
    def unsupported(cls, config: Any) -> str | None:
        return f"its windows have {config.window_size} tokens"


class RefusesWithoutReason(Good):
    @classmethod
    def unsupported(cls, config: Any) -> str | None:
        return True  # type: ignore[return-value]


class CannotTell(Good):
    @classmethod
    def unsupported(cls, config: Any) -> str | None:
        raise KeyError("window")


def entry(kind: type[ModelAdapter], rank: int = 0, plugin: str = "p", needs: tuple[str, ...] = ()) -> Entry:
    path = f"{kind.__module__}:{kind.__name__}"
    return Entry("model_adapter", kind.__name__, path, plugin, "d", "1", needs=needs, rank=rank)


@pytest.fixture(scope="module")
def gpt_neo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_checkpoint(tiny_config("gpt_neo"), tmp_path_factory.mktemp("gpt_neo"))


def load(folder: Path, setting: str, *entries: Entry) -> LoadedModel:
    config = EngineConfig(model=str(folder), dtype="float32", model_adapter=setting)
    return load_model(config, torch.device("cpu"), Registry(entries))


def chosen(caplog: pytest.LogCaptureFixture) -> str:
    [line] = [text for text in caplog.messages if text.startswith("Model adapter: ")]
    return line.removeprefix("Model adapter: ")


@pytest.mark.parametrize(
    ("setting", "expected"), [("auto", "p/Good"), ("Other", "p/Other"), ("p/Other", "p/Other")]
)
def test_the_largest_rank_or_the_setting_decides(
    gpt_neo: Path, setting: str, expected: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    load(gpt_neo, setting, entry(Other, -10), entry(Good), entry(ForOthers, 5))
    assert chosen(caplog) == expected


def test_two_adapters_of_one_rank_are_refused(gpt_neo: Path) -> None:
    with pytest.raises(ConfigError, match=r"type gpt_neo: a/Good and b/Other; choose one by --model-adapter"):
        load(gpt_neo, "auto", entry(Good, plugin="a"), entry(Other, plugin="b"))


def test_auto_passes_over_unusable_adapters(gpt_neo: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An adapter that refuses the model's config is passed over, too, if another one does not."""
    lost = Entry("model_adapter", "lost", "no.where:At", "p", "d", "1", rank=3)
    caplog.set_level(logging.INFO)
    load(
        gpt_neo,
        "auto",
        *(entry(Raises, 4, needs=("no_such_module",)), lost, entry(NamesNoTypes, 2)),
        *(entry(NamesTextAsTypes, 2), entry(Refuses, 1), entry(Good)),
    )
    assert chosen(caplog) == "p/Good"
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [text.split(":")[0] for text in warnings] == [
        "Model adapter p/lost is passed over",
        "Model adapter p/NamesNoTypes is passed over",
        "Model adapter p/NamesTextAsTypes is passed over",
    ]


def test_without_an_adapter_the_model_is_refused(gpt_neo: Path) -> None:
    for setting, entries in (("none", [entry(Good)]), ("auto", [entry(ForOthers)])):
        with pytest.raises(ModelError, match=r"does not use transformers' attention interface"):
            load(gpt_neo, setting, *entries)


def test_a_refusal_names_the_adapter(gpt_neo: Path) -> None:
    expected = (
        r"gpt_neo cannot be served: its windows have 24 tokens \(model adapter 'Refuses' of plugin 'p'\)"
    )
    for setting in ("auto", "Refuses"):
        with pytest.raises(ModelError, match=expected):
            load(gpt_neo, setting, entry(Refuses))


def test_an_adapter_for_other_types_is_refused(gpt_neo: Path) -> None:
    with pytest.raises(ConfigError, match=r"of the types llama, and this model is of the type gpt_neo"):
        load(gpt_neo, "ForOthers", entry(ForOthers))
    with pytest.raises(UnknownComponentError, match=r"unknown model adapter 'Missing'"):
        load(gpt_neo, "Missing", entry(Good))


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (Scales, "its logits differ from those of transformers by "),
        (ForgetsWindows, "its logits differ from those of transformers by "),
        (MistakesWindows, "its logits differ from those of transformers by "),
        (ChangesValues, "its logits differ from those of transformers by "),
        (CallsTwice, "layer 0 computes attention more than once"),
        (LeavesALayer, "no ordinary attention in layer 2 of 4"),
        (AdaptsNothing, "its layers do not call transformers' attention interface"),
        (Raises, "failed in adapt(): ZeroDivisionError: oh no"),
        (ReturnsACount, "failed in adapt(): returned 4 in place of None"),
        (RenamesWeights, "failed in adapt(): changed the weights of the model, or their names"),
        (RaisesLater, "ZeroDivisionError: division by zero"),
        (RefusesWithoutReason, "failed in unsupported(): returned True in place of a reason or None"),
        (CannotTell, "failed in unsupported(): KeyError: 'window'"),
    ],
)
def test_a_faulty_adapter_is_named(gpt_neo: Path, kind: type[ModelAdapter], reason: str) -> None:
    with pytest.raises(ComponentError) as caught:
        load(gpt_neo, "auto", entry(kind))
    assert f"model adapter {kind.__name__!r} of plugin 'p'" in str(caught.value)
    assert reason in str(caught.value)
    assert "choose another --model-adapter, or none" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_layers_without_an_adapter_still_need_the_step(tmp_path: Path) -> None:
    folder = save_checkpoint(tiny_config("stablelm"), tmp_path)
    with pytest.raises(ModelError, match=r"its layers do not pass keyword arguments on to attention"):
        load(folder, "none")
