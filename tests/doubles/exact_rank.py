"""The process of a rank, in which float16 means float64, as in tests whose results must be exact."""

from __future__ import annotations

import torch

from llmfw.core.engine.process.rank_main import main
from llmfw.core.model.device.dtype_choice import DTYPES

if __name__ == "__main__":
    DTYPES["float16"] = torch.float64
    main()
