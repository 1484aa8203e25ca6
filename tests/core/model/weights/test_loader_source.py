"""A format of a plugin is served as the same weights in safetensors are, and refused for the same reasons."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from llmfw.core import StoredTensor
from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ComponentError, ConfigError, ModelError
from llmfw.core.engine.process.build import build_engine
from llmfw.core.model.models import LoadedModel, load_model
from llmfw.core.model.trial.packed import packed_logits
from llmfw.core.model.weights.kv_scales import NAME, read_scales
from llmfw.core.plugin.plugins import load_plugins
from llmfw.core.plugin.registry import Entry, Registry

from ....doubles.raw_weights import INDEX, RawWeights, save
from ...engine.embedding.encoders import embed, save_encoder
from ...engine.generation import running
from ...engine.generation.tiny_models import SERVABLE, save_random_model

CPU = torch.device("cpu")
FAMILIES = ["llama", "mixtral", "gemma 2 (soft cap)", "deepseek v3 (value heads of another size)"]


def registry(component: type[Any] = RawWeights, name: str = "raw") -> Registry:
    path = f"{component.__module__}:{component.__qualname__}"
    schemes = load_plugins().registry.entries("quantization_scheme")
    return Registry([Entry("weight_loader", name, path, "tests", "llmfw-tests", "1.0"), *schemes])


def load(folder: Path, loader: type[Any] = RawWeights, **settings: Any) -> LoadedModel:
    settings = {"module_passes": "none", "dtype": "float32"} | settings
    return load_model(EngineConfig(model=str(folder), device="cpu", **settings), CPU, registry(loader))


def refusal(folder: Path, loader: type[Any] = RawWeights, **settings: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        load(folder, loader, weight_loader="raw", **settings)
    text = str(caught.value)
    assert "\n" not in text
    assert "'raw' of plugin 'tests'" in text or "its weights do not fit its config" in text
    return text


def convert(folder: Path, change: Callable[[dict[str, torch.Tensor]], Any] = dict) -> Path:
    """Bring a folder's weights into the made-up format, with a change."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink(missing_ok=True)
    save(folder, change(tensors))
    return folder


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    return convert(save_random_model(tmp_path, *SERVABLE["llama"]))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_logits_equal_those_from_safetensors(family: str, dtype: str, tmp_path: Path) -> None:
    """Experts are stacked, weights tied and dtypes converted alike."""
    folder = save_random_model(tmp_path, *SERVABLE[family])
    expected = packed_logits(load(folder, dtype=dtype).module, 300)
    found = load(convert(folder), dtype=dtype)
    assert torch.equal(packed_logits(found.module, 300), expected)


@pytest.mark.parametrize("settings", [{"quantization": "int8"}, {"module_passes": "auto"}])
def test_weights_can_be_changed_after_loading(llama: Path, settings: dict[str, str]) -> None:
    assert load(llama, **settings).layers


def test_an_engine_generates_from_its_weights(tmp_path: Path) -> None:
    folder = save_random_model(tmp_path, *SERVABLE["llama"])
    outcomes = []
    for each in (folder, None):
        config = EngineConfig(
            model=str(each or convert(folder)), device="cpu", dtype="float32", grammar="trie"
        )
        entries = [*running.registry()._entries, *registry().entries("weight_loader")]
        engine = build_engine(config, Registry(entries))
        request = running.Request(id="a", prompt=[5, 6, 7], sampling=running.GREEDY)
        outcomes.append(running.generate(engine, [request])[0].token_ids)
    assert outcomes[0] == outcomes[1] != []
    [use] = [use for use in engine.stats().component_uses if use.kind == "weight_loader"]
    assert (use.name, use.plugin, use.failures) == ("raw", "tests", 0)
    assert use.calls > 20


def test_encoders_read_its_weights(tmp_path: Path) -> None:
    folder = Path(save_encoder(tmp_path))
    vectors = []
    for each in (folder, None):
        config = EngineConfig(model=str(each or convert(folder)), device="cpu", dtype="float32", task="embed")
        engine: Any = build_engine(config, registry())
        vectors.append(embed(engine, [[5, 6, 7, 8], [9, 3]]))
    assert torch.equal(*vectors)
    assert [use.name for use in engine.stats().component_uses] == ["raw"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            lambda tensors: {n: t for n, t in tensors.items() if "down_proj" not in n},
            "missing: model.layers.0.mlp.down_proj.weight (and in 2 other layers)",
        ),
        (lambda tensors: tensors | {"model.layers.1.extra": torch.ones(4)}, "surplus: model.layers.1.extra"),
        (
            lambda tensors: tensors | {"model.norm.weight": torch.ones(3)},
            "mismatched: model.norm.weight is [3], the config says [64]",
        ),
        (
            lambda tensors: tensors | {"model.norm.weight": torch.ones(64, dtype=torch.int8)},
            "mismatched: model.norm.weight is stored as int8",
        ),
        (
            lambda tensors: tensors | {"model.norm.weight": torch.ones(64, dtype=torch.complex64)},
            "mismatched: model.norm.weight is stored as complex64",
        ),
        (
            lambda tensors: {n: t for n, t in tensors.items() if "layers.2" not in n},
            "the config has 3 layers, the files 2",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:Casting complex")  # of torch, before the refusal
def test_tensors_that_do_not_fit_are_refused(
    tmp_path: Path, change: Callable[[dict[str, torch.Tensor]], Any], expected: str
) -> None:
    folder = convert(save_random_model(tmp_path, *SERVABLE["llama"]), change)
    assert expected in refusal(folder)


def test_nan_is_refused_by_name(tmp_path: Path) -> None:
    folder = save_random_model(tmp_path, *SERVABLE["llama"])
    convert(folder, lambda tensors: tensors | {"model.norm.weight": torch.full((64,), torch.nan)})
    with pytest.raises(ModelError, match=r"hold NaN or infinity: model\.norm\.weight"):
        load(folder)


def test_missing_experts_are_refused(tmp_path: Path) -> None:
    folder = save_random_model(tmp_path, *SERVABLE["mixtral"])
    convert(
        folder,
        lambda tensors: {n: t for n, t in tensors.items() if "layers.0" not in n or "experts.0" not in n},
    )
    with pytest.raises(ModelError, match=r"missing: model\.layers\.0.*experts\.0"):
        load(folder)


def test_damaged_files_are_named(llama: Path) -> None:
    file = llama / "part-1.raw"
    file.write_bytes(file.read_bytes()[:-9])
    assert f"{file} ends within" in refusal(llama)
    file.unlink()
    assert f"{file} cannot be read: No such file or directory; save it again" in refusal(llama)
    (llama / INDEX).write_text("{")
    assert f"{llama / INDEX} cannot be read: " in refusal(llama)


def test_files_outside_the_folder_are_refused(llama: Path) -> None:
    index = json.loads((llama / INDEX).read_text())
    index["model.norm.weight"]["file"] = "../part-0.raw"
    (llama / INDEX).write_text(json.dumps(index))
    assert "names ../part-0.raw, which is not in the folder" in refusal(llama)


def test_scales_of_keys_are_read(tmp_path: Path) -> None:
    folder = save_random_model(tmp_path, *SERVABLE["llama"])
    scales = {"model.layers.1.self_attn.k_scale": torch.tensor(0.25)}
    weights = load(convert(folder, lambda tensors: tensors | scales)).weights
    assert weights is not None
    assert read_scales(weights.matching(NAME)) == {1: (0.25, 1.0)}


def test_other_weights_are_another_version(llama: Path) -> None:
    weights = load(llama).weights
    assert weights is not None
    before = weights.version()
    assert weights.version() == before != ""
    content = bytearray((llama / "part-1.raw").read_bytes())
    content[-1] ^= 1
    (llama / "part-1.raw").write_bytes(content)
    assert weights.version() != before


def test_memory_holds_one_tensor_ahead(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors are read in the calling thread, and each is the model's own before the next is read."""
    import threading
    import weakref

    alive: list[Any] = []
    threads = set()
    read = RawWeights.read

    def noted(self: RawWeights, name: str) -> torch.Tensor:
        threads.add(threading.current_thread())
        found = read(self, name)
        assert sum(each() is not None for each in alive) <= 1
        alive.append(weakref.ref(found))
        return found

    monkeypatch.setattr(RawWeights, "read", noted)
    load(llama, dtype="bfloat16")  # so that the model has copies
    assert threads == {threading.current_thread()}
    assert len(alive) > 20


class Faulty(RawWeights):
    """Reads the made-up format, with a fault."""


class RaisesInInit(Faulty):
    def __init__(self, *arguments: Any) -> None:
        raise SystemExit("no\nlicense")


class RefusesOptions(Faulty):
    def __init__(self, *arguments: Any) -> None:
        raise ConfigError("key is of another model;\ngive its own")


class RaisesInTensors(Faulty):
    def tensors(self) -> Any:
        raise KeyError("a")


class RaisesInTheMiddle(Faulty):
    def tensors(self) -> Any:
        yield next(iter(super().tensors()))
        raise BaseException("panic\x1b[31m")  # noqa: TRY002


class ListsTwice(Faulty):
    def tensors(self) -> Any:
        yield from super().tensors()
        yield from super().tensors()


class ListsNothing(Faulty):
    def tensors(self) -> Any:
        return ()


class ListsNames(Faulty):
    def tensors(self) -> Any:
        return list(self.index)


class ListsWrongDtypes(Faulty):
    def tensors(self) -> Any:
        return [(name, StoredTensor("fp32", each.shape)) for name, each in super().tensors()]


class ListsWrongShapes(Faulty):
    def tensors(self) -> Any:
        return [(name, StoredTensor(each.dtype, (-1,))) for name, each in super().tensors()]


class ReturnsNone(Faulty):
    def tensors(self) -> Any:
        return None


class ReadsArrays(Faulty):
    def read(self, name: str) -> Any:
        return super().read(name).numpy()


class ReadsOtherDtypes(Faulty):
    def read(self, name: str) -> Any:
        return super().read(name).double()


class ReadsOtherShapes(Faulty):
    def read(self, name: str) -> Any:
        return super().read(name)[:1]


class ReadsMeta(Faulty):
    def read(self, name: str) -> Any:
        return super().read(name).to("meta")


class ReadsSparse(Faulty):
    def read(self, name: str) -> Any:
        return super().read(name).to_sparse()


class RaisesInRead(Faulty):
    def read(self, name: str) -> Any:
        raise KeyboardInterrupt if name == "model.norm.weight" else ZeroDivisionError("x")


class FailsToClose(Faulty):
    def close(self) -> None:
        raise OSError("cannot close")


class IsUnsure(Faulty):
    @classmethod
    def recognizes(cls, folder: Path) -> Any:
        return "perhaps"


FAULTS = {
    RaisesInInit: "failed in __init__(): SystemExit: no license",
    RefusesOptions: "cannot be loaded: key is of another model; give its own (weight loader 'raw' of plugin 'tests')",
    RaisesInTensors: "failed in tensors(): KeyError: 'a'",
    RaisesInTheMiddle: r"failed in tensors(): BaseException: panic\x1b[31m",
    ListsTwice: "failed in tensors(): gave 'lm_head.weight' twice",
    ListsNothing: "failed in tensors(): gave no tensors; a folder without weights is a ModelError",
    ListsNames: "in place of a name and a StoredTensor",
    ListsWrongDtypes: "gave the dtype 'fp32' for 'lm_head.weight'; use a name of torch",
    ListsWrongShapes: "gave the shape (-1,) for 'lm_head.weight'; it must be a tuple of sizes",
    ReturnsNone: "failed in tensors(): TypeError: 'NoneType' object is not iterable",
    ReadsArrays: "(ndarray) in place of a tensor",
    ReadsOtherDtypes: "torch.float64; tensors() gave [300, 64] torch.float32",
    ReadsOtherShapes: "returned [1, 64] torch.float32; tensors() gave [300, 64] torch.float32",
    ReadsMeta: "it must be dense and on the CPU",
    ReadsSparse: "it must be dense and on the CPU",
    RaisesInRead: "failed in read('lm_head.weight'): ZeroDivisionError: x",
    FailsToClose: "failed in close(): OSError: cannot close",
    IsUnsure: "failed in recognizes(): returned 'perhaps' (str) in place of True or False",
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_faults_are_one_line(llama: Path, fault: type[Any]) -> None:
    assert FAULTS[fault] in refusal(llama, fault)


def test_every_fault_is_listed() -> None:
    assert set(FAULTS) == set(Faulty.__subclasses__())


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["../x"], "returned '../x', which is not a name of a file in the folder"),
        ("a", "returned 'a' in place of a list of names"),
        ([], "returned no names"),
        (["absent"], "absent', which is not a file"),
    ],
)
def test_wrong_names_of_files_are_refused(
    llama: Path, files: Any, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = load(llama).weights
    assert weights is not None
    monkeypatch.setattr(RawWeights, "files", lambda self: files)
    with pytest.raises(ComponentError) as caught:
        weights.version()
    assert expected in str(caught.value)


def test_options_reach_the_loader(llama: Path) -> None:
    text = refusal(llama, options={"weight_loader.raw.prefix": "odd."})
    assert "surplus: odd.lm_head.weight" in text


class ListsBeforeItReads(RawWeights):
    """Knows where tensors are only after it has listed them, as an object of its own may rely on."""

    has_listed = False

    def tensors(self) -> Any:
        self.has_listed = True
        return super().tensors()

    def read(self, name: str) -> torch.Tensor:
        assert self.has_listed
        return super().read(name)


def test_one_object_lists_and_reads(llama: Path) -> None:
    assert load(llama, ListsBeforeItReads).layers
