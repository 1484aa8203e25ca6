"""Images of `LLM.chat` and `llmfw chat --image`."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from PIL import Image

from llmfw.api.cli import build_cli
from llmfw.api.llm import LLM
from llmfw.api.media.own_images import take_images
from llmfw.core.base.errors import RequestError
from llmfw.core.base.image import image_of
from llmfw.core.base.request import SamplingParams

from ...doubles.echo_engine import EchoEngine
from ...doubles.picture_files import file_of, picture_of, with_exif
from ...doubles.seeing import TEMPLATE, SeeingPrompts
from ...doubles.serving import Served, byte_tokenizer, serving

PICTURE = picture_of(8, 9)
FILE = file_of(PICTURE)
IMAGE = image_of(8, 9, PICTURE.tobytes())


def part(image: Any) -> dict[str, Any]:
    return {"type": "image", "image": image}


def test_images_come_from_all_kinds_of_values(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(FILE)
    url = f"data:image/png;base64,{base64.b64encode(FILE).decode()}"
    content = [part(PICTURE), part(FILE), part(tmp_path / "a.png"), part(str(tmp_path / "a.png")), part(url)]
    content.append({"type": "image_url", "image_url": {"url": url}})
    messages, images = take_images([{"role": "user", "content": [*content, {"type": "text", "text": "x"}]}])
    assert images == [IMAGE] * 6
    assert messages == [
        {"role": "user", "content": [{"type": "image"}] * 6 + [{"type": "text", "text": "x"}]}
    ]


def test_a_picture_of_pillow_is_turned_upright() -> None:
    with Image.open(io.BytesIO(with_exif(6))) as opened:
        _, [image] = take_images([{"role": "user", "content": [part(opened)]}])
    assert (image.width, image.height) == (24, 40)


@pytest.mark.parametrize("bad", [b"nothing", 5, None, "no/such/file.png", "data:,x", FILE[:-9]])
def test_a_bad_image_is_named(bad: Any) -> None:
    with pytest.raises(RequestError, match=r"messages\[0\]\.content\[0\]: the image "):
        take_images([{"role": "user", "content": [part(bad)]}])


def test_llm_chat_makes_prompts_of_images(tmp_path: Path) -> None:
    (tmp_path / "t.jinja").write_text(TEMPLATE)
    with LLM("demo", chat_template=str(tmp_path / "t.jinja"), max_total_tokens=512) as llm:
        messages = [{"role": "user", "content": [part(PICTURE), {"type": "text", "text": "Hello"}]}]
        with pytest.raises(RequestError, match="reads text only"):
            llm.chat(messages)
        prompts = SeeingPrompts(llm._generator.tokenizer)
        llm._image_prompts = prompts
        sampling = SamplingParams(temperature=0, max_tokens=4)
        [seen], [text] = (
            llm.chat(messages, sampling),
            llm.chat([{"role": "user", "content": "[8x9]Hello"}], sampling),
        )
        assert (seen.text, seen.prompt_tokens) == (text.text, text.prompt_tokens)
        assert prompts.seen == [IMAGE]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    tokenizer = byte_tokenizer(tmp_path_factory.mktemp("tokenizer"))
    parts = {"image_prompts": SeeingPrompts(tokenizer), "reasoning_parser": None, "tool_parser": None}
    with serving(EchoEngine(), tokenizer, TEMPLATE, **parts) as found:
        yield found


def llmfw(*arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(build_cli(), arguments, input=stdin)


def test_the_command_sends_image_files(served: Served, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(FILE)
    (tmp_path / "b.jpg").write_bytes(file_of(picture_of(30, 5), "JPEG"))
    files = ["--image", str(tmp_path / "a"), "--image", str(tmp_path / "b.jpg")]
    result = llmfw("chat", "--url", served.url, *files, "What?")
    assert (result.exit_code, result.stdout) == (0, "[8x9][30x5]What?\n")


@pytest.mark.parametrize(("content", "words"), [(b"text", "is no image"), (None, "cannot be read")])
def test_the_command_refuses_other_files(
    served: Served, tmp_path: Path, content: bytes | None, words: str
) -> None:
    if content is not None:
        (tmp_path / "x.png").write_bytes(content)
    result = llmfw("chat", "--url", served.url, "--image", str(tmp_path / "x.png"), "What?")
    assert result.exit_code == 1
    assert words in result.stderr
