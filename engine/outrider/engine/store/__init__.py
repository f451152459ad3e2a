"""Models by name: where their files are, how these come from the Hugging Face Hub, whether they are as they were.

In: a model as a setting names it. Out: its directory or GGUF file. Any process may use this room: it needs no torch.
"""

from outrider.engine.errors import ModelError
from outrider.engine.models.gguf.header import is_gguf
from outrider.engine.store.drafters import drafter_of
from outrider.engine.store.integrity import Integrity, check
from outrider.engine.store.locate import Shipped, locate, obtain, pin
from outrider.engine.store.names import POCKET, is_path, served_name
from outrider.engine.store.progress import Watch, at_intervals, logged, unwatched

__all__ = [
    "POCKET",
    "Integrity",
    "ModelError",
    "Shipped",
    "Watch",
    "at_intervals",
    "check",
    "drafter_of",
    "is_gguf",
    "is_path",
    "locate",
    "logged",
    "obtain",
    "pin",
    "served_name",
    "unwatched",
]
