"""Calls a weight loader, checks its results, and reports its faults in one line that names the plugin.

A loader comes from a plugin. Without correct weights, no model can be served. So every fault stops the
server's start.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from llmfw.core.base.about import DISTRIBUTION
from llmfw.core.base.errors import ComponentError, ConfigError, ModelError
from llmfw.core.interfaces.weight_loader import StoredTensor, WeightLoader
from llmfw.core.plugin.calls import ComponentCalls
from llmfw.core.plugin.containment import raise_if_process_ends
from llmfw.core.plugin.one_line import one_line
from llmfw.core.plugin.registry import Entry
from llmfw.core.plugin.returned import WrongReturnError
from llmfw.core.plugin.torch_state import keeping_torch_state

from ..files.shards import is_inside
from ..files.stored_dtypes import torch_dtype

logger = logging.getLogger(__name__)


class LoaderGuard:
    """Runs code of a loader, records its time, and converts its exceptions.

    Args:
        entry: the loader.
        calls: record of the loader's calls.
        path: the model's folder.
    """

    def __init__(self, entry: Entry, calls: ComponentCalls, path: str) -> None:
        self.entry = entry
        self.path = path
        self._calls = calls

    @contextlib.contextmanager
    def asking(self, method: str) -> Iterator[None]:
        """Run a block that calls one method of the loader.

        Raises:
            ModelError: the loader raised ModelError or ConfigError, because the files or its options are
                wrong; the message names the model, and the plugin unless the loader is llmfw's own.
            ComponentError: the loader raised something else, or returned something wrong.
        """
        begun = perf_counter()
        try:
            with keeping_torch_state(lambda: f"calling {method} of {self.entry}"):
                yield
        except ConfigError as error:
            raise ModelError(self._told(one_line(str(error)))) from error
        except BaseException as error:  # a plugin may raise anything; it is reported
            raise_if_process_ends(error)
            self._calls.failures += 1
            logger.debug("%s failed", self.entry, exc_info=True)
            what = "" if isinstance(error, WrongReturnError) else f"{type(error).__name__}: "
            raise ComponentError(
                f"model {self.path!r} cannot be loaded: {self.entry} failed in {method}: {what}{one_line(str(error))}"
            ) from error
        finally:
            self._calls.seconds += perf_counter() - begun
            self._calls.count += 1

    def _told(self, text: str) -> str:
        start = f"model {self.path!r}"
        told = text if text.startswith(start) else f"{start} cannot be loaded: {text}"
        return told if self.entry.distribution == DISTRIBUTION else f"{told} ({self.entry.spoken})"


def recognizes(component: type[WeightLoader], guard: LoaderGuard) -> bool:
    """Return whether a loader finds its format in the model's folder.

    Raises:
        ModelError, ComponentError: as in `LoaderGuard.asking`.
    """
    with guard.asking("recognizes()"):
        found: Any = component.recognizes(Path(guard.path))
        if type(found) is not bool:
            raise WrongReturnError(
                f"returned {found!r:.80} ({type(found).__name__}) in place of True or False"
            )
    return found


class IsolatedLoader:
    """A weight loader that was built for a folder. All methods raise the errors of `LoaderGuard.asking`.

    Args:
        loader: the loader.
        guard: runs its code.
    """

    def __init__(self, loader: WeightLoader, guard: LoaderGuard) -> None:
        self._loader = loader
        self._guard = guard

    def stored(self) -> dict[str, StoredTensor]:
        """Return the formats of the stored tensors, by name."""
        found: dict[str, StoredTensor] = {}
        with self._guard.asking("tensors()"):
            for pair in self._loader.tensors():
                name, tensor = _checked_pair(pair)
                if name in found:
                    raise WrongReturnError(f"gave {name!r:.80} twice")
                found[name] = tensor
            if not found and self._loader.transformers_format is None:
                raise WrongReturnError("gave no tensors; a folder without weights is a ModelError")
        return found

    def read(self, name: str, expected: StoredTensor) -> torch.Tensor:
        """Return a tensor.

        Args:
            expected: the tensor's format, as `stored` returned it.
        """
        with self._guard.asking(f"read({name!r:.200})"):
            found: Any = self._loader.read(name)
            check_tensor(found, expected)
            tensor: torch.Tensor = found.detach().contiguous()
        return tensor

    def files(self) -> list[Path]:
        """Return the paths of the files that the weights depend on, sorted."""
        with self._guard.asking("files()"):
            names: Any = self._loader.files()
            if isinstance(names, str | bytes):
                raise WrongReturnError(f"returned {names!r:.80} in place of a list of names")
            names = list(names)
            for name in names:
                if not is_inside(name):
                    raise WrongReturnError(
                        f"returned {name!r:.80}, which is not a name of a file in the folder"
                    )
            paths = sorted(Path(self._guard.path) / name for name in set(names))
            if not paths:
                raise WrongReturnError("returned no names; the weights depend on at least one file")
            if missing := [path for path in paths if not path.is_file()]:
                raise WrongReturnError(f"returned {str(missing[0])!r:.200}, which is not a file")
        return paths

    def close(self) -> None:
        """Close the loader."""
        with self._guard.asking("close()"):
            self._loader.close()


def check_tensor(found: object, expected: StoredTensor, given: str = "tensors() gave") -> None:
    """Raise WrongReturnError unless a component has returned a tensor of the format that it gave before.

    Args:
        given: words for messages that state the source of the format.
    """
    if not isinstance(found, torch.Tensor):
        raise WrongReturnError(f"returned {found!r:.80} ({type(found).__name__}) in place of a tensor")
    if found.layout != torch.strided or found.device.type != "cpu":
        raise WrongReturnError(
            f"returned a tensor of the layout {found.layout} on {found.device}; it must be dense and on the CPU"
        )
    dtype = torch_dtype(expected.dtype)
    if (found.dtype, tuple(found.shape)) != (dtype, tuple(expected.shape)):
        raise WrongReturnError(
            f"returned {list(found.shape)} {found.dtype}; {given} {list(expected.shape)} {dtype}"
        )


def _checked_pair(pair: Any) -> tuple[str, StoredTensor]:
    """Return a name and a format that a loader gave; raise WrongReturnError for other values."""
    if type(pair) is not tuple or len(pair) != 2:
        raise WrongReturnError(f"gave {pair!r:.80} in place of a name and a StoredTensor")
    name, tensor = pair
    if type(name) is not str or not name:
        raise WrongReturnError(f"gave {name!r:.80} as a name; it must be text")
    if not isinstance(tensor, StoredTensor):
        raise WrongReturnError(f"gave {tensor!r:.80} for {name!r:.80} in place of a StoredTensor")
    if not isinstance(tensor.dtype, str) or torch_dtype(tensor.dtype) is None:
        raise WrongReturnError(f"gave the dtype {tensor.dtype!r:.80} for {name!r:.80}; use a name of torch")
    shape: Any = tensor.shape
    if not isinstance(shape, tuple | list) or not all(type(size) is int and size >= 0 for size in shape):
        raise WrongReturnError(f"gave the shape {shape!r:.80} for {name!r:.80}; it must be a tuple of sizes")
    return name, StoredTensor(tensor.dtype, tuple(shape))
