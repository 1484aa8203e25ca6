"""Decodes an image file with Pillow to RGB pixels. Runs in a child of a worker process (`worker`)."""

from __future__ import annotations

import contextlib
import io
import warnings
from typing import Any

from PIL import Image as Pillow
from PIL import ImageChops, ImageCms, MpoImagePlugin  # noqa: F401 - see `warm_up`

from .limits import ImageLimits, ImageRefusedError
from .structure import READERS, read_structure

Pillow.MAX_IMAGE_PIXELS = None  # `read_structure` enforces our own limits, with our own errors
warnings.simplefilter("ignore")

_ORIENTATION = 0x0112
_TURNS: dict[int, Pillow.Transpose] = {
    2: Pillow.Transpose.FLIP_LEFT_RIGHT,
    3: Pillow.Transpose.ROTATE_180,
    4: Pillow.Transpose.FLIP_TOP_BOTTOM,
    5: Pillow.Transpose.TRANSPOSE,
    6: Pillow.Transpose.ROTATE_270,
    7: Pillow.Transpose.TRANSVERSE,
    8: Pillow.Transpose.ROTATE_90,
}
"""EXIF orientation → how to turn the picture."""

_MAX_PROFILE = 4 * 2**20
_SRGB = ImageCms.createProfile("sRGB")
_WHITE = (255, 255, 255)


def decode(data: bytes, limits: ImageLimits) -> tuple[int, int, bytes]:
    """Decode a file; return the width, the height, and the pixels as `llmfw.core.base.image.Image` has them.

    Transparent pixels are blended with white. Colors are converted to sRGB if the file has another color
    profile; a profile that cannot be used is ignored, as browsers do. Channels of 16 bits keep their upper 8.

    Raises:
        ImageRefusedError: the file is not accepted.
        MemoryError: decoding takes more memory than the process may use.
    """
    name, outline = read_structure(data, limits)
    try:
        with Pillow.open(io.BytesIO(data), formats=(name.upper(),)) as opened:
            if opened.size != (outline.width, outline.height):
                raise ImageRefusedError("damaged", f"is a damaged {name}: it states two sizes")
            opened.load()
            picture = to_rgb(opened)
    except (ImageRefusedError, MemoryError):
        raise
    except Exception:  # noqa: BLE001 - Pillow raises many kinds, and their texts are not for clients
        raise ImageRefusedError(
            "damaged", f"is an incomplete or damaged {name}; it cannot be decoded"
        ) from None
    return (*picture.size, picture.tobytes())


def warm_up() -> None:
    """Decode a small picture of each format, with metadata, so that Pillow imports all that it needs.

    The processes that decode clients' images cannot open files, and so cannot import modules.
    """
    small = Pillow.new("RGB", (8, 8))
    exif = Pillow.Exif()
    exif[_ORIENTATION] = 6
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes()
    for name in READERS:
        file = io.BytesIO()
        extra: dict[str, Any] = {} if name == "GIF" else {"exif": exif.tobytes(), "icc_profile": profile}
        small.save(file, name.upper(), **extra)
        decode(file.getvalue(), ImageLimits())


def to_rgb(opened: Pillow.Image) -> Pillow.Image:
    """Return a picture in the mode RGB: turned upright, in sRGB, on white."""
    orientation = _orientation(opened)
    profile = opened.info.get("icc_profile")
    picture = _of_8_bits(opened)
    alpha = None
    if picture.has_transparency_data:
        picture = picture.convert("RGBA")
        alpha = picture.getchannel("A")
        picture = picture.convert("RGB")
    elif picture.mode not in ("RGB", "L", "CMYK", "LAB"):
        picture = picture.convert("RGB")
    picture = _in_srgb(picture, profile)
    if alpha is not None:
        white = Pillow.new("RGB", picture.size, _WHITE)
        white.paste(picture, mask=alpha)
        picture = white
    turn = _TURNS.get(orientation)
    return picture if turn is None else picture.transpose(turn)


def _of_8_bits(picture: Pillow.Image) -> Pillow.Image:
    """Convert a gray picture from 16 bits to 8. Pillow's own conversion would clip bright values."""
    if not picture.mode.startswith("I"):
        return picture
    both = (picture if picture.mode == "I;16" else picture.convert("I;16")).tobytes("raw", "I;16B")
    upper, lower = (Pillow.frombytes("L", picture.size, both[start::2]) for start in (0, 1))
    transparent = picture.info.get("transparency")  # the 16-bit gray value that is transparent
    if not isinstance(transparent, int):
        return upper
    fits = [
        half.point([255 * (value == wanted) for value in range(256)])
        for half, wanted in zip((upper, lower), divmod(transparent, 256), strict=True)
    ]
    return Pillow.merge("LA", (upper, ImageChops.invert(ImageChops.multiply(*fits))))


def _orientation(picture: Pillow.Image) -> int:
    try:
        value: Any = picture.getexif().get(_ORIENTATION, 1)
        return value if isinstance(value, int) else 1
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - the data may be anything; a picture is readable without it
        return 1


def _in_srgb(picture: Pillow.Image, profile: Any) -> Pillow.Image:
    converted = None
    if isinstance(profile, bytes) and 0 < len(profile) <= _MAX_PROFILE:
        with contextlib.suppress(
            OSError, ValueError, TypeError, ImageCms.PyCMSError
        ):  # the profile is unusable, or for pictures of another mode
            found = ImageCms.ImageCmsProfile(io.BytesIO(profile))
            if "sRGB" not in ImageCms.getProfileDescription(found):  # a conversion would only round pixels
                converted = ImageCms.profileToProfile(picture, found, _SRGB, outputMode="RGB")
    return picture.convert("RGB") if converted is None else converted
