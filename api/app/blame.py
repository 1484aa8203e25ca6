"""Names the plugins that may have ended the server if neither a signal nor llmfw has."""

from __future__ import annotations

from llmfw.core.plugin.plugins import Plugins


def ended_by(plugins: Plugins, what: str) -> str:
    """Return the reason why the server ends.

    Args:
        what: action of code in this process, in the past tense.
    """
    others = [f"{each.name!r} ({each.distribution} {each.version})" for each in plugins.foreign]
    which = f"Start it without one of these plugins to find which: {', '.join(others)}" if others else ""
    return f"the server ends, since code in this process {what}, which llmfw never does. {which}".strip()
