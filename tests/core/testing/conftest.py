"""For the broken parts: it matters that a test fails, not by how small an example."""

from __future__ import annotations

from hypothesis import Phase, settings

settings.register_profile("unshrunk", max_examples=100, phases=[Phase.explicit, Phase.generate])
