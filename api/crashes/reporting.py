"""Reports the crashes of one run of a server, from its start to its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from llmfw.core.base.config import EngineConfig, ServerConfig
from llmfw.core.base.errors import LLMFWError, PluginError

from .crash_folder import CrashFolder, check_crash_folder, crash_folder
from .crash_reports import CrashReports


@contextmanager
def reporting(engine: EngineConfig, server: ServerConfig) -> Iterator[CrashReports | None]:
    """Yield the crash reports of a server, or None if the settings turn them off.

    Reports an exception that ends the block, unless it is an error for the user, such as a wrong setting.

    Raises:
        ConfigError: the folder of `--crash-reports` cannot be written to.
    """
    folder = crash_folder(server.crash_reports, server.storage)
    if folder is None:
        yield None
        return
    check_crash_folder(server)
    reports = CrashReports(CrashFolder(folder), engine, server)
    try:
        yield reports
    except Exception as error:
        if not isinstance(error, LLMFWError) or isinstance(error, PluginError):
            reports.add_exception(error)
        raise
    finally:
        reports.finish()
