"""transformers, as far as an engine on one device needs it, in a fifth of the time.

Importing a model of transformers 5 reads the 2,500 files of all its models, three times, to know what is where; and
imports torch's compiler (for a few decorators), sharded tensors, and scipy (for losses of object detection). What
transformers asks of itself by a function is answered "not here" while it is imported; the rest is postponed until
somebody asks for it, as `torch.compile` does for the compiler. A version of transformers that does it in another way
takes its time again, and no more than that.

LLMFW_PLAIN_IMPORTS=1 leaves all imports as they are.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any

from .postponed import has_run, postpone, run

COMPILER = "torch._dynamo"
MASKS = f"{COMPILER}._trace_wrapped_higher_order_op"
UNUSED = ("scipy",)
"""What models need for losses alone."""


def postpone_index() -> None:
    """Have submodules of transformers imported without an index of all models. Makes no difference to anybody else."""
    if _is_plain():
        return
    with contextlib.suppress(PackageNotFoundError):
        postpone("transformers", has_index=True, __version__=version("transformers"))
        postpone("transformers.models", has_index=True)


def import_modeling() -> None:
    """Import torch, and what all models of transformers are made of.

    Only for a process that is the engine's own: in it, transformers finds no other process to share a model with, and
    has no losses of object detection.
    """
    postpone_index()
    is_first = not (_is_plain() or has_run("transformers"))
    if is_first:
        _postpone_compiler()
    with _one_device() if is_first else contextlib.nullcontext():
        import transformers.modeling_layers
        import transformers.models.auto.modeling_auto  # noqa: F401


def _is_plain() -> bool:
    return os.environ.get("LLMFW_PLAIN_IMPORTS", "0") not in ("", "0")


@contextlib.contextmanager
def _one_device() -> Iterator[None]:
    """Have transformers find that there is one device, and nothing that only losses need."""
    import torch.distributed
    import transformers.utils
    from transformers.utils import import_utils

    asked: Any = getattr(import_utils, "is_torch_distributed_available", None)
    if hasattr(asked, "cache_clear"):  # it remembers what it finds
        with _replaced(torch.distributed, is_available=_no):
            asked.cache_clear()
            asked()
    answers: dict[str, object] = {f"is_{name}_available": _no for name in UNUSED}
    answers["direct_transformers_import"] = lambda *_: sys.modules["transformers"]
    with _replaced(import_utils, **answers), _replaced(transformers.utils, **answers):
        yield


def _no() -> bool:
    return False


@contextlib.contextmanager
def _replaced(module: ModuleType, **others: object) -> Iterator[None]:
    """Have other functions in the place of those that a module has under these names, until the block ends."""
    before = {name: getattr(module, name) for name in others if hasattr(module, name)}
    for name in before:
        setattr(module, name, others[name])
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(module, name, function)


def _postpone_compiler() -> None:
    """Have torch's compiler imported when it is used, not for decorators that tell it what to leave alone."""
    import torch  # noqa: F401 - whose part it is

    allowed: list[Callable[..., Any]] = []
    is_there: list[Any] = []  # the compiler, once it has run

    def allow_in_graph(function: Callable[..., Any]) -> Callable[..., Any]:
        allowed.append(function)
        return function

    def assume_constant_result(function: Any) -> Any:
        function._dynamo_marked_constant = True
        return function

    def disable(function: Any = None, recursive: bool = True, **options: Any) -> Any:
        if function is None:
            return functools.partial(disable, recursive=recursive, **options)

        by_compiler: Any = None

        @functools.wraps(function)
        def disabled(*args: Any, **kwargs: Any) -> Any:
            nonlocal by_compiler
            if by_compiler is None and is_there:
                by_compiler = is_there[0].disable(function, recursive, **options)
            return (by_compiler or function)(*args, **kwargs)

        disabled._torchdynamo_disable = True  # type: ignore[attr-defined]
        return disabled

    def replay(compiler: Any) -> None:
        is_there.append(compiler)
        for function in allowed:
            compiler.allow_in_graph(function)

    postpone(
        COMPILER,
        then=replay,
        allow_in_graph=allow_in_graph,
        assume_constant_result=assume_constant_result,
        disable=disable,
    )
    if not has_run(COMPILER):
        postpone(MASKS, TransformGetItemToIndex=lambda: run(MASKS).TransformGetItemToIndex())
