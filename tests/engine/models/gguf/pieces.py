"""A small vocabulary of SentencePiece."""

from __future__ import annotations

from tests.engine.models.gguf.words import BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED
from tests.engine.text.makers import CORPUS


def pieces() -> list[tuple[str, float, int]]:
    """Texts, scores and types: pieces of the corpus, the more frequent the better."""
    text = "".join(CORPUS).replace(" ", "▁")
    runs = {text[at : at + length] for length in (2, 3, 4, 5) for at in range(0, len(text) - 5, 3)}
    scored = sorted(runs, key=lambda run: (-text.count(run) * (len(run) - 1), run))[:300]
    letters = sorted(set(text + "▁abcdefghijklmnopqrstuvwxyz"))
    return [
        ("<unk>", 0.0, UNKNOWN),
        ("<s>", 0.0, CONTROL),
        ("</s>", 0.0, CONTROL),
        *((f"<0x{byte:02X}>", 0.0, BYTE) for byte in range(256)),
        ("<tag>", -1000.0, USER_DEFINED),
        *((run, -float(rank), NORMAL) for rank, run in enumerate(scored)),
        *((letter, -1e4 - rank, NORMAL) for rank, letter in enumerate(letters)),
    ]
