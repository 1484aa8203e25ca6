"""`llmfw debug bundle`: packs crash reports and a running server's facts for a bug report."""

from __future__ import annotations

import json
import time
from pathlib import Path

import click

from llmfw.core.base.errors import ConfigError

from ..remote import Remote, server_options
from .server_replies import ask_server

RECORDING = "steps.recording"
"""Name of a packed recording."""


@click.command("bundle", short_help="Pack crash reports and a server's facts for a bug report.")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    metavar="FILE",
    help="Write the archive to this .tar.gz, which must not exist.",
)
@click.option(
    "--storage",
    envvar="LLMFW_STORAGE",
    metavar="DIR",
    help="The server's --storage, whose crash reports to pack.",
)
@click.option(
    "--crash-reports",
    envvar="LLMFW_CRASH_REPORTS",
    metavar="DIR",
    help="The server's --crash-reports, if it has one; packed in addition to those of --storage.",
)
@click.option(
    "--recording",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Also pack this file of --record-steps, which holds the token ids of prompts and replies.",
)
@server_options
def bundle_command(
    output: Path,
    storage: str | None,
    crash_reports: str | None,
    recording: Path | None,
    url: str | None,
    api_key: str | None,
) -> None:
    """Pack what a bug report needs into one .tar.gz, and print what is in it.

    Packs the crash reports on this machine, the health, settings and metrics of the running server, and the
    versions and hardware of this machine. Prompts, replies and keys are not packed. Without --url, a server that
    does not answer is left out.
    """
    from llmfw.api.crashes.bundle import Bundle
    from llmfw.api.crashes.crash_folder import CrashFolder, crash_folder
    from llmfw.api.crashes.secrets import Secrets

    replies = ask_server(Remote(url, api_key))
    unreachable = replies.errors.get("/", "")
    if url is not None and unreachable:
        raise ConfigError(unreachable)
    folders = [
        each for each in (crash_folder(crash_reports, None), crash_folder(None, storage)) if each is not None
    ]
    bundle = Bundle(Secrets([api_key] if api_key else []))
    num_reports = sum(bundle.add_reports(CrashFolder(folder)) for folder in dict.fromkeys(folders))
    where = (
        f"in {' and '.join(map(str, dict.fromkeys(folders)))}"
        if folders
        else "no folder of crash reports is given; name it by --storage"
    )
    if unreachable and not num_reports and recording is None:
        raise ConfigError(f"there is nothing to pack: {unreachable}; crash reports: none, {where}")
    for name, text in replies.texts.items():
        bundle.add(f"server/{name}", text)
    bundle.add("about.json", _about(replies.errors))
    bundle.write(output, {} if recording is None else {RECORDING: recording})
    click.echo(f"{output} holds:")
    for name, size in bundle.sizes.items():
        click.echo(f"  {name}  {size:,} bytes")
    if recording is not None:
        click.echo(f"  {RECORDING}  {recording.stat().st_size:,} bytes")
    click.echo(f"Crash reports: {num_reports}, {where}")
    for path, reason in replies.errors.items():
        click.echo(f"Left out: {path} of the server: {reason}")
    click.echo(_what_of_clients(has_recording=recording is not None, has_messages=bundle.has_messages))


def _about(errors: dict[str, str]) -> str:
    from llmfw.api.crashes.facts import machine, plugins, versions

    found = {
        "created": time.time(),
        "versions": versions(),
        "plugins": plugins(),
        "machine": machine(),
        "left_out": errors,
    }
    return json.dumps(found, indent=2) + "\n"


def _what_of_clients(*, has_recording: bool, has_messages: bool) -> str:
    """Return a sentence that says whether the bundle contains data from clients."""
    held = []
    if has_recording:
        held.append("the token ids of prompts and replies (--recording)")
    if has_messages:
        held.append("messages of exceptions, which may quote requests (--crash-details)")
    if held:
        return f"It holds {' and '.join(held)}. Read it before you publish it."
    return (
        "It holds no prompts, replies or keys, but log lines, paths and names. Read it before you publish it."
    )
