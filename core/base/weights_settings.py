"""The setting of weights that are replaced while the server runs."""

# Annotations are not postponed, as in `config`.
from typing import Annotated

from .setting import Setting

# fmt: off
WeightsFrom = Annotated[str | None, Setting(
    "Let administrators load other checkpoints of the same model from this folder, by POST /admin/weights.",
    unset="the weights stay", metavar="FOLDER")]
