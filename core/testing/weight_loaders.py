"""Conformance tests of the `WeightLoader` interface: loaders read back exactly the saved tensors."""

from __future__ import annotations

import contextlib
import gc
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from llmfw.core.base.errors import ComponentError, ConfigError, ModelError
from llmfw.core.interfaces.weight_loader import StoredTensor, WeightLoader
from llmfw.core.model.files.stored_dtypes import torch_dtype
from llmfw.core.model.weights.isolated_loader import IsolatedLoader, LoaderGuard, recognizes
from llmfw.core.model.weights.weight_version import version_of
from llmfw.core.plugin.calls import ComponentCalls
from llmfw.core.plugin.registry import Entry

from .declared import declared
from .leading_names import renamed_files
from .pickles import noting_pickle, times_read
from .resources import anonymous_bytes, bytes_read, contents_of, num_mapped_files, num_open_files

Tensors = Mapping[str, torch.Tensor]
Save = Callable[[Path, Tensors], object]

DTYPES = ("float32", "float16", "bfloat16")
SHAPES = ((3, 5), (7,), (), (1, 1), (2, 3, 4), (4, 0), (257, 31))
MIB = 2**20
MAX_RECOGNIZE_S = 0.05
"""Processor time that `recognizes` may take: every start asks every loader."""


class WeightLoaderTests:
    """Conformance tests of a weight loader. Derive from this class and override the fixtures `loader` and `save`.

    A loader may also declare `conformance = {"save": function}`, and "dtypes", if its format lacks one of
    float32, float16 and bfloat16.
    """

    @pytest.fixture
    def loader(self) -> type[WeightLoader]:
        """Return the class under test."""
        raise NotImplementedError(f"{type(self).__name__} has to override the fixture loader")

    @pytest.fixture
    def options(self, loader: type[WeightLoader]) -> Any:
        """Return the options to build a loader with."""
        return loader.Options()

    @pytest.fixture
    def save(self, loader: type[WeightLoader]) -> Save:
        """Return a function that writes tensors by name into a folder in the loader's format."""
        found = declared(loader, "save", None)
        if found is None:
            raise NotImplementedError(
                f'{loader.__name__} has to declare conformance = {{"save": FUNCTION}}, which writes tensors into a folder'
            )
        return found

    @pytest.fixture
    def dtypes(self, loader: type[WeightLoader]) -> Sequence[str]:
        """Return the names of the dtypes that the format has."""
        return declared(loader, "dtypes", DTYPES)

    @pytest.fixture
    def saved(self, save: Save, dtypes: Sequence[str], tmp_path: Path) -> Any:
        """A folder with tensors of all shapes and dtypes, and the tensors."""
        tensors = example_tensors(dtypes)
        return saved_in(tmp_path / "model", save, tensors), tensors

    def test_its_own_folders_are_recognized(self, saved: Any, loader: type[WeightLoader]) -> None:
        assert recognizes(loader, guard_of(loader, saved[0])), "a folder of its own format"

    def test_other_folders_are_not_recognized(self, loader: type[WeightLoader], tmp_path: Path) -> None:
        others: dict[str, dict[str, bytes]] = {
            "empty": {},
            "config": {"config.json": b'{"model_type": "llama"}', "tokenizer.json": b"{}"},
            "texts": {"README.md": b"# model", "weights.txt": b"1 2 3", "LICENSE": b""},
            "unknown": {"weights": b"\x00" * 64, "model.unknown-format": b"PK\x03\x04" * 16},
        }
        for name, files in others.items():
            folder = tmp_path / name
            folder.mkdir()
            for file, content in files.items():
                (folder / file).write_bytes(content)
            assert not recognizes(loader, guard_of(loader, folder)), f"a folder with {sorted(files)}"

    def test_recognizing_reads_little(self, loader: type[WeightLoader], save: Save, tmp_path: Path) -> None:
        """Measures processor time: the best of three calls, for a folder of 64 MiB."""
        folder = saved_in(tmp_path / "model", save, large_tensors(16))
        times = []
        for _ in range(3):
            begun, before = time.thread_time(), bytes_read()
            loader.recognizes(folder)
            times.append(time.thread_time() - begun)
            assert bytes_read() - before < 16 * MIB, "it reads the weights"
        assert min(times) <= MAX_RECOGNIZE_S, f"{1e3 * min(times):.0f} ms of processor time"

    def test_each_tensor_is_listed_once(self, saved: Any, loader: type[WeightLoader], options: Any) -> None:
        folder, tensors = saved
        with opened(loader, options, folder) as weights:
            found = {name: formatted(each) for name, each in weights.stored().items()}
        assert found == {name: (each.dtype, tuple(each.shape)) for name, each in tensors.items()}

    def test_numbers_are_read_bit_by_bit(self, saved: Any, loader: type[WeightLoader], options: Any) -> None:
        """The numbers include NaN, infinity, negative zero and subnormal numbers."""
        folder, tensors = saved
        with opened(loader, options, folder) as weights:
            check_all(weights, tensors, list(tensors))

    def test_tensors_are_read_in_any_order(
        self, saved: Any, loader: type[WeightLoader], options: Any
    ) -> None:
        folder, tensors = saved
        names = sorted(tensors)
        for order in (names[::-1], names[1::2]):
            with opened(loader, options, folder) as weights:
                check_all(weights, tensors, order)

    def test_folders_are_not_confused(
        self, loader: type[WeightLoader], options: Any, save: Save, tmp_path: Path
    ) -> None:
        """Tests two folders with the same names, read in turn, and a folder whose files are replaced."""
        first, second = (
            {f"layers.{i}.weight": torch.full((4, 4), i + n) for i in range(4)} for n in (0.5, 9.5)
        )
        one, other = saved_in(tmp_path / "one", save, first), saved_in(tmp_path / "other", save, second)
        with opened(loader, options, one) as left, opened(loader, options, other) as right:
            formats = left.stored(), right.stored()
            for name in first:
                assert same_bits(left.read(name, formats[0][name]), first[name])
                assert same_bits(right.read(name, formats[1][name]), second[name]), (
                    "numbers of another folder"
                )
        shutil.rmtree(one)
        saved_in(one, save, second)
        with opened(loader, options, one) as weights:
            check_all(weights, second, list(second))

    def test_listing_reads_no_numbers(
        self, loader: type[WeightLoader], options: Any, save: Save, tmp_path: Path
    ) -> None:
        """A list of 64 MiB of tensors takes less than 16 MiB of reading and of memory."""
        folder = saved_in(tmp_path / "model", save, large_tensors(16))
        with opened(loader, options, folder) as weights:
            read, held = bytes_read(), anonymous_bytes()
            weights.stored()
            assert bytes_read() - read < 16 * MIB, "it reads the weights to list them"
            assert anonymous_bytes() - held < 16 * MIB, "it keeps the weights in memory"

    def test_returned_tensors_are_not_kept(
        self, loader: type[WeightLoader], options: Any, save: Save, tmp_path: Path
    ) -> None:
        """Reading 96 MiB in tensors of 4 MiB takes less than 48 MiB of memory."""
        folder = saved_in(tmp_path / "model", save, large_tensors(24))
        with opened(loader, options, folder) as weights:
            formats = weights.stored()
            held = anonymous_bytes()
            for name, stored in formats.items():
                assert math.isfinite(weights.read(name, stored).sum())
                assert anonymous_bytes() - held < 48 * MIB, "it keeps tensors that it has returned"

    def test_changes_do_not_reach_the_files(
        self, saved: Any, loader: type[WeightLoader], options: Any
    ) -> None:
        folder, tensors = saved
        with opened(loader, options, folder) as weights:
            for name, stored in weights.stored().items():
                weights.read(name, stored).zero_()
        with opened(loader, options, folder) as weights:
            check_all(weights, tensors, list(tensors))

    def test_the_folder_is_not_changed(self, saved: Any, loader: type[WeightLoader], options: Any) -> None:
        """Models may be on a read-only disk, or several servers may read them at once."""
        folder, tensors = saved
        before = contents_of(folder)
        with opened(loader, options, folder) as weights:
            check_all(weights, tensors, list(tensors))
            assert contents_of(folder) == before
        assert contents_of(folder) == before

    def test_tensors_do_not_share_memory(self, saved: Any, loader: type[WeightLoader], options: Any) -> None:
        folder, tensors = saved
        with opened(loader, options, folder) as weights:
            formats = weights.stored()
            found = {name: weights.read(name, stored) for name, stored in formats.items()}
            for name in tensors:
                found[name].zero_()
                del found[name]
                assert all(same_bits(each, tensors[other]) for other, each in found.items()), name

    def test_tensors_stay_valid_after_close(
        self, saved: Any, loader: type[WeightLoader], options: Any
    ) -> None:
        folder, tensors = saved
        with opened(loader, options, folder) as weights:
            found = {name: weights.read(name, stored) for name, stored in weights.stored().items()}
        assert all(same_bits(found[name], tensors[name]) for name in tensors)

    def test_its_files_are_all_it_reads(
        self, saved: Any, loader: type[WeightLoader], options: Any, tmp_path: Path
    ) -> None:
        """A copy of only these files gives the same tensors."""
        folder, tensors = saved
        with opened(loader, options, folder) as weights:
            files = weights.files()
        for file in files:
            copy = tmp_path / "copy" / file.relative_to(folder)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
        folder.rename(tmp_path / "moved")
        with opened(loader, options, tmp_path / "copy") as weights:
            check_all(weights, tensors, list(tensors))

    def test_other_numbers_are_another_version(
        self, loader: type[WeightLoader], options: Any, save: Save, tmp_path: Path
    ) -> None:
        versions: list[str] = []
        for value in (1.0, 1.0, 2.0):
            folder = saved_in(tmp_path / f"{len(versions)}", save, {"a.weight": torch.full((8, 8), value)})
            with opened(loader, options, folder) as weights:
                versions.append(version_of(weights.files()))
        assert versions[0] != versions[2], "files() leaves out the file with the numbers"

    def test_damaged_files_are_refused(
        self, saved: Any, loader: type[WeightLoader], options: Any, tmp_path: Path
    ) -> None:
        """Halves, empties and removes each file in turn: the error is a ModelError of one line."""
        folder, tensors = saved
        with opened(loader, options, folder) as weights:
            files = [file.relative_to(folder) for file in weights.files()]
        for file in files:
            for size in (None, 0, (folder / file).stat().st_size // 2):
                copy = tmp_path / f"damaged-{file.name}-{size}"
                shutil.copytree(folder, copy)
                if size is None:
                    (copy / file).unlink()
                else:
                    os.truncate(copy / file, size)
                check_refused(loader, options, copy, tensors)
                shutil.rmtree(copy)

    def test_names_that_lead_out_are_refused(
        self, saved: Any, loader: type[WeightLoader], options: Any, tmp_path: Path
    ) -> None:
        """Holds for formats in which a file names another one, as an index names its shards."""
        folder, tensors = saved
        shutil.copytree(folder, tmp_path / "outside")
        renamings = list(renamed_files(folder, ("../outside/", f"{tmp_path}/outside/", "x/../../outside/")))
        if not renamings:
            pytest.skip("no file of the format names another one")
        for i, (file, text, named) in enumerate(renamings):
            copy = tmp_path / f"model-{i}"
            shutil.copytree(folder, copy)
            (copy / file).write_bytes(text)
            (copy / named).unlink()
            (copy / "x").mkdir()
            check_refused(loader, options, copy, tensors)

    def test_linked_files_are_read(
        self, saved: Any, loader: type[WeightLoader], options: Any, tmp_path: Path
    ) -> None:
        """All files of a model in a hub's cache are links to files outside of the model's folder."""
        folder, tensors = saved
        (tmp_path / "linked").mkdir()
        for number, file in enumerate(sorted(folder.iterdir())):
            shutil.move(file, tmp_path / f"blob-{number}")
            (tmp_path / "linked" / file.name).symlink_to(Path("..") / f"blob-{number}")
        assert recognizes(loader, guard_of(loader, tmp_path / "linked"))
        with opened(loader, options, tmp_path / "linked") as weights:
            check_all(weights, tensors, list(tensors))
            assert all(file.is_file() for file in weights.files())

    def test_no_code_of_the_files_is_run(
        self, saved: Any, loader: type[WeightLoader], options: Any, tmp_path: Path
    ) -> None:
        """Replaces each file in turn by a pickle, which runs code when it is read."""
        folder, tensors = saved
        times_read.clear()
        with opened(loader, options, folder) as weights:
            files = [file.relative_to(folder) for file in weights.files()]
        for file in files:
            copy = tmp_path / f"pickled-{file.name}"
            shutil.copytree(folder, copy)
            (copy / file).write_bytes(noting_pickle())
            with (
                contextlib.suppress(
                    ModelError, ComponentError, AssertionError
                ),  # other tests find wrong tensors
                opened(loader, options, copy) as weights,
            ):
                check_all(weights, tensors, list(tensors))
            assert not times_read, f"{file} is unpickled, which runs code of the file"

    def test_thousands_of_tensors_are_listed(
        self, loader: type[WeightLoader], options: Any, save: Save, tmp_path: Path
    ) -> None:
        names = [f"model.layers.{i // 50}.mlp.experts.{i % 50}.w.weight" for i in range(3_000)]
        tensors = {name: torch.full((2,), float(i)) for i, name in enumerate(names)}
        folder = saved_in(tmp_path / "model", save, tensors)
        with opened(loader, options, folder) as weights:
            assert set(weights.stored()) == set(names)
            check_all(weights, tensors, names[::97])

    def test_closing_releases_the_files(self, saved: Any, loader: type[WeightLoader], options: Any) -> None:
        """Holds even if the loader itself stays in memory."""
        folder, tensors = saved
        counts, kept = [], []
        for _ in range(4):
            with opened(loader, options, folder) as weights:
                check_all(weights, tensors, list(tensors))
            kept.append(weights)
            gc.collect()
            counts.append(num_open_files())
            assert not num_mapped_files(folder), "files are mapped into memory after the loader was closed"
        assert counts[-1] <= counts[0], f"{counts[-1] - counts[0]} more files are open after three loads"


def example_tensors(dtypes: Sequence[str]) -> dict[str, torch.Tensor]:
    """Return tensors of random bits in all shapes, with names as in checkpoints."""
    generator = torch.Generator().manual_seed(0)
    tensors = {}
    for dtype in dtypes:
        for i, shape in enumerate(SHAPES):
            kind = torch_dtype(dtype)
            assert kind is not None, f"{dtype!r} is not a dtype of torch"
            size = math.prod(shape) * kind.itemsize
            bits = torch.randint(0, 256, (size,), dtype=torch.uint8, generator=generator)
            tensors[f"model.layers.{i}.self_attn.{dtype}_proj.weight"] = bits.view(kind).reshape(shape)
    return tensors


def large_tensors(count: int) -> dict[str, torch.Tensor]:
    """Return tensors of 4 MiB each."""
    return {f"model.layers.{i}.weight": torch.full((1024, 1024), float(i)) for i in range(count)}


def saved_in(folder: Path, save: Save, tensors: Tensors) -> Path:
    """Write a config and tensors into a new folder, and return it."""
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "llama"}')
    save(folder, tensors)
    return folder


def guard_of(loader: type[WeightLoader], folder: Path) -> LoaderGuard:
    """Return the guard that runs the code of a loader under test."""
    path = f"{loader.__module__}:{loader.__qualname__}"
    entry = Entry("weight_loader", loader.__name__, path, "tested", "tested", "")
    return LoaderGuard(entry, ComponentCalls(entry), str(folder))


@contextlib.contextmanager
def opened(loader: type[WeightLoader], options: Any, folder: Path) -> Iterator[IsolatedLoader]:
    """Build a loader as a server does, and close it after the block."""
    weights = IsolatedLoader(loader(folder, options), guard_of(loader, folder))
    try:
        yield weights
    finally:
        weights.close()


def check_all(weights: IsolatedLoader, tensors: Tensors, names: Sequence[str]) -> None:
    """Assert that a loader reads the tensors of these names as they were saved."""
    formats = weights.stored()
    for name in names:
        assert name in formats, f"{name} is not listed"
        assert same_bits(weights.read(name, formats[name]), tensors[name]), f"{name} has other numbers"


def check_refused(loader: type[WeightLoader], options: Any, folder: Path, tensors: Tensors) -> None:
    """Assert that a loader does not recognize a folder, or refuses its files with a message of one line."""
    if not recognizes(loader, guard_of(loader, folder)):
        return
    with pytest.raises(ModelError) as caught, opened(loader, options, folder) as weights:
        check_all(weights, tensors, list(tensors))
    told = caught.value.__cause__  # llmfw makes one line of a loader's message, so look at that itself
    assert "\n" not in str(told if isinstance(told, ConfigError) else caught.value)


def formatted(stored: StoredTensor) -> tuple[torch.dtype | None, tuple[int, ...]]:
    """Return a stored tensor's dtype and shape."""
    return torch_dtype(stored.dtype), stored.shape


def same_bits(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """Return whether two tensors have the same dtype, shape and bits."""
    if (found.dtype, found.shape) != (expected.dtype, expected.shape):
        return False
    left, right = (each.contiguous().reshape(-1).view(torch.uint8) for each in (found, expected))
    return torch.equal(left, right)
