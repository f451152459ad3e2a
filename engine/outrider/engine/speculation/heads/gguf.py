"""Heads in GGUF files, as llama.cpp's converter writes them: the architectures ``eagle3`` and ``dflash``."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import torch
from outrider.engine.errors import ModelError
from outrider.engine.models.fields import Fields
from outrider.engine.models.gguf.checkpoint import rotary_order
from outrider.engine.models.gguf.header import GgufFile
from outrider.engine.models.gguf.metadata import INT32, INT64, UINT32, UINT64
from outrider.engine.models.gguf.names import hugging_face_name
from outrider.engine.models.gguf.rope import rope_parameters
from outrider.engine.models.gguf.tensors import PLAIN, TYPES, tensor, weight
from outrider.native.quantized import dequantized
from torch import Tensor

_NAMES = {
    "fc.weight": "fc.weight",
    "d2t": "d2t",
    "blk.0.attn_norm_2.weight": "layers.0.hidden_norm.weight",
    "markov_w1.weight": "markov_head.markov_w1.weight",
    "markov_w2.weight": "markov_head.markov_w2.weight",
    "conf_proj.weight": "confidence_head.proj.weight",
    "conf_proj.bias": "confidence_head.proj.bias",
}
_STATES_NORM = {"eagle3": "input_norm.weight", "dflash": "hidden_norm.weight"}
_ROTATED = {"q_proj": "attention.head_count", "k_proj": "attention.head_count_kv"}
_WHOLE = {"I64": torch.int64, "I32": torch.int32}
_KNOWN = [
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "vocab_size",
    "target_layers",
    "target_hidden_size",
    "norm_before_residual",
    "norm_before_fc",
    "block_size",
    "sample_from_anchor",
    "has_confidence_head",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.layer_norm_rms_epsilon",
    "attention.key_length",
    "attention.value_length",
]
"""Keys of the architecture that are read, or follow from the tensors; those of ``rope`` are read as a target's."""


class HeadFile:
    """A file as the config.json and the tensors of a directory.

    Attributes:
        fields: what config.json would say, in the layout of SpecForge (EAGLE-3) or DeepSpec.
        names: names of the tensors, as `HeadShape.sizes` has them.

    Raises:
        ModelError: the file is damaged, or of no head that can be read.
    """

    def __init__(self, path: Path) -> None:
        self._file = file = GgufFile.open(path)
        self._architecture = architecture = file.metadata.text("general.architecture")
        if architecture not in _STATES_NORM:
            raise file.metadata.wrong("general.architecture", "eagle3 or dflash, those of heads")
        self._places = {self._name(name): name for name in file.tensors}
        self.fields = Fields(str(path), self._config())

    @property
    def names(self) -> Collection[str]:
        """See above."""
        return self._places.keys()

    def take(self, name: str, shape: Sequence[int]) -> Tensor:
        """A tensor of ``shape``, with quants decoded to float32; `ModelError` otherwise."""
        found = self._shaped(name, shape, TYPES)
        key = _ROTATED.get(name.split(".")[-2]) if self._architecture == "eagle3" else None
        return found if key is None else found[rotary_order(self._file, self._places[name], self._count(key))]

    def take_stored(self, name: str, shape: Sequence[int], dtypes: Collection[str]) -> Tensor:
        """The tensor d2t as directories have it: distances from the head's ids; the file has the target's ids."""
        return self._shaped(name, shape, dtypes) - torch.arange(shape[0])

    def _shaped(self, name: str, shape: Sequence[int], types: Collection[str]) -> Tensor:
        path = self._file.path
        if name not in self._places:
            raise ModelError(f"{path} has no tensor for {name}, which its metadata asks for")
        place = self._file.tensors[self._places[name]]
        own, kind, stored = self._places[name], place.type.name, tuple(shape)
        if kind not in types:
            raise ModelError(f"{path}: {own} has the type {kind}; one of {', '.join(types)} is allowed")
        if place.shape != stored and not (place.shape == stored[1:] and stored[:1] == (1,)):
            raise ModelError(f"{path}: {own} has shape {list(place.shape)}; by its metadata it must be {list(shape)}")
        if kind in PLAIN:
            return tensor(self._file, place).view(stored)
        if kind in _WHOLE:
            data = self._file.data[place.start : place.start + place.size]
            return torch.frombuffer(bytearray(data), dtype=_WHOLE[kind]).long()
        if len(place.shape) != 2:
            raise ModelError(f"{path}: {own} has the type {kind}; one of {', '.join(PLAIN)} is allowed")
        return dequantized(weight(self._file, place), torch.float32)

    def _name(self, name: str) -> str:
        if name == "enc.output_norm.weight":
            return _STATES_NORM[self._architecture]
        known = _NAMES.get(name) or hugging_face_name("qwen3", name)
        return name if known is None else known.removeprefix("model.")

    def _count(self, key: str, default: int | None = None) -> int:
        return self._file.metadata.count(f"{self._architecture}.{key}", default)

    def _config(self) -> dict[str, Any]:
        metadata, architecture = self._file.metadata, self._architecture
        for key in metadata:
            own = key.removeprefix(f"{architecture}.")
            if own != key and own not in _KNOWN and not own.startswith("rope.") and metadata.value(key):
                raise metadata.wrong(key, "absent: heads that need it are not supported")
        hidden, heads = self._count("embedding_length"), self._count("attention.head_count")
        head_dim = self._count("attention.key_length", hidden // heads)
        vocabulary = len(metadata.texts("tokenizer.ggml.tokens"))
        layers = list(metadata.numbers(f"{architecture}.target_layers", (INT32, UINT32, INT64, UINT64)))
        config = {
            "hidden_size": hidden,
            "num_hidden_layers": self._count("block_count"),
            "num_attention_heads": heads,
            "num_key_value_heads": self._count("attention.head_count_kv", heads),
            "head_dim": head_dim,
            "intermediate_size": self._count("feed_forward_length"),
            "rms_norm_eps": metadata.positive(f"{architecture}.attention.layer_norm_rms_epsilon"),
            "rope_parameters": rope_parameters(self._file, architecture, head_dim, 10_000.0),
            "vocab_size": vocabulary,
            "draft_vocab_size": self._shape("output.weight")[0] or vocabulary,
        }
        if architecture == "eagle3":
            return config | {
                "target_hidden_size": self._count("target_hidden_size", hidden),
                "eagle_aux_hidden_state_layer_ids": layers,
                "norm_before_residual": metadata.flag("eagle3.norm_before_residual", False),
            }
        markov, confidence = self._shape("markov_w1.weight"), self._shape("conf_proj.weight")
        return config | {
            "target_layer_ids": [layer - 1 for layer in layers],
            "block_size": self._count("block_size"),
            "mask_token_id": metadata.value("tokenizer.ggml.mask_token_id"),
            "sample_from_anchor": metadata.flag("dflash.sample_from_anchor", False),
            "confidence_head_with_markov": confidence[-1] > hidden,
            **({"markov_rank": markov[-1]} if markov[-1] else {}),
        }

    def _shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor; zeros without it."""
        return self._file.tensors[name].shape if name in self._file.tensors else (0, 0)
