"""A scheduling policy for llmfw: who has to be answered soonest is admitted first."""

from llmfw.core import hookimpl


@hookimpl
def register_schedule_policies(register):
    register("deadline", "llmfw_deadline.policy:Deadline", summary="the nearest deadline first")
