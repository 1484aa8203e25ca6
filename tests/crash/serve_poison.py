"""As `serve_echo`, but that a chat whose text has "poison" ends the API process at once, as a fault in a library does."""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from typing import Any

from serve_echo import ENGINE  # type: ignore[import-not-found]  # run as a script, it stands alone in its folder

import llmfw.api.app.serve
import llmfw.api.chat.prompt_maker
from llmfw.api.chat.prompt import render_prompt_briefly
from llmfw.api.cli import build_cli
from llmfw.core.client.process import ProcessEngineClient


def poisoned(*args: Any) -> str | None:
    text = render_prompt_briefly(*args)
    if text and "poison" in text:
        os.kill(os.getpid(), signal.SIGKILL)
    return text


if __name__ == "__main__":
    llmfw.api.chat.prompt_maker.render_prompt_briefly = poisoned  # type: ignore[attr-defined]
    llmfw.api.app.serve.ProcessEngineClient = partial(ProcessEngineClient, command=ENGINE)  # type: ignore
    build_cli()(["serve", *sys.argv[1:]], prog_name="llmfw")
