"""The interface of an adapter source: it finds the files of LoRA adapters that requests name.

A source is asked in the API process, in a thread, and only for names of adapters that are not loaded.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import msgspec


class AdapterSource(ABC):
    """Finds adapters by name. The API process builds one source when it starts.

    Names come from clients. A name has 1 to 256 printable characters, without spaces and slashes around them. It
    may hold anything else: "../x", "a/../../b", "C:\\x", "*".
    """

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options of the component, set by `-o adapter_source.key=value`. A source with options overrides this."""

    def __init__(self, options: Options) -> None:
        self.options = options

    @abstractmethod
    def find(self, name: str) -> str | None:
        """Return the folder of an adapter; None if the source has no adapter of this name.

        May take seconds, for example to download files. Several threads may call it at once. The folder must
        hold the two files that PEFT writes, and must keep them until the server has read them.

        Args:
            name: name from a client.

        Returns:
            An absolute path on the machine of the engine process.

        Raises:
            RequestError: the request is refused; the client gets the message.
            OverloadedError: the source cannot answer now; the client may try again.
        """


__all__ = ["AdapterSource"]
