"""The documentation as a site, by Sphinx: `make site`.

The pages are Markdown as GitHub shows it, and know nothing of Sphinx. What stands here is the rest: the navigation is
made of the lists of index.md, and below a page are those that it links to in the folder of its name.
"""

import re
from importlib.metadata import version as version_of

from sphinx.application import Sphinx

project = "llmfw"
version = release = version_of("llmfw-engine")
copyright = "the authors of llmfw"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["site", "**/.*", "examples/*/tests"]
html_theme = "furo"  # brings its fonts and scripts along: the site asks no other host for anything
html_title = f"llmfw {version}"
html_copy_source = False
html_show_sphinx = False
myst_heading_anchors = 4
# Of a console in which a command has several lines: it is shown all the same.
suppress_warnings = ["misc.highlighting_failure"]

_GROUP = re.compile(r"^(?P<caption>\w[^\n]*):\n(?P<links>(?:- .*\n(?:  .*\n)*)+)", re.MULTILINE)
_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./[^)]*\)")
_PAGE = re.compile(r"\]\(([\w/.-]+)\.md\)")


def _toctree(pages: list[str], caption: str = "") -> str:
    lines = [
        "",
        "```{toctree}",
        ":hidden:",
        *([f":caption: {caption}"] if caption else []),
        "",
        *pages,
        "```",
        "",
    ]
    return "\n".join(lines)


def adapt(app: Sphinx, page: str, source: list[str]) -> None:
    """Add to a page's source which pages are below it; links to what is not on the site become their text."""
    if "/" not in page:
        source[0] = _OUTSIDE.sub(r"\1", source[0])
    if page == "index":
        for group in _GROUP.finditer(source[0]):
            source[0] += _toctree(_PAGE.findall(group["links"]), group["caption"])
    elif "/" not in page:
        pages = dict.fromkeys(_PAGE.findall(source[0]))
        below = [name for name in pages if name.startswith(f"{page}/")]
        source[0] += _toctree(below) if below else ""


def setup(app: Sphinx) -> None:
    """Connect what is above with Sphinx."""
    app.connect("source-read", adapt)
