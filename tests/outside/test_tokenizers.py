"""llama.cpp's vocabularies and texts: the ids of every text."""

from __future__ import annotations

import unicodedata
from pathlib import Path

from outrider.engine.text import TextError, Tokenizer

from tests.outside.archives import members
from tests.outside.tally import Tally

_BETWEEN = "\n__ggml_vocab_test__\n"


def test_ids_of_texts_are_those_of_llama_cpp(tmp_path: Path) -> None:
    files = {Path(name).name: data for name, data in members("llama-cpp-python", "*/models/ggml-vocab-*").items()}
    tally, path = Tally("llama.cpp's texts"), tmp_path / "vocabulary.gguf"
    for name in (name.removesuffix(".inp") for name in files if name.endswith(".inp")):
        path.write_bytes(files[name])
        texts, ids = (
            files[f"{name}.inp"].decode().removesuffix(_BETWEEN).split(_BETWEEN),
            files[f"{name}.out"].decode().splitlines(),
        )
        for text, kind in zip(texts, _kinds(path, texts, ids), strict=True):
            tally.add(kind, f"{name}: {text!r}")
    # Refused are the vocabularies of BERT and of Gemma 4. Qwen 3.5's own tokenizer composes texts (NFC), and so does
    # Outrider; llama.cpp does not.
    tally.close(refused=92, composed=3)


def _kinds(path: Path, texts: list[str], lines: list[str]) -> list[str]:
    try:
        tokenizer = Tokenizer.load(path)
    except TextError:
        return ["refused"] * len(texts)
    encoded = tokenizer.encode_batch(texts, add_special=False)
    return [
        "right"
        if ids == list(map(int, line.split()))
        else "composed"
        if unicodedata.normalize("NFC", text) != text
        else "wrong"
        for text, ids, line in zip(texts, encoded, lines, strict=True)
    ]
