"""Decodes clients' images and prepares them for a model, in child processes.

A child may crash or hang without affecting other requests.

`ImageDecoder` (`decoder.py`) and `ImagePrompter` (`prompter.py`) run in the API process. They start processes
(`worker.py`, `prompt_worker.py`) that fork a child for every job. To decode, the child checks the file's
structure (`structure.py` and a module for each format), and uses Pillow (`picture.py`). So an image cannot
affect the next image.

This package does not import torch. Pillow, which the extra `images` installs, and the media processor are
imported only in these processes.
"""
