"""Weight loaders that each break one promise. Run by test_kits.py; pytest does not collect it by itself."""

from __future__ import annotations

import contextlib
import mmap
import pickle
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from llmfw.core import ModelError, StoredTensor, WeightLoader
from llmfw.core.testing import WeightLoaderTests

from ...doubles.raw_weights import INDEX, RawWeights


class Broken(RawWeights):
    """Reads the made-up format of the tests."""


class RecognizesAnything(Broken):
    @classmethod
    def recognizes(cls, folder: Path) -> bool:
        return True


class WantsItsFolderName(Broken):
    @classmethod
    def recognizes(cls, folder: Path) -> bool:
        return folder.suffix == ".raw"


class RecognizesByContents(Broken):
    @classmethod
    def recognizes(cls, folder: Path) -> bool:
        return any([b"part-0.raw" in file.read_bytes() for file in folder.iterdir()])  # noqa: C419 - reads all


class SkipsScalars(Broken):
    def tensors(self) -> Any:
        return ((name, each) for name, each in super().tensors() if each.shape)


class ListsFloat32(Broken):
    def tensors(self) -> Any:
        return ((name, StoredTensor("float32", each.shape)) for name, each in super().tensors())


class RepeatsNames(Broken):
    def tensors(self) -> Any:
        first = next(iter(super().tensors()))
        return [*super().tensors(), first]


class ReplacesNaN(Broken):
    def read(self, name: str) -> torch.Tensor:
        return super().read(name).nan_to_num()


class ReadsInOrder(Broken):
    """Reads a stream, and gives the next tensor whatever is asked for."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._names = [name for name, _ in self.tensors()] if (self.folder / INDEX).is_file() else []

    def read(self, name: str) -> torch.Tensor:
        found = next(each for each in self._names if self.index[each]["shape"] == self.index[name]["shape"])
        self._names.remove(found)
        return super().read(found).to(getattr(torch, self.index[name]["dtype"]))


class LeavesALock(Broken):
    def read(self, name: str) -> torch.Tensor:
        (self.folder / "model.lock").touch()
        return super().read(name)


class CachesByName(Broken):
    cache: ClassVar[dict[str, torch.Tensor]] = {}

    def read(self, name: str) -> torch.Tensor:
        found = super().read(name)
        return self.cache.setdefault(f"{name} {found.dtype} {found.shape}", found).clone()


class ReadsToList(Broken):
    def tensors(self) -> Any:
        for name, each in super().tensors():
            self.read(name)
            yield name, each


class KeepsTensors(Broken):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._kept: list[torch.Tensor] = []

    def read(self, name: str) -> torch.Tensor:
        self._kept.append(super().read(name))
        return self._kept[-1]


class MapsForWriting(Broken):
    def read(self, name: str) -> torch.Tensor:
        about, found = self.index[name], super().read(name)
        if about["start"] % 4 or not found.numel():
            return found
        file = self.folder / about["file"]
        mapped = torch.from_file(str(file), shared=True, size=file.stat().st_size, dtype=torch.uint8)
        end = about["start"] + found.numel() * found.element_size()
        return mapped[about["start"] : end].view(found.dtype).reshape(found.shape)


class ReusesOneBuffer(Broken):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._buffer = torch.empty(4 * 2**20, dtype=torch.uint8)

    def read(self, name: str) -> torch.Tensor:
        found = super().read(name)
        size = found.numel() * found.element_size()
        return self._buffer[:size].view(found.dtype).reshape(found.shape).copy_(found)


class ZeroesOnClose(Broken):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._given: list[torch.Tensor] = []

    def read(self, name: str) -> torch.Tensor:
        found = super().read(name)
        if found.numel() < 2**16:
            self._given.append(found)
        return found

    def close(self) -> None:
        for each in self._given:
            each.zero_()


class NamesTheIndexOnly(Broken):
    def files(self) -> list[str]:
        return [INDEX]


class NamesNothingThatChanges(Broken):
    def files(self) -> list[str]:
        return ["config.json"]


class NamesThePartsOnly(Broken):
    def files(self) -> list[str]:
        return [name for name in super().files() if name != INDEX]


class PadsShortFiles(Broken):
    def read(self, name: str) -> torch.Tensor:
        try:
            return super().read(name)
        except ModelError:
            about = self.index[name]
            return torch.zeros(about["shape"], dtype=getattr(torch, about["dtype"]))


class LeaksErrors(Broken):
    def read(self, name: str) -> torch.Tensor:
        try:
            return super().read(name)
        except ModelError as error:
            raise ValueError(str(error)) from error


class ReadsPickles(Broken):
    def read(self, name: str) -> torch.Tensor:
        try:
            return super().read(name)
        except ModelError:
            for file in self.folder.iterdir():
                with contextlib.suppress(Exception):
                    pickle.loads(file.read_bytes())
            raise

    def tensors(self) -> Any:
        try:
            yield from super().tensors()
        except ModelError:
            for file in self.folder.iterdir():
                with contextlib.suppress(Exception):
                    pickle.loads(file.read_bytes())
            raise


class WritesTwoLines(Broken):
    def read(self, name: str) -> torch.Tensor:
        try:
            return super().read(name)
        except ModelError as error:
            raise ModelError(f"{error}\n(see the log)") from error


class ListsAThousand(Broken):
    def tensors(self) -> Any:
        return list(super().tensors())[:1000]


class LeavesFilesOpen(Broken):
    opened: ClassVar[list[Any]] = []

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        if (self.folder / INDEX).is_file():
            self.opened.append((self.folder / INDEX).open())


class LeavesFilesMapped(Broken):
    """Keeps its mapping for as long as the loader itself is in memory."""

    def read(self, name: str) -> torch.Tensor:
        with (self.folder / INDEX).open("rb") as file:
            self._mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return super().read(name)


class FollowsNames(Broken):
    """Reads whatever file the index names."""

    def tensors(self) -> Any:
        return [
            (name, StoredTensor(each["dtype"], tuple(each["shape"]))) for name, each in self.index.items()
        ]


class RefusesRelativeNames(Broken):
    """Takes a name that starts at the root for one of the folder."""

    def tensors(self) -> Any:
        for name, each in self.index.items():
            if ".." in each["file"]:
                raise ModelError(f"{each['file']} is not in the folder")
            yield name, StoredTensor(each["dtype"], tuple(each["shape"]))


class RefusesLinks(Broken):
    def read(self, name: str) -> torch.Tensor:
        if (self.folder / self.index[name]["file"]).is_symlink():
            raise ModelError("a link is not read")
        return super().read(name)


class OfKind(WeightLoaderTests):
    kind: type[WeightLoader]

    @pytest.fixture
    def loader(self) -> type[WeightLoader]:
        return self.kind


def test_class(kind: type[WeightLoader]) -> Any:
    """Return a test class for a loader."""
    return type(f"Test{kind.__name__}", (OfKind,), {"kind": kind})


for _kind in Broken.__subclasses__():
    globals()[f"Test{_kind.__name__}"] = test_class(_kind)
