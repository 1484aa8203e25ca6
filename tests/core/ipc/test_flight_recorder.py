"""What a process has recorded can be read after SIGKILL and SIGSEGV."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap

import pytest

from llmfw.core.ipc.flight_recorder import WRITE_STACKS, FlightReader

CHILD = textwrap.dedent("""
    import logging, os, sys
    from llmfw.core.base.step_sizes import StepSizes
    from llmfw.core.ipc.flight_recorder import FlightFiles, FlightRecorder

    recorder = FlightRecorder(FlightFiles(*map(int, sys.argv[1:4])))
    recorder.take_log()
    recorder.take_stacks()
    for number in range(1, 8):
        recorder.note_step(StepSizes(number))
    logging.getLogger("llmfw.x").warning("the last words")
    def where_it_ends():
        os.kill(os.getpid(), int(sys.argv[4]))
        os.kill(os.getpid(), 9)
    where_it_ends()
""")


def ended_by(number: int) -> tuple[FlightReader, str]:
    """Return the reader of a process that a signal has ended, and what it wrote to stderr."""
    reader = FlightReader()
    descriptors = reader.files.descriptors
    command = [sys.executable, "-c", CHILD, *map(str, descriptors), str(number)]
    ended = subprocess.run(
        command, check=False, pass_fds=descriptors, capture_output=True, text=True, timeout=60
    )
    reader.close_files()
    assert ended.returncode < 0, ended.stderr
    return reader, ended.stderr


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, WRITE_STACKS])
def test_records_outlive_their_process(number: int) -> None:
    reader, _ = ended_by(number)
    assert [step.sizes.num_tokens for step in reader.steps()] == [1, 2, 3, 4, 5, 6, 7]
    assert reader.log().endswith("WARNING: the last words\n")
    assert ("in where_it_ends" in reader.stacks()) is (number != signal.SIGKILL)


def test_a_recorder_that_nobody_used_is_empty() -> None:
    reader = FlightReader()
    reader.close_files()
    assert (reader.steps(), reader.log(), reader.stacks()) == ([], "", "")
