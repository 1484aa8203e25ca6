"""The FlashInfer backend with a stand-in for FlashInfer, against attention written out in float64."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from llmfw.core.base.errors import ComponentError
from llmfw.core.interfaces.attention import AttentionBackend
from llmfw.core.interfaces.kv_storage import KVStorage
from llmfw.core.testing.attention import RAGGED, AttentionBackendTests
from llmfw.core.testing.attention_case import AttentionCase, make_layer
from llmfw.plugins.attention_flashinfer.backend import FlashInferAttention

from . import fake_flashinfer

Backend = type[FlashInferAttention]


class TestFlashInferAttention(AttentionBackendTests):
    @pytest.fixture
    def backend(self, flashinfer: Backend) -> type[AttentionBackend]:
        return flashinfer

    @pytest.fixture
    def head_dim(self) -> int:
        return 64


def called(name: str) -> list[dict[str, Any]]:
    """Return the arguments of each call of a function of FlashInfer, so far."""
    return [given for called, given in fake_flashinfer.calls if called.endswith(name)]


def single_tokens(*lengths: int, page_size: int = 1, **changes: Any) -> AttentionCase:
    """Return a step in which each sequence has one new token."""
    spec = make_layer(**({"head_dim": 64} | changes))
    return AttentionCase(spec, [(length - 1, 1) for length in lengths], page_size)


@pytest.mark.parametrize(
    ("option", "heads", "expected"),
    [
        ("auto", (6, 2), False),
        ("auto", (8, 2), True),
        ("auto", (10, 2), True),
        ("on", (2, 2), True),
        ("off", (8, 2), False),
    ],
)
def test_tensor_cores_decode_large_head_ratios(
    flashinfer: Backend, option: Any, heads: tuple[int, int], expected: bool
) -> None:
    """From four query heads a key head on, with `auto`."""
    case = single_tokens(5, num_heads=heads[0], num_kv_heads=heads[1])
    built = flashinfer([case.spec], case.storage, flashinfer.Options(decode_tensor_cores=option))
    built.plan(case.batch)
    torch.testing.assert_close(case.forward(built).double(), case.expected(), atol=1e-5, rtol=1e-5)
    assert [given["use_tensor_cores"] for given in called("DecodeWithPagedKVCacheWrapper.__init__")] == [
        expected
    ]


def test_five_query_heads_need_tensor_cores(flashinfer: Backend) -> None:
    case = single_tokens(5, num_heads=5, num_kv_heads=1)
    with pytest.raises(ComponentError, match=r"decode_tensor_cores=off: 5 query heads .* 1, 2, 3, 4 or 8"):
        flashinfer([case.spec], case.storage, flashinfer.Options(decode_tensor_cores="off"))


@pytest.mark.parametrize(("capability", "allowed"), [((9, 0), True), ((8, 0), False), ((10, 0), False)])
def test_fa3_needs_compute_capability_9(
    flashinfer: Backend, monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], allowed: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    case, options = single_tokens(5), flashinfer.Options(prefill_backend="fa3")
    if allowed:
        flashinfer([case.spec], case.storage, options)
        assert [given["backend"] for given in called("PrefillWithPagedKVCacheWrapper.__init__")] == ["fa3"]
    else:
        with pytest.raises(ComponentError, match=f"fa3 needs compute capability 9.0.*{capability[0]}.0"):
            flashinfer([case.spec], case.storage, options)


@pytest.mark.parametrize("is_static", [False, True])
def test_fp8_plans_have_each_layer_s_scales(flashinfer: Backend, is_static: bool) -> None:
    e4m3, scales = torch.float8_e4m3fn, (0.25, 3.0)
    case = AttentionCase(make_layer(head_dim=64), [(3, 1), (9, 1)], 1, stored_as=e4m3, scales=scales)
    built = case.build(flashinfer)
    fake_flashinfer.calls.clear()
    built.plan(replace(case.batch, is_static=is_static))
    torch.testing.assert_close(case.forward(built).double(), case.expected(), atol=1e-5, rtol=1e-5)
    plans = [given for name, given in fake_flashinfer.calls if name.endswith("plan")]
    assert {(given["q_data_type"], given["kv_data_type"]) for given in plans} == {(torch.float32, e4m3)}
    assert {(given["k_scale"], given["v_scale"]) for given in called("run")} == {scales}


def test_fp8_prompts_do_not_use_fa3(flashinfer: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    case = AttentionCase(make_layer(head_dim=64), [(0, 9)], 1, stored_as=torch.float8_e4m3fn)
    with pytest.raises(ComponentError, match="fa3 has no kernel for keys and values in fp8_e4m3; fa2 has"):
        flashinfer([case.spec], case.storage, flashinfer.Options(prefill_backend="fa3"))


@pytest.mark.parametrize(
    ("capability", "changes", "expected"),
    [
        ((9, 0), {}, "fa3"),
        ((8, 0), {}, "fa2"),
        ((10, 0), {}, "fa2"),
        ((9, 0), {"sliding_window": 5}, "fa2"),
        ((9, 0), {"softcap": 30.0}, "fa2"),
        ((9, 0), {"head_dim": 64}, "fa2"),
    ],
)
def test_fa3_is_taken_where_it_was_measured(
    flashinfer: Backend,
    monkeypatch: pytest.MonkeyPatch,
    capability: tuple[int, int],
    changes: dict[str, Any],
    expected: str,
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    case = AttentionCase(make_layer(**({"head_dim": 128} | changes)), RAGGED, 1)
    case.check(flashinfer, 1e-5)
    assert [given["backend"] for given in called("PrefillWithPagedKVCacheWrapper.__init__")] == [expected]


@pytest.mark.parametrize("option", ["auto", "fa3"])
def test_without_fa3_kernels_auto_uses_fa2(
    flashinfer: Backend, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, option: Any
) -> None:
    """For all kinds of layers, also if it is the second one whose kernel is missing."""
    whole = fake_flashinfer.BatchPrefillWithPagedKVCacheWrapper.plan

    def plan(self: Any, *args: Any, **kwargs: Any) -> None:
        wrappers = called("PrefillWithPagedKVCacheWrapper.__init__")
        if wrappers[-1]["backend"] == "fa3" and len(wrappers) > 1:
            raise RuntimeError("JIT compilation is disabled")
        whole(self, *args, **kwargs)

    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(fake_flashinfer.BatchPrefillWithPagedKVCacheWrapper, "plan", plan)
    specs = [make_layer(index=i, head_dim=128, scale=0.1 * (i + 1)) for i in range(2)]
    storage = KVStorage(specs, 4, 1, torch.float32, torch.device("cpu"))
    if option == "fa3":
        with pytest.raises(ComponentError, match="JIT compilation is disabled"):
            flashinfer(specs, storage, flashinfer.Options(prefill_backend="fa3"))
        return
    with caplog.at_level("INFO"):
        flashinfer(specs, storage, flashinfer.Options())
    assert "kernels fa3 for prompts cannot be loaded, so fa2 is used: RuntimeError: JIT" in caplog.text
    used = [given["backend"] for given in called("PrefillWithPagedKVCacheWrapper.__init__")]
    assert used == ["fa3", "fa3", "fa2", "fa2"]


@pytest.mark.parametrize(("part", "other"), [("decode", "Prefill"), ("prefill", "Decode")])
def test_one_part_needs_none_of_the_others_kernels(flashinfer: Backend, part: Any, other: str) -> None:
    lengths = [(3, 1), (9, 1)] if part == "decode" else [(0, 5), (4, 2)]
    case = AttentionCase(make_layer(head_dim=64), lengths, 1)
    options = flashinfer.Options() if part == "decode" else flashinfer.Options(decode_tensor_cores="off")
    built = flashinfer.for_part(part, [case.spec], case.storage, options)
    built.plan(case.batch)
    torch.testing.assert_close(case.forward(built).double(), case.expected(), atol=1e-5, rtol=1e-5)
    assert not [name for name, _ in fake_flashinfer.calls if other in name]


@pytest.mark.parametrize("is_static", [False, True])
def test_layers_of_one_kind_share_a_plan(flashinfer: Backend, is_static: bool) -> None:
    lengths = [(length, 1) for length in (0, 4, 30)] if is_static else RAGGED
    window = {"sliding_window": 5}
    specs = [make_layer(index=i, head_dim=64, **(window if i % 2 else {})) for i in range(4)]
    cases = [AttentionCase(spec, lengths, 1) for spec in specs]
    storage = KVStorage([], cases[0].storage.num_pages, 1, torch.float32, torch.device("cpu"))
    storage.keys = [case.storage.keys[0] for case in cases]
    storage.values = [case.storage.values[0] for case in cases]
    built = flashinfer(specs, storage, flashinfer.Options())
    fake_flashinfer.calls.clear()
    built.plan(replace(cases[0].batch, is_static=is_static))
    plans = [name for name, _ in fake_flashinfer.calls if name.endswith("plan")]
    assert len(plans) == (2 if is_static else 4)
    for case in cases:
        torch.testing.assert_close(case.forward(built).double(), case.expected(), atol=1e-5, rtol=1e-5)


def test_queries_may_be_strided(flashinfer: Backend) -> None:
    case = AttentionCase(make_layer(head_dim=64), RAGGED, 1)
    for name in ("query", "key", "value"):
        setattr(case, name, getattr(case, name).transpose(0, 1).contiguous().transpose(0, 1))
    case.check(flashinfer, 1e-5)


def test_a_shared_prefix_is_read_in_place(flashinfer: Backend) -> None:
    case = single_tokens(7, 9)
    table = case.batch.page_table
    first, second = case.batch.rows.tolist()
    table[second, :6] = table[first, :6]
    for stored in (case.storage.keys[0], case.storage.values[0]):
        assert len(stored) == case.storage.num_pages
    for i in (1, 2):  # keys and values
        case._sequences[1][i][:6] = case._sequences[0][i][:6]
    case.check(flashinfer, 1e-5)


def test_the_plan_s_pinned_memory_is_synchronized(flashinfer: Backend) -> None:
    case = single_tokens(3, 4)
    built = flashinfer([case.spec], case.storage, flashinfer.Options())
    fake_flashinfer.calls.clear()
    for is_static in (False, True, True):
        built.plan(replace(case.batch, is_static=is_static))
    order = [name for name, _ in fake_flashinfer.calls]
    kept = [
        "plan" if name.endswith("plan") else name
        for name in order
        if "__" not in name and "reset" not in name
    ]
    assert kept == ["wait", "plan", "record"] * 3


@pytest.mark.parametrize("page_size", [1, 4])
def test_steps_of_different_sizes_may_alternate(flashinfer: Backend, page_size: int) -> None:
    cases = [single_tokens(*lengths, page_size=page_size) for lengths in ((3, 90, 7, 1), (5,), (2, 30))]
    built = cases[0].build(flashinfer)
    for case in cases:
        built.storage = case.storage
        built.plan(case.batch)
        torch.testing.assert_close(case.forward(built).double(), case.expected(), atol=1e-5, rtol=1e-5)
    assert len(called("fast_decode_plan")) == (3 if page_size == 1 else 0)


def test_unavailable_kernels_are_reported_at_start(
    flashinfer: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise RuntimeError("the required module\nis not found in the JIT cache")

    monkeypatch.setattr(fake_flashinfer.BatchDecodeWithPagedKVCacheWrapper, "plan", fail)
    case = single_tokens(3)
    with pytest.raises(
        ComponentError, match=r"kernels cannot be loaded: RuntimeError: the required module is not"
    ):
        flashinfer([case.spec], case.storage, flashinfer.Options())


def test_a_missing_kernel_is_named(flashinfer: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        error = RuntimeError("compiling is disabled")
        error.spec = SimpleNamespace(name="batch_decode")  # type: ignore[attr-defined]
        raise error

    monkeypatch.setattr(fake_flashinfer.BatchDecodeWithPagedKVCacheWrapper, "plan", fail)
    case = single_tokens(3)
    with pytest.raises(ComponentError, match=r"RuntimeError: batch_decode: compiling is disabled"):
        flashinfer([case.spec], case.storage, flashinfer.Options())
