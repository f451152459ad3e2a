"""The sizes of the checks: those of a GPU, and tiny ones that a CPU interprets in a minute."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from outrider.benches.kernels.cases import Step
from outrider.kernels.shapes import SHAPES, ModelShape


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the checks run at.

    Attributes:
        device: of all tensors.
        shapes: whose kernels are compared with torch.
        steps: at which they are compared.
        beside: numbers of rows beside which one row must keep its bits.
        timed_shapes: whose kernels are measured.
        timed_steps: at which they are measured.
        config: ``config.json`` of the model with random weights.
        experts: what makes it a model with experts.
        dtype: of that model.
        pool_tokens: of that model's pages; longer contexts share them.
        contexts: tokens before the rows of a measured step.
        rows: of the measured steps, one a sequence.
        streams: of the engine.
        prompt: tokens of a prompt.
        answer: tokens of an answer.
    """

    device: torch.device
    shapes: tuple[ModelShape, ...]
    steps: tuple[Step, ...]
    beside: tuple[int, ...]
    timed_shapes: tuple[ModelShape, ...]
    timed_steps: tuple[Step, ...]
    config: dict[str, Any]
    experts: dict[str, Any]
    dtype: str
    pool_tokens: int
    contexts: tuple[int, ...]
    rows: tuple[int, ...]
    streams: tuple[int, ...]
    prompt: int
    answer: int


_EIGHT = SHAPES["llama-3.1-8b"]
_ODD = ModelShape("odd", 1000, 10, 2, 80, 1736, 5003, 2)
_TOY = ModelShape("toy", 48, 4, 2, 64, 40, 64, 2, torch.float32, torch.float32)

_LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "eos_token_id": 0,
    "torch_dtype": "bfloat16",
}
_EXPERTS: dict[str, Any] = {
    "architectures": ["MixtralForCausalLM"],
    "hidden_size": 2048,
    "intermediate_size": 768,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_local_experts": 128,
    "num_experts_per_tok": 8,
}
"""As many and as wide as those of Qwen3-30B-A3B."""
_TINY = _LLAMA | {
    "vocab_size": 320,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 256,
    "torch_dtype": "float32",
}


def full() -> Sizes:
    """Those of a GPU: a model of 0.5 B, one of 8 B, and an eighth of one of 70 B."""
    return Sizes(
        device=torch.device("cuda"),
        shapes=(
            ModelShape("0.5b", 896, 14, 2, 64, 4864, 151936, 24),
            _EIGHT,
            replace(_EIGHT, name="8b-fp8", kv_dtype=torch.float8_e4m3fn, quantization="fp8"),
            SHAPES["llama-3.1-8b-int4"],
            replace(SHAPES["llama-3.1-8b-float8"], layers=1),
            ModelShape("70b/8", 8192, 8, 1, 128, 3584, 16032, 80),
            _ODD,
            replace(_ODD, name="odd-fp8", kv_dtype=torch.float8_e4m3fn, quantization="fp8"),
            replace(_ODD, name="odd-int4", kv_dtype=torch.int8, quantization="int4"),
        ),
        steps=(Step("1 row", 1, 1, 300), Step("3 trees of 17", 3, 17, 300), Step("300 of prompt", 1, 300, 64)),
        beside=(2, 64, 300),
        timed_shapes=(_EIGHT, SHAPES["llama-3.1-8b-int4"], SHAPES["llama-3.1-8b-float8"]),
        timed_steps=(
            Step("decode-8k", 1, 1, 8192),
            Step("verify-64-8k", 1, 64, 8192),
            Step("prefill-512", 1, 512, 4096),
            Step("decode-32", 32, 1, 4096),
        ),
        config=_LLAMA,
        experts=_EXPERTS,
        dtype="bfloat16",
        pool_tokens=131072,
        contexts=(256, 2048, 8192),
        rows=(1, 8, 32, 64, 128, 320),
        streams=(1, 8, 64, 128),
        prompt=64,
        answer=48,
    )


def dry() -> Sizes:
    """Tiny ones, for Triton's interpreter."""
    return Sizes(
        device=torch.device("cpu"),
        shapes=(_TOY, replace(_TOY, name="toy-int8", quantization="int8", kv_dtype=torch.int8)),
        steps=(Step("2 trees of 6", 2, 6, 9),),
        beside=(3,),
        timed_shapes=(_TOY,),
        timed_steps=(Step("2 trees of 6", 2, 6, 9),),
        config=_TINY,
        experts={"architectures": ["MixtralForCausalLM"], "num_local_experts": 3, "num_experts_per_tok": 2},
        dtype="float32",
        pool_tokens=512,
        contexts=(16,),
        rows=(1, 3),
        streams=(1, 2),
        prompt=8,
        answer=3,
    )
