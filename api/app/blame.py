"""Says who may have ended the server when it was neither a signal nor llmfw."""

from __future__ import annotations

from llmfw.core.plugin.plugins import Plugins


def ended_by(plugins: Plugins, what: str) -> str:
    """Return the reason why the server ends.

    Args:
        what: what code in this process did, in the past tense.
    """
    others = [f"{each.name!r} ({each.distribution} {each.version})" for each in plugins.foreign]
    which = f"Start it without one of these plugins to find which: {', '.join(others)}" if others else ""
    return f"the server ends, since code in this process {what}, which llmfw never does. {which}".strip()
