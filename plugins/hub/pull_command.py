"""`llmfw pull`: downloads a model, and checks the downloaded files."""

from __future__ import annotations

import json

import click


@click.command()
@click.argument("model")
@click.option("--revision", metavar="NAME", help="Branch, tag or commit of the model.  [default: main]")
@click.option(
    "--include",
    multiple=True,
    metavar="PATTERN",
    help="Download files of this name or pattern, such as '*Q4_K_M.gguf', in place of the weights in safetensors; repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def pull(model: str, revision: str | None, include: tuple[str, ...], as_json: bool) -> None:
    """Download MODEL, a hub id such as org/name, into the local cache, and compare it with the hub's checksums.

    `llmfw serve MODEL` downloads by itself, too; this does it ahead, and says what it does. A download that was broken
    off is continued: files that are whole are kept. Only files that serving reads are downloaded.
    """
    from .download import download, look_up, verify

    remote = look_up(model, revision, include)
    click.echo(
        f"{remote.name}: {len(remote.files)} files, {remote.size / 1e9:.2f} GB, commit {remote.commit[:12]}",
        err=True,
    )
    folder = download(remote)
    checked = verify(remote, folder, lambda name: click.echo(f"checking {name}", err=True))
    if as_json:
        found = {
            "model": model,
            "commit": remote.commit,
            "folder": str(folder),
            "bytes": remote.size,
            "checked": checked,
        }
        click.echo(json.dumps(found))
        return
    click.echo(
        f"{model} is in {folder}; {checked} of {len(remote.files)} files have a checksum, and match it."
    )
    click.echo(f"Serve it: llmfw serve {_served(model, include, remote.files[0].name, str(folder))}")


def _served(model: str, include: tuple[str, ...], first: str, folder: str) -> str:
    """Return the argument for `llmfw serve`: the model, or a file if the model is served from one file."""
    return f"{folder}/{first}" if include and first.endswith(".gguf") else model
