"""Imports the modules of transformers that an engine on one device needs, in a fifth of the usual time.

When a model of transformers 5 is imported, transformers reads the 2,500 files of all models, three times, to
build an index. It also imports torch's compiler (for a few decorators), sharded tensors, and scipy (for
losses of object detection). During the import, this module makes transformers believe that scipy and
torch.distributed are missing. It postpones the index and the compiler until code uses them; for example,
`torch.compile` uses the compiler. If a version of transformers works differently, its import is slow again,
but still correct.

LLMFW_PLAIN_IMPORTS=1 leaves all imports as they are.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any

from .postponed import has_run, postpone, run

COMPILER = "torch._dynamo"
MASKS = f"{COMPILER}._trace_wrapped_higher_order_op"
UTILS = "transformers.utils"
UNUSED = ("scipy",)
"""Libraries that models need only for losses."""
_is_claimed = False


def postpone_index() -> None:
    """Postpone the index of all models that transformers builds on import.

    The index is built when code needs it. Importing submodules of transformers does not need it.
    """
    if _is_plain():
        return
    with contextlib.suppress(PackageNotFoundError):
        postpone("transformers", has_index=True, __version__=version("transformers"))
        postpone("transformers.models", has_index=True)


def import_templates() -> ModuleType:
    """Import transformers' functions for chat templates, and return their module.

    Postpones the package that contains these functions. This package imports a client of the hub, which takes
    most of the time.
    """
    postpone_index()
    if not _is_plain():
        postpone(UTILS, submodules=("logging", "import_utils"))
    return importlib.import_module(f"{UTILS}.chat_template_utils")


def import_modeling() -> None:
    """Import torch, and the modules that all models of transformers share.

    Call this only in the engine's own process. Afterwards, transformers cannot distribute a model over
    processes, and lacks the losses of object detection.
    """
    postpone_index()
    is_first = not (_is_plain() or has_run("transformers"))
    if is_first:
        _postpone_compiler()
    with _one_device() if is_first else contextlib.nullcontext():
        import transformers.modeling_layers
        import transformers.models.auto.modeling_auto  # noqa: F401


def claim_process() -> None:
    """Allow `import_processors` to leave out modules. Call this in a process that runs only llmfw's code and plugins."""
    global _is_claimed
    _is_claimed = True


def import_processors() -> None:
    """Import what processors of images need as `import_modeling` does, if `claim_process` was called; else, do nothing."""
    if _is_claimed:
        import_modeling()


def _is_plain() -> bool:
    return os.environ.get("LLMFW_PLAIN_IMPORTS", "0") not in ("", "0")


@contextlib.contextmanager
def _one_device() -> Iterator[None]:
    """Within the block, make transformers' checks report torch.distributed and `UNUSED` as missing."""
    import torch.distributed
    from transformers.utils import import_utils

    utils = run(UTILS)
    asked: Any = getattr(import_utils, "is_torch_distributed_available", None)
    if hasattr(asked, "cache_clear"):  # it caches its result
        with _replaced(torch.distributed, is_available=_no):
            asked.cache_clear()
            asked()
    answers: dict[str, object] = {f"is_{name}_available": _no for name in UNUSED}
    answers["direct_transformers_import"] = lambda *_: sys.modules["transformers"]
    with _replaced(import_utils, **answers), _replaced(utils, **answers):
        yield


def _no() -> bool:
    return False


@contextlib.contextmanager
def _replaced(module: ModuleType, **others: object) -> Iterator[None]:
    """Replace functions of a module, by name, until the block ends. Ignores names that the module lacks."""
    before = {name: getattr(module, name) for name in others if hasattr(module, name)}
    for name in before:
        setattr(module, name, others[name])
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(module, name, function)


def _postpone_compiler() -> None:
    """Postpone the import of torch's compiler until code uses it.

    Until then, small substitutes replace the decorators that mark functions for the compiler.
    """
    import torch  # noqa: F401 - the package of the compiler

    allowed: list[Callable[..., Any]] = []
    is_there: list[Any] = []  # the compiler's module, once it has run

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
