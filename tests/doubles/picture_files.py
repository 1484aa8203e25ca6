"""Image files of all kinds, made with Pillow: good ones, and 300 that are meant to do harm."""

from __future__ import annotations

import io
import random
import struct
import zlib
from collections.abc import Iterator
from typing import Any

from PIL import Image, ImageCms

FORMATS = ("PNG", "JPEG", "WEBP", "GIF")


def file_of(picture: Image.Image, name: str = "PNG", **options: Any) -> bytes:
    """Return a picture as a file."""
    file = io.BytesIO()
    picture.save(file, name, **options)
    return file.getvalue()


def picture_of(width: int = 40, height: int = 24, mode: str = "RGB", seed: int = 0) -> Image.Image:
    """Return a picture of smooth colors, which every format keeps recognizable."""
    red, green = random.Random(seed).sample(range(40, 200), 2)
    picture = Image.new("RGB", (width, height))
    picture.putdata([(red, green, 255 * x // width) for _ in range(height) for x in range(width)])
    return picture.convert(mode)


def chunk(kind: bytes, content: bytes) -> bytes:
    """Return a chunk of a PNG."""
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png_of(width: int, height: int, pixels: bytes = b"\0" * 64, depth: int = 8, more: bytes = b"") -> bytes:
    """Return a gray PNG whose header states a size, whatever its pixels are."""
    header = struct.pack(">IIBBBBB", width, height, depth, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + more
        + chunk(b"IDAT", zlib.compress(pixels, 9))
        + chunk(b"IEND", b"")
    )


def gif_of(width: int, height: int, num_frames: int) -> bytes:
    """Return a GIF of tiny frames on a screen of this size."""
    frame = struct.pack("<BHHHHB", 0x2C, 0, 0, 1, 1, 0) + b"\x02\x02\x44\x01\x00"
    screen = struct.pack("<HHBBB", width, height, 0x80, 0, 0)
    return b"GIF89a" + screen + b"\0\0\0\xff\xff\xff" + frame * num_frames + b";"


def with_exif(orientation: int, name: str = "PNG") -> bytes:
    """Return a file whose EXIF data state an orientation."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    return file_of(picture_of(), name, exif=exif.tobytes())


def resized_header(data: bytes, width: int, height: int) -> bytes:
    """Return a file whose header states another size than its pixels have."""
    if data.startswith(b"\x89PNG"):
        header = struct.pack(">II", width, height) + data[24:29]
        return data[:8] + chunk(b"IHDR", header) + data[33:]
    if data.startswith(b"GIF8"):
        return data[:6] + struct.pack("<HH", width & 0xFFFF, height & 0xFFFF) + data[10:]
    if data.startswith(b"RIFF"):
        place = data.index(b"\x9d\x01\x2a") + 3
        return data[:place] + struct.pack("<HH", width & 0x3FFF, height & 0x3FFF) + data[place + 4 :]
    place = data.index(b"\xff\xc0") + 5
    return data[:place] + struct.pack(">HH", height & 0xFFFF, width & 0xFFFF) + data[place + 4 :]


def hostile_files() -> list[tuple[str, bytes]]:
    """Return 300 files and their names, the same at every call."""
    good = {name: file_of(picture_of(64, 48), name) for name in FORMATS}
    found = [*_cut(good), *_flipped(good), *_bombs(good), *_disguised(good), *_profiles(), *_odd()]
    draw = random.Random(300)
    while len(found) < 300:
        name = draw.choice(FORMATS)
        data = bytearray(good[name])
        for _ in range(20):
            data[draw.randrange(len(data))] = draw.randrange(256)
        found.append((f"{name} with noise {len(found)}", bytes(data)))
    assert len(found) == 300
    return found


def _cut(good: dict[str, bytes]) -> Iterator[tuple[str, bytes]]:
    for name, data in good.items():
        for part in range(20):
            size = len(data) * part // 20
            yield f"{name} of {size} bytes", data[:size]


def _flipped(good: dict[str, bytes]) -> Iterator[tuple[str, bytes]]:
    draw = random.Random(1)
    for name, data in good.items():
        for _ in range(20):
            flipped = bytearray(data)
            place = draw.randrange(len(data))
            flipped[place] ^= 1 << draw.randrange(8)
            yield f"{name} with byte {place} flipped", bytes(flipped)


def _bombs(good: dict[str, bytes]) -> Iterator[tuple[str, bytes]]:
    for width, height in (
        (1, 60_000),
        (60_000, 1),
        (65_535, 65_535),
        (2**31 - 1, 2**31 - 1),
        (16_000, 16_000),
        (0, 0),
    ):
        for name, data in good.items():
            yield f"{name} whose header says {width}x{height}", resized_header(data, width, height)
    yield "a PNG of 30,000 x 30,000 zeros", png_of(30_000, 30_000, b"\0" * 4_000_000, 1)
    yield "a PNG with 40 MB of zeros for 64 pixels", png_of(8, 8, b"\0" * 40_000_000)
    yield (
        "a PNG with a text bomb",
        png_of(8, 8, more=chunk(b"zTXt", b"a\0\0" + zlib.compress(b"x" * 20_000_000))),
    )
    bomb = b"p\0\0" + zlib.compress(b"\0" * 20_000_000)
    yield "a PNG with a profile bomb", png_of(8, 8, more=chunk(b"iCCP", bomb))
    yield "a GIF of 10,000 frames", gif_of(100, 100, 10_000)
    yield "a GIF of 65,535 x 65,535", gif_of(65_535, 65_535, 1)
    yield "a GIF of 900 frames of 16,000 x 2,000", gif_of(16_000, 2_000, 900)
    for name in ("PNG", "WEBP"):
        yield (
            f"an animated {name}",
            file_of(picture_of(), name, save_all=True, append_images=[picture_of(seed=2)]),
        )


def _disguised(good: dict[str, bytes]) -> Iterator[tuple[str, bytes]]:
    pdf, archive, page = (
        b"%PDF-1.7\n1 0 obj\n",
        b"PK\x03\x04" + b"\0" * 26,
        b"<html><script>alert(1)</script>",
    )
    for name, data in good.items():
        for what, file in (("PDF", pdf), ("ZIP", archive), ("HTML", page)):
            yield f"{name} followed by {what}", data + file
            yield f"{what} followed by {name}", file + data
    for name, data in good.items():
        for other in FORMATS:
            if other != name:
                yield f"{name} with the first bytes of {other}", good[other][:12] + data[12:]
    yield (
        "SVG",
        b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/></svg>',
    )
    yield "PostScript", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(%pipe%id) (w) file\n"
    yield (
        "a list for ImageMagick",
        b"push graphic-context\nimage over 0,0 0,0 'ephemeral:/etc/passwd'\npop graphic-context\n",
    )
    yield "a PDF in a PNG's text", png_of(8, 8, more=chunk(b"tEXt", b"a\0" + pdf))
    for other in ("BMP", "TIFF", "ICO", "PPM", "PCX", "TGA", "SGI"):
        yield f"a {other}", file_of(picture_of(), other)
    yield "nothing", b""
    yield "zeros", bytes(10_000)
    yield "text", b"hello, world\n" * 1000
    yield "a data: URL in the file", b"data:image/png;base64,iVBORw0KGgo="


def _profiles() -> Iterator[tuple[str, bytes]]:
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes()
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    draw = random.Random(2)
    for i in range(10):
        damaged = bytearray(srgb)
        for _ in range(30):
            damaged[draw.randrange(128, len(damaged))] = draw.randrange(256)
        yield f"a JPEG with a damaged profile {i}", file_of(picture_of(), "JPEG", icc_profile=bytes(damaged))
    for name in ("PNG", "JPEG", "WEBP"):
        yield (
            f"{name} with a profile in a profile",
            file_of(picture_of(), name, icc_profile=srgb[:128] + srgb * 40),
        )
        yield (
            f"{name} with a profile of another color space",
            file_of(picture_of(), name, icc_profile=profile),
        )
    yield "CMYK with a profile for RGB", file_of(picture_of(mode="CMYK"), "JPEG", icc_profile=srgb)
    yield "CMYK without a profile", file_of(picture_of(mode="CMYK"), "JPEG")


def _odd() -> Iterator[tuple[str, bytes]]:
    exif = b"Exif\0\0II*\0\x08\0\0\0\xff\xff" + b"\xff" * 60
    yield "a JPEG with damaged EXIF data", file_of(picture_of(), "JPEG", exif=exif)
    for orientation in (0, 9, 255, 65_535):
        yield f"a PNG with orientation {orientation}", with_exif(orientation)
    for width, height in ((1, 1), (1, 50), (2, 2), (3, 4000)):
        yield f"a PNG of {width}x{height}", file_of(picture_of(width, height))
    scans = file_of(picture_of(), "JPEG", progressive=True)
    yield (
        "a JPEG whose scans are repeated",
        scans[:-2] + scans[scans.index(b"\xff\xda") : -2] * 300 + scans[-2:],
    )
    yield "a JPEG of markers alone", b"\xff\xd8" + b"\xff\xfe\x00\x02" * 200_000 + b"\xff\xd9"
    yield "a PNG of empty chunks", png_of(8, 8, more=chunk(b"teSt", b"") * 100_000)
    yield "a GIF of empty comments", b"GIF89a\x08\0\x08\0\0\0\0" + b"\x21\xfe\0" * 300_000 + b";"
