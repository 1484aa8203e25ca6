"""Decodes clients' images in child processes, which may crash or hang without affecting other requests.

`ImageDecoder` (`decoder.py`) runs in the API process. It starts worker processes (`worker.py`), each of which
forks a child for every image. The child checks the file's structure (`structure.py` and a module for each
format), decodes it with Pillow (`picture.py`) and ends. So no image can change what happens to the next one.

This package does not import torch. Only a worker imports Pillow, which the extra `images` installs.
"""
