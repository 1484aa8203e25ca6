"""The bundled scheduling policies: `lpm` (default), `fcfs` and `priority`."""

from __future__ import annotations

from llmfw.core import hookimpl
from llmfw.core.hookspecs import Register


@hookimpl
def register_schedule_policies(register: Register) -> None:
    register("lpm", "llmfw.plugins.policies.lpm:LPM", summary="longest cached prefix first")
    register("fcfs", "llmfw.plugins.policies.fcfs:FCFS", summary="first come, first served")
    register("priority", "llmfw.plugins.policies.priority:Priority", summary="largest priority first")
