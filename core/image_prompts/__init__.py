"""Prepares prompts with images in a process of its own, which an image may crash without affecting other requests.

The API process holds an `ImagePrompter` (`prompter.py`), which starts a worker (`worker.py`) when the first image comes. The
worker builds the media processor, which may import torch, and prepares one prompt at a time. If it crashes or takes too
long, that request fails, and another worker is started for the next one. `messages.py` defines what crosses between them.

This package does not import torch. Only the media processor knows how a model reads images.
"""
