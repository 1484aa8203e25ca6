"""`llmfw debug replay` computes what a server recorded again, and says whether the tokens are equal."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from llmfw.api.cli import build_cli
from llmfw.core.base.config import EngineConfig
from llmfw.core.base.request import Request, SamplingParams
from llmfw.core.engine.generation.build import build_generation_engine
from llmfw.core.plugin.model_name import resolve_model
from llmfw.core.plugin.plugins import load_plugins
from llmfw.core.step.recording import RecordedStep, StepWriter, read_recording


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recording") / "steps"
    registry = load_plugins().registry
    folder = resolve_model("demo", registry).path
    config = EngineConfig(model=folder, max_total_tokens=2048, record_steps=str(path))
    engine = build_generation_engine(config, registry)
    sampling = SamplingParams(max_tokens=8, temperature=1.0)
    engine.add(Request(id="a", prompt=[5, 6, 7], sampling=sampling))
    while engine.has_work:
        engine.step()
    return path


def replay(*args: object) -> Result:
    return CliRunner().invoke(build_cli(), ["debug", "replay", *map(str, args)])


def test_others_cannot_read_recorded_prompts(recording: Path) -> None:
    assert recording.stat().st_mode & 0o777 == 0o600


def test_equal_tokens_are_reported_as_equal(recording: Path) -> None:
    result = replay(recording)
    assert (result.exit_code, result.output) == (0, "8 steps, 8 tokens: all equal\n")


def test_a_differing_token_is_a_failure(recording: Path, tmp_path: Path) -> None:
    header, steps = read_recording(recording)
    writer = StepWriter(str(tmp_path / "changed"))
    writer.start(header)
    for number, recorded in enumerate(steps, 1):
        if number == 3:
            recorded.output.token_ids[0] = 1 if recorded.output.token_ids[0] != 1 else 2
        writer.add(RecordedStep(recorded.step, recorded.masks, recorded.output))
    result = replay(tmp_path / "changed")
    assert result.exit_code == 1
    assert "step 3, row 0: recorded token" in result.output
    assert "1 step differs" in result.output


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    result = replay(tmp_path / "none")
    assert result.exit_code == 1
    assert "cannot be read: No such file or directory" in result.output
    assert "Traceback" not in result.output
