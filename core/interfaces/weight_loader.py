"""The interface of a weight loader, which reads a model's weights from files in a format of its own.

    folder   config.json, tokenizer.json     read by llmfw, as for any model
             weights.…                       read by the loader: `files`, `tensors`, `read`

    file     model.gguf                      one file with all of it: `describe` writes the folder's other files

A loader returns named tensors. llmfw loads them into transformers' model like a safetensors checkpoint: it
converts dtypes, stacks experts and ties weights, and it refuses a model whose tensors are missing, surplus or
of another shape than the config requires. So the tensors must have the names of a checkpoint that
transformers reads. A loader for a format with other names must rename its tensors.

A fault of a loader ends the start with one line that names the plugin. Importing this module does not import
torch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

import msgspec

from llmfw.core.base.errors import ModelError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Format of a stored tensor.

    Attributes:
        dtype: dtype, named as in torch ("bfloat16", "int8") or safetensors ("BF16", "I8").
        shape: size of each dimension.
    """

    dtype: str
    shape: tuple[int, ...]

    @property
    def is_integer(self) -> bool:
        """Whether the dtype is integer or boolean. If a weight has such a dtype, it holds quantized codes."""
        return self.dtype.upper().startswith(("I", "U", "BOOL"))


class WeightLoader(ABC):
    """Reads the weights of one model. Chosen by `--weight-loader NAME`, or by the files with `auto`.

    llmfw builds an object each time it reads weights, lists the tensors, reads those that the model needs,
    and closes the object. It does so in the thread that builds the engine, one call at a time.

    A method that finds the files damaged, incomplete or contradictory raises ModelError with one line that
    names the file and says what to do. Anything else that a method raises is the loader's own fault. A loader
    must not run code from the files, as unpickling does. It must not follow names in the files that lead out
    of the folder.

    Args:
        folder: the model's folder.
        options: the loader's own options, an instance of its `Options`.

    Attributes:
        folder, options: the constructor's arguments.
        transformers_format: format of the files if it is one that transformers reads itself. llmfw then
            checks the tensors that `tensors` lists, and lets transformers read the folder, because
            transformers maps the files into memory. None: llmfw calls `read`.
    """

    transformers_format: ClassVar[Literal["safetensors", "bin"] | None] = None

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options of the component, set by `-o weight_loader.NAME.key=value`. A loader with options overrides
        this."""

    def __init__(self, folder: Path, options: Options) -> None:
        self.folder = folder
        self.options = options

    @classmethod
    @abstractmethod
    def recognizes(cls, folder: Path) -> bool:
        """Return whether a model's folder has weights in this format.

        Called at each start with `auto`, for folders of any kind. It should look at the names of files, or at
        their first bytes. Damaged files of the format are recognized, too, so that `tensors` can say what is
        wrong.
        """

    @classmethod
    def describe(cls, file: Path, folder: Path) -> None:
        """Write the config and the tokenizer of a model that is one file, such as a GGUF file.

        llmfw asks the loader whose name is the suffix of the file: `gguf` for `model.gguf`. Write these files
        in the layout of transformers: config.json, which names an architecture, tokenizer.json,
        tokenizer_config.json, and, if needed, generation_config.json and chat_template.jinja. llmfw adds a
        link to the model's file, and keeps the folder for later starts.

        Called in the process that serves HTTP, which imports neither torch nor transformers: import them in a
        child process. The default refuses the file.

        Args:
            file: path of the file.
            folder: an empty folder.

        Raises:
            ModelError: the file is damaged, or the loader cannot describe it.
        """
        raise ModelError(
            f"model {str(file)!r} is a file; give the folder that holds config.json and the weights"
        )

    @abstractmethod
    def files(self) -> Sequence[str]:
        """Return the names of all files that the weights depend on, relative to the folder.

        llmfw computes the model's `weight_version` from samples of these files. Clients use it to notice
        changed weights.
        """

    @abstractmethod
    def tensors(self) -> Iterable[tuple[str, StoredTensor]]:
        """Yield the name and the format of each tensor, without reading its numbers.

        Raises:
            ModelError: the files are damaged or incomplete.
        """

    @abstractmethod
    def read(self, name: str) -> torch.Tensor:
        """Return one of the tensors, on the CPU, with the dtype and shape that `tensors` gave.

        The tensor may become the model's own weight, which is changed in place: its memory must be writable,
        must not be shared with another tensor, must not be written back to the file, and must stay valid
        after `close`. To bound memory, a loader must not keep a tensor that it has returned.

        Called after `tensors`, at most once for each name, in an order that the model decides. Values may be
        NaN; llmfw refuses such a model itself.

        Raises:
            ModelError: the files are damaged or incomplete.
        """

    def close(self) -> None:  # noqa: B027 - a loader may have nothing to release
        """Release files and memory. Called once, also after an error."""


__all__ = ["StoredTensor", "WeightLoader"]
