"""`llmfw models`: lists the models that can be served without a download."""

from __future__ import annotations

import json
import time
from typing import Any

import click

from llmfw.core.terminal.tables import Column, print_table

COLUMNS = (
    Column("model"),
    Column("commit", drop=1),
    Column("GB", right=True),
    Column("files", right=True, drop=2),
    Column("last used", drop=3),
    Column("folder", drop=4),
)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
def models(as_json: bool) -> None:
    """List the models of the hub that are in the local cache, with each commit that is there.

    The cache is the folder of HF_HUB_CACHE, which other programs may use, too. `llmfw plugins` lists the models that
    plugins bring.
    """
    found = cached_models()
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    print_table(
        COLUMNS,
        [
            (
                each["model"],
                each["commit"][:12],
                f"{each['bytes'] / 1e9:.2f}",
                each["files"],
                time.strftime("%Y-%m-%d", time.localtime(each["last_used"])),
                each["folder"],
            )
            for each in found
        ],
    )


def cached_models() -> list[dict[str, Any]]:
    """Return the models in the cache, sorted by name, with the newest commit of each model first."""
    from huggingface_hub import CacheNotFound, scan_cache_dir

    try:
        cache = scan_cache_dir()
    except CacheNotFound:
        return []
    listed = [
        {
            "model": repo.repo_id,
            "commit": revision.commit_hash,
            "bytes": revision.size_on_disk,
            "files": revision.nb_files,
            "last_used": repo.last_accessed,
            "modified": revision.last_modified,
            "folder": str(revision.snapshot_path),
        }
        for repo in cache.repos
        if repo.repo_type == "model"
        for revision in repo.revisions
        if any(file.file_name == "config.json" or file.file_name.endswith(".gguf") for file in revision.files)
    ]
    return sorted(listed, key=lambda each: (each["model"], -each["modified"]))
