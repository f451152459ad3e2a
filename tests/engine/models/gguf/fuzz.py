"""Loads damaged GGUF files: each either loads, or is refused with an error of a model or of a text.

    python -m tests.engine.models.gguf.fuzz DIRECTORY SEED COUNT

Prints the mutations that loaded and those that were refused, and the megabytes of memory that they took. A file that
takes longer than `MOST_S` ends the process.
"""

from __future__ import annotations

import json
import random
import signal
import sys
from collections import Counter
from pathlib import Path

import torch
from outrider.engine.errors import ModelError
from outrider.engine.models.config import ModelConfig
from outrider.engine.models.gguf.checkpoint import GgufCheckpoint
from outrider.engine.models.gguf.header import GgufFile
from outrider.engine.models.gguf.names import hugging_face_name
from outrider.engine.text import TextError, Tokenizer

MOST_S = 30
_NUMBERS = [0, 1, 2, 7, 255, 2**16, 2**31, 2**32 - 1, 2**40, 2**63, 2**64 - 1]
_TEXTS = [b"", b"\xff\xfe", b"GGUF", b"tokenizer.ggml.", b"blk.0.", b"<0x0A>", b"{{ x }}", "▁".encode()]


def mutated(contents: bytes, dice: random.Random, header: int) -> bytes:
    """The contents with one to four changes, most of them in the first ``header`` bytes."""
    changed = bytearray(contents)
    for _ in range(dice.choice([1, 1, 1, 2, 4])):
        end = len(changed) if dice.random() < 0.1 else min(header, len(changed))
        _change(changed, dice, dice.randrange(max(end, 1)))
    return bytes(changed)


def _change(contents: bytearray, dice: random.Random, at: int) -> None:
    match dice.randrange(7):
        case 0:
            contents[at : at + 1] = bytes([dice.randrange(256)])
        case 1:
            contents[at : at + 8] = dice.choice(_NUMBERS).to_bytes(8, "little")
        case 2:
            contents[at : at + 4] = (dice.choice(_NUMBERS) % 2**32).to_bytes(4, "little")
        case 3:
            del contents[at : at + dice.randrange(1, 64)]
        case 4:
            contents[at:at] = dice.choice(_TEXTS)
        case 5:
            contents[at:at] = contents[at : at + dice.randrange(1, 64)]
        case 6:
            del contents[at:]


def load(path: Path) -> None:
    """Reads all of a file: configuration, tokenizer and tensors."""
    ModelConfig.load(path)
    tokenizer = Tokenizer.load(path)
    tokenizer.decode(tokenizer.encode("def f(x): naïve 你好 <|im_end|>", parse_special=True))
    if tokenizer.has_chat_template:
        tokenizer.encode_chat([{"role": "user", "content": "hi"}])
    file = GgufFile.open(path)
    checkpoint = GgufCheckpoint(file)
    for own, place in file.tensors.items():
        name = hugging_face_name(file.metadata.text("general.architecture"), own)
        if name is None:
            continue
        taken = checkpoint.take(name, place.shape)
        if not isinstance(taken, torch.Tensor):
            taken.quants(torch.arange(min(taken.shape[0], 64)))
    checkpoint.finish()


def outcome(path: Path) -> str:
    """``loaded`` or ``refused``; other exceptions leave."""
    try:
        load(path)
    except (ModelError, TextError) as error:
        if "\n" in str(error):
            raise RuntimeError("an error of several lines") from error
        return "refused"
    return "loaded"


def memory() -> int:
    """Most memory of this process so far, in megabytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) >> 10 for line in lines if line.startswith("VmHWM:"))


def main(directory: Path, seed: int, count: int) -> None:
    """Tries mutations of every file of a directory."""
    dice, outcomes = random.Random(seed), Counter[str]()
    files = {path: GgufFile.open(path) for path in sorted(directory.glob("*.gguf"))}
    for path in files:
        assert outcome(path) == "loaded"
    before, target = memory(), directory / "mutated.gguf"
    for number in range(count):
        path = list(files)[number % len(files)]
        header = min(place.start for place in files[path].tensors.values())
        target.write_bytes(mutated(path.read_bytes(), dice, header))
        signal.alarm(MOST_S)
        try:
            outcomes[outcome(target)] += 1
        except BaseException:
            print(f"mutation {number} of seed {seed}, of {path.name}", file=sys.stderr)
            raise
        target.unlink()
    print(json.dumps({**outcomes, "megabytes": memory() - before}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
