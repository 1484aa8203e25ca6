"""The demo model's training corpus, which is generated: conversations and plain documents."""

from .draw import Draw
from .exchange import Message, Sample
from .mix import SUBJECTS, copying_drills, samples, single

__all__ = ["SUBJECTS", "Draw", "Message", "Sample", "copying_drills", "samples", "single"]
