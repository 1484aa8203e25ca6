"""Exceptions that end the process. They may interrupt a plugin's code, but are not its failure."""

from __future__ import annotations

import signal


class ProcessEnd(SystemExit):
    """Raised by a signal handler to end the process. It may interrupt a plugin, but is not its failure."""


class CtrlCInterrupt(KeyboardInterrupt):
    """Raised by Ctrl-C in a block of `naming_ctrl_c`, instead of a plain KeyboardInterrupt."""


def raise_if_end(error: BaseException) -> None:
    """Raise an exception again if it ends the process: ProcessEnd, or the KeyboardInterrupt of a Ctrl-C.

    A server handles SIGINT itself. So a KeyboardInterrupt in a server, or in the block of `naming_ctrl_c`,
    comes from the plugin, and is not raised again.
    """
    kind = type(error)  # `isinstance` would ask `__class__`, which is the plugin's code and may raise
    if issubclass(kind, ProcessEnd | CtrlCInterrupt):
        raise error
    if issubclass(kind, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        raise error
