"""Writes trained models in Hugging Face's layout, with manifests of SHA-256 digests."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import torch
from outrider.training.drafters.medusa_learner import write_heads
from outrider.training.pocket.corpus import Corpus
from outrider.training.pocket.net import Shape
from safetensors.torch import load_file, save_file

MANIFEST = "MANIFEST.json"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")


def _write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")


def _weights(source: Path, path: Path) -> None:
    tensors = {name: t.to(torch.bfloat16).contiguous() for name, t in load_file(source).items()}
    save_file(tensors, path, metadata={"format": "pt"})
    path.chmod(0o644)


def llama_config(shape: Shape, end: int) -> dict[str, object]:
    """The `config.json` of a decoder of `shape`; `end` is the id of beginning, end and padding."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "bos_token_id": end,
        "eos_token_id": end,
        "pad_token_id": end,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "hidden_size": shape.width,
        "initializer_range": 0.02,
        "intermediate_size": shape.inner,
        "max_position_embeddings": shape.context,
        "mlp_bias": False,
        "num_attention_heads": shape.heads,
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.kv_heads,
        "rms_norm_eps": shape.eps,
        "rope_theta": shape.theta,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "vocab_size": shape.vocab,
    }


def decoder(weights: Path, shape: Shape, tokenizer: Path, end: int, directory: Path) -> None:
    """Writes a decoder's directory from float32 `weights` and the tokenizer's folder."""
    directory.mkdir(parents=True, exist_ok=True)
    _weights(weights, directory / "model.safetensors")
    for name in TOKENIZER_FILES:
        shutil.copy(tokenizer / name, directory)
    _write(directory / "config.json", llama_config(shape, end))
    _write(directory / "generation_config.json", {"bos_token_id": end, "eos_token_id": end, "pad_token_id": end})
    manifest(directory)


def heads(weights: Path, layers: int, shape: Shape, directory: Path) -> None:
    """Writes the Medusa directory from float32 `weights`."""
    write_heads(directory, load_file(weights), layers, shape.vocab, "../target")
    manifest(directory)


def heldout(corpus: Corpus, version: str, path: Path) -> None:
    """Writes a list of held-out and dropped files, with digests, for Python `version`."""
    listed = {
        kind: [{"path": d.path, "sha256": d.digest, "bytes": len(d.text.encode())} for d in documents]
        for kind, documents in (("files", corpus.heldout), ("dropped", corpus.dropped))
    }
    _write(path, {"python": version, **listed})


def manifest(directory: Path) -> None:
    """Writes the digests of the files in `directory`."""
    files = sorted(f for f in directory.iterdir() if f.is_file() and f.name != MANIFEST)
    _write(directory / MANIFEST, {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in files})
