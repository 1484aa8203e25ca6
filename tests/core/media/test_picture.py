"""Pixels come out as a viewer shows them, whatever the file's format, colors and metadata."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image, ImageCms

from llmfw.core.media.limits import ImageLimits, ImageRefusedError
from llmfw.core.media.picture import decode

from ...doubles.picture_files import chunk, file_of, gif_of, picture_of, png_of, with_exif

LIMITS = ImageLimits()


def pixels_of(data: bytes) -> np.ndarray:
    width, height, pixels = decode(data, LIMITS)
    return np.frombuffer(pixels, np.uint8).reshape(height, width, 3)


def reason_of(data: bytes, limits: ImageLimits = LIMITS) -> str:
    with pytest.raises(ImageRefusedError) as caught:
        decode(data, limits)
    return caught.value.reason


@pytest.mark.parametrize("mode", ["RGB", "L", "P", "1"])
def test_png_modes_keep_their_colors(mode: str) -> None:
    picture = picture_of(mode=mode)
    assert (pixels_of(file_of(picture)) == np.asarray(picture.convert("RGB"))).all()


@pytest.mark.parametrize("name", ["JPEG", "WEBP", "GIF"])
def test_each_format_is_read(name: str) -> None:
    data = file_of(picture_of(), name)
    difference = pixels_of(data).astype(int) - np.asarray(picture_of())
    assert abs(difference).max() <= 24


@pytest.mark.parametrize("name", ["PNG", "JPEG", "WEBP"])
def test_a_picture_is_turned_by_its_exif_data(name: str) -> None:
    upright = pixels_of(with_exif(1, name))
    turned = {
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.transpose(1, 0, 2),
        6: np.rot90(upright, -1),
        7: upright[::-1, ::-1].transpose(1, 0, 2),
        8: np.rot90(upright, 1),
    }
    for orientation, expected in turned.items():
        assert (pixels_of(with_exif(orientation, name)) == expected).all(), orientation
    assert (pixels_of(with_exif(9, name)) == upright).all()


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparent_pixels_are_white(mode: str) -> None:
    picture = Image.new("RGBA", (8, 8), (0, 0, 0, 0))
    picture.paste((0, 0, 0, 255), (0, 0, 4, 8))
    picture.putpixel((0, 0), (0, 0, 0, 127))
    found = pixels_of(file_of(picture.convert(mode)))
    assert (found[:, 4:] == 255).all()
    assert (found[1:, :4] == 0).all()
    if mode != "P":
        assert found[0, 0].tolist() == [128, 128, 128]


def test_16_bits_keep_the_upper_8() -> None:
    rows = b"".join(
        b"\0" + b"".join((0x101 * (32 * x)).to_bytes(2, "big") for x in range(8)) for _ in range(8)
    )
    assert (pixels_of(png_of(8, 8, rows, depth=16))[0, :, 0] == np.arange(0, 256, 32)).all()


def test_a_transparent_gray_of_16_bits_is_white() -> None:
    """Of two grays with equal upper bits, the one that the file names."""
    rows = (b"\0" + b"\x20\x01\x20\x02" * 4) * 8
    found = pixels_of(png_of(8, 8, rows, depth=16, more=chunk(b"tRNS", b"\x20\x02")))
    assert found[0, :2, 0].tolist() == [0x20, 255]


def test_cmyk_is_shown_in_its_colors() -> None:
    cyan = Image.new("CMYK", (16, 16), (255, 0, 0, 0))
    assert abs(pixels_of(file_of(cyan, "JPEG"))[4, 4].astype(int) - [0, 255, 255]).max() < 8


def test_a_profile_is_converted_to_srgb() -> None:
    """A picture in a profile of linear light looks dark until it is converted."""
    linear = _linear_profile()
    gray = Image.new("RGB", (16, 16), (55, 55, 55))  # 21% of the light, which sRGB writes as 128
    assert abs(pixels_of(file_of(gray, icc_profile=linear)).astype(int) - 128).max() <= 3


def test_a_profile_of_srgb_changes_nothing() -> None:
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    assert (pixels_of(file_of(picture_of(), icc_profile=profile)) == np.asarray(picture_of())).all()


@pytest.mark.parametrize("profile", [b"", b"x" * 100, b"\0" * 5000, b"x" * 500_000])
def test_a_damaged_profile_is_ignored(profile: bytes) -> None:
    assert (pixels_of(file_of(picture_of(), icc_profile=profile)) == np.asarray(picture_of())).all()


def test_the_first_frame_of_a_gif_is_used() -> None:
    black, white = Image.new("L", (16, 16), 0), Image.new("L", (16, 16), 255)
    assert (pixels_of(file_of(black, "GIF", save_all=True, append_images=[white])) == 0).all()


@pytest.mark.parametrize("name", ["PNG", "WEBP"])
def test_animations_are_refused(name: str) -> None:
    both = file_of(picture_of(), name, save_all=True, append_images=[picture_of(seed=1)])
    assert reason_of(both) == "animated"


def test_a_gif_of_too_many_frames_is_refused() -> None:
    assert reason_of(gif_of(8, 8, 10_000)) == "animated"


@pytest.mark.parametrize("name", ["PNG", "JPEG", "WEBP", "GIF"])
def test_every_truncation_is_refused(name: str) -> None:
    data = file_of(picture_of(), name)
    found = {reason_of(data[:size]) for size in range(20, len(data), max(1, len(data) // 100))}
    assert found == {"damaged"}
    assert reason_of(data[:-1]) == "damaged"


@pytest.mark.parametrize(("width", "height"), [(1, 1), (3, 100), (1, 60_000), (16_385, 8), (8192, 4097)])
def test_sizes_outside_the_limits_are_refused(width: int, height: int) -> None:
    assert reason_of(png_of(width, height)) == "size"


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (b"<?xml version='1.0'?><svg/>", "SVG"),
        (b"%PDF-1.4", "PDF"),
        (b"\0\0\0\x20ftypavif", "AVIF"),
        (b"\0\0\0\x20ftypheic", "HEIC"),
        (b"iVBORw0KGgo", "base64"),
        (b"who knows", "does not know"),
    ],
)
def test_other_formats_are_named(data: bytes, named: str) -> None:
    with pytest.raises(ImageRefusedError, match=named) as caught:
        decode(data, LIMITS)
    assert caught.value.reason == "format"


@pytest.mark.parametrize("name", ["PNG", "JPEG", "WEBP", "GIF"])
@pytest.mark.parametrize("other", [b"%PDF-1.4 ", b"PK\x03\x04 ", b"<svg onload=alert(1)>"])
def test_a_second_file_is_refused(name: str, other: bytes) -> None:
    data = file_of(picture_of(), name)
    assert reason_of(data + other) == "extra_data"
    assert (pixels_of(data + bytes(64)) == pixels_of(data)).all()


def test_a_pdf_in_a_png_is_refused() -> None:
    assert reason_of(png_of(8, 8, more=chunk(b"tEXt", b"a\0%PDF-1.4"))) == "extra_data"


def test_a_camera_s_second_jpeg_is_accepted() -> None:
    data = file_of(picture_of(), "JPEG")
    assert (pixels_of(data + data) == pixels_of(data)).all()


def test_a_file_of_too_many_bytes_is_refused() -> None:
    assert reason_of(file_of(picture_of()), ImageLimits(file_bytes=50)) == "bytes"


def _linear_profile() -> bytes:
    """Return sRGB's profile with linear curves in place of its own."""
    profile = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    number = int.from_bytes(profile[128:132], "big")
    for entry in range(132, 132 + 12 * number, 12):
        name, place = bytes(profile[entry : entry + 4]), int.from_bytes(profile[entry + 4 : entry + 8], "big")
        size = int.from_bytes(profile[entry + 8 : entry + 12], "big")
        if name.endswith(b"TRC"):
            profile[place : place + size] = b"curv" + bytes(size - 4)
        elif name == b"desc":
            profile[place : place + size] = (
                bytes(profile[place : place + size]).replace(b"s\0R", b"l\0R").replace(b"sR", b"lR")
            )
    return bytes(profile)
