"""`llmfw load`: how busy a server is. Imports click alone; the HTTP client is imported when the command runs."""

import itertools
import time

import click

from llmfw.core import LLMFWError


class LoadError(LLMFWError):
    """The server cannot be reached, or does not tell."""


@click.command("load")
@click.option("--url", default="http://127.0.0.1:30000", show_default=True, help="The server.")
@click.option("--api-key", envvar="OPENAI_API_KEY", metavar="KEY", help="Sent as a bearer token.")
@click.option(
    "--every", type=click.FloatRange(min=0.1), metavar="SECONDS", help="Ask again so often, until Ctrl-C."
)
def load_command(url, api_key, every):
    """Show how busy a server is that has the plugin llmfw-load."""
    before, asked_at = None, 0.0
    for _ in itertools.count() if every else range(1):
        now = time.monotonic()
        found = ask(url, api_key)
        line = words_of(found)
        if before is not None:
            rate = (found["generated_tokens"] - before["generated_tokens"]) / (now - asked_at)
            line += f", {rate:.1f} tokens/s"
        click.echo(line)
        before, asked_at = found, now
        if every:
            time.sleep(every)


def ask(url, api_key):
    """Return what a server says at `/load`."""
    import httpx

    headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        reply = httpx.get(f"{url.rstrip('/').removesuffix('/v1')}/load", headers=headers, timeout=10)
    except httpx.HTTPError as error:
        raise LoadError(f"no server answers at {url}: {error}") from error
    if reply.status_code == 404:
        raise LoadError(f"the server at {url} has no /load; install llmfw-load where it runs, too")
    if reply.is_error:
        raise LoadError(f"{reply.status_code} from {url}: {reply.text[:500]}")
    return reply.json()


def words_of(load):
    """Return a line that tells a load."""
    return (
        f"running {load['running']}, waiting {load['waiting']}, "
        f"batch lines {load['batch_running']} + {load['batch_waiting']} waiting, "
        f"KV storage {load['kv_in_use']:.0%} in use".replace("%", " %")
    )
