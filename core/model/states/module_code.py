"""What the code of a module's class uses, by which llmfw finds modules that need special treatment."""

from __future__ import annotations

import inspect

from torch import nn


def names_in(module: nn.Module) -> set[str]:
    """Return the names that the code of a module's own class uses."""
    functions = (inspect.unwrap(each) for each in vars(type(module)).values() if inspect.isfunction(each))
    return {name for function in functions for name in function.__code__.co_names}
