"""The GPU script runs every stage without a GPU, and what goes wrong in one costs its line and no more."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import Distribution
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from .gpu_script import FOLDER, gpu_script

ROOT = FOLDER.parents[2]


def dry_run(out: Path, *options: str) -> dict[str, list[dict[str, Any]]]:
    """Run the script without a GPU, and return the lines of each stage."""
    env = os.environ | {"OUT": str(out), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, FOLDER / "run.py", "--dry", *options]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + (out / "log.txt").read_text()
    assert "\n0 stages failed\n" in (out / "table.md").read_text()
    assert len(list(out.iterdir())) == 3
    stages: dict[str, list[dict[str, Any]]] = json.loads((out / "results.json").read_text())["stages"]
    assert all(stages.values())
    return stages


def check_measured(stages: dict[str, list[dict[str, Any]]], *cases: str) -> None:
    for case in cases:
        [line] = [line for lines in stages.values() for line in lines if line["case"] == case]
        assert line["tok_s"] > 0
        assert line["ratio"] > 0


@pytest.mark.long
def test_a_dry_run_fills_each_chosen_stage(tmp_path: Path) -> None:
    stages = dry_run(tmp_path, "--stages", "ceilings", "decode")
    assert list(stages) == ["ceilings", "decode"]
    check_measured(stages, "prefill 4 × 6 behind 5 cached")


@pytest.mark.long
def test_a_dry_run_fills_every_stage(tmp_path: Path) -> None:
    stages = dry_run(tmp_path)
    with gpu_script("run") as (run,):
        assert list(stages) == list(run.STAGES)
    check_measured(
        stages,
        "decode 4, whole run",
        "prefill 4 × 6 behind 5 cached",
        "HTTP, 4 streams",
        "decode 4, context 111, stored in 1 bytes",
    )


def test_a_stage_ends_at_its_limit(tmp_path: Path) -> None:
    with gpu_script("run", "task") as (run, task), (tmp_path / "log").open("wb") as log:
        [line] = run.run_stage("ceilings", task.Task(True, tmp_path), 0.05, log)
    assert (line.failed, line.note) == (True, "ended at its limit of 0 s")


def test_the_environment_names_the_measured_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMFW_COMMIT", "abc1234")
    with gpu_script("run", "task") as (run, task):
        assert run.commit() == "abc1234"
        assert "LLMFW_COMMIT" not in run.environment(task.Task(True, tmp_path))


def test_a_failing_stage_keeps_its_lines(tmp_path: Path) -> None:
    with gpu_script("run", "task", "lines") as (run, task, lines), (tmp_path / "log").open("wb") as log:
        job = task.Task(True, tmp_path)
        lines.write_line(job.file("nothing"), lines.Line("measured before"))
        found = run.run_stage("nothing", job, 60, log)
    assert [line.case for line in found] == ["measured before", "nothing"]
    assert "No module named" in found[1].note


def test_an_exception_ends_its_stage_with_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with gpu_script("stage", "task", "lines") as (stage, task, lines):
        broken = ModuleType("stages.broken")

        def measure(job):
            yield lines.Line("first", ms=1.0)
            raise ValueError("no\nmore")

        broken.measure = measure
        monkeypatch.setitem(sys.modules, "stages.broken", broken)
        job = task.Task(True, tmp_path)
        assert stage.run_stage("broken", job) is False
        assert [(line.case, line.note) for line in job.lines("broken")] == [
            ("first", ""),
            ("broken", "ValueError: no"),
        ]


def test_the_first_stage_registers_our_plugins(tmp_path: Path) -> None:
    with gpu_script("stages.install") as (install,):
        install.write_metadata(tmp_path)
    [found] = Distribution.discover(path=[str(tmp_path)])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    points = {point.name: point.value for point in found.entry_points if point.group == "llmfw"}
    assert points == project["entry-points"]["llmfw"]
    assert (found.metadata["Name"], found.version) == (project["name"], project["version"])


def test_a_package_in_the_wheels_folder_is_importable(tmp_path: Path) -> None:
    kernels, site = tmp_path / "wheels" / "some_kernels", tmp_path / "site"
    kernels.mkdir(parents=True)
    site.mkdir()
    (kernels / "__init__.py").write_text("FOUND = True")
    with gpu_script("stages.install") as (install,):
        assert install.link_packages(tmp_path / "wheels", site) == ["some_kernels"]
        assert install.link_packages(tmp_path / "none", site) == []
    code = "import some_kernels; assert some_kernels.FOUND"
    subprocess.run([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": str(site)}, check=True)


ON_THE_GPU_MACHINE = {
    *(
        "jinja2",
        "numpy",
        "pytest",
        "regex",
        "rich",
        "safetensors",
        "tokenizers",
        "torch",
        "transformers",
        "uvloop",
    ),
}


def test_every_requirement_is_available_on_the_machine() -> None:
    wheels = re.findall(r"^([\w.-]+)==\S+$", (FOLDER / "wheels.txt").read_text(), re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements = project["dependencies"] + project["optional-dependencies"]["testing"]
    required = {re.split(r"[^\w.-]", requirement)[0] for requirement in requirements}
    assert required <= {*wheels, *ON_THE_GPU_MACHINE}
    assert len(wheels) == len(set(wheels)), "two versions of one wheel stop the whole installation"


def test_overlapping_spans_are_counted_once() -> None:
    with gpu_script("timing") as (timing,):
        assert timing.covered([(5, 6), (0, 2), (1, 3), (1, 2), (3, 4)]) == 5
        assert timing.covered([]) == 0


def test_an_excerpt_names_gaps_and_lengths() -> None:
    with gpu_script("timing") as (timing,):
        spans = [("c", 7.0, 9.0), ("a", 0.0, 2.0), ("b", 3.0, 6.0)]
        assert timing.excerpt(spans) == [("b", 1.0, 3.0), ("c", 1.0, 2.0)]
        assert timing.excerpt([]) == []


def test_results_have_a_line_for_each_case() -> None:
    stages = {"first": [{"case": "a", "ms": 1.0}, {"case": "b\n", "ms": None}], "second": []}
    with gpu_script("run") as (run,):
        text = run.as_text({"date": "today"}, stages)
    assert json.loads(text) == {"about": {"date": "today"}, "stages": stages}
    assert text.count("\n") == 6
