"""Builds the reader of images in requests from the settings."""

from __future__ import annotations

import importlib.util
import logging

from llmfw.api.files.images import image_file_reader
from llmfw.api.files.service import FileService
from llmfw.api.media.reader import ImageReader
from llmfw.api.media.settings import image_limits, media_policy
from llmfw.api.media.vision import ImagePrompts, Vision
from llmfw.core.base.config import ServerConfig
from llmfw.core.media.worker import HINT

logger = logging.getLogger(__name__)


def build_vision(
    prompts: ImagePrompts | None, config: ServerConfig, files: FileService | None
) -> Vision | None:
    """Return the reader of images with the model's processor; None if the model reads text only.

    Args:
        prompts: the model's image processor; None: the model has none.
        files: files that clients have uploaded; None: there are none.
    """
    if prompts is None:
        return None
    if importlib.util.find_spec("PIL") is None:
        logger.warning("The model reads images, but %s", HINT)
    reader = ImageReader(
        image_limits(config), media_policy(config), config.max_images, image_file_reader(files)
    )
    return Vision(reader, prompts)
