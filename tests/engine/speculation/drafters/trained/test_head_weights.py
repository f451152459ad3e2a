"""A head beside a compiled target multiplies by weights in fewer bits, the copy of an output layer included."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from outrider.engine.models import pocket
from outrider.engine.models.llama import LlamaModel
from outrider.engine.sampling import Sampling
from outrider.engine.speculation import DrafterContext, DrafterError, Opening
from outrider.engine.speculation.drafters.trained.head_drafter import HeadDrafter
from outrider.engine.speculation.heads.block import BlockHead
from outrider.engine.speculation.heads.files import save_head
from outrider.engine.speculation.heads.shape import BlockShape
from torch import Tensor

LAYERS = (2, 4, 5)


@pytest.fixture(scope="module")
def target() -> LlamaModel:
    model = LlamaModel.load(pocket.directory("target"))
    if model.compiled is None:
        pytest.skip("there is no compiled decoder here")
    return model


@pytest.fixture(scope="module")
def directory(target: LlamaModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random head without an output layer of its own."""
    config = target.config
    shape = BlockShape(
        hidden_size=config.hidden_size, target_hidden_size=config.hidden_size, target_layers=LAYERS, layers=1,
        heads=4, kv_heads=2, head_dim=64, intermediate_size=256, norm_eps=1e-5, rope=config.rope,
        vocabulary=config.vocab_size, draft_vocabulary=config.vocab_size, block_size=3, mask_token=0, from_anchor=True,
    )  # fmt: skip
    dice = torch.Generator().manual_seed(0)
    tensors = {name: torch.randn(size, generator=dice) * size[-1] ** -0.5 for name, size in shape.sizes().items()}
    directory = tmp_path_factory.mktemp("head")
    save_head(directory, BlockHead(shape, tensors))
    return directory


def drafter(directory: Path, target: LlamaModel, quantization: str) -> HeadDrafter:
    options = {"quantization": quantization, "children": 1, "least_value": 0.0}
    config = target.config
    return HeadDrafter(
        DrafterContext("v", config.vocab_size, 99, directory, options=options, target=target, config=config)
    )


def first_guesses(made: HeadDrafter, count: int = 64) -> Tensor:
    dice = torch.Generator().manual_seed(1)
    for number in range(count):
        made.open(number, Opening(torch.randint(4096, (2,), generator=dice).tolist(), Sampling(0.0), 8))
        made.see(number, 0, torch.randn(1, len(LAYERS), 256, generator=dice))
    return torch.tensor([tree.tokens[0] for _, tree in sorted(made.draft(), key=lambda each: each[0])])


@pytest.mark.parametrize(("quantization", "same"), [("int8", 0.9), ("int4", 0.5), ("auto", 0.5)])
def test_guesses_in_fewer_bits_are_mostly_those_of_the_weights(
    target: LlamaModel, directory: Path, quantization: str, same: float
) -> None:
    made = drafter(directory, target, quantization)
    expected = first_guesses(drafter(directory, target, "none"))
    assert (first_guesses(made) == expected).float().mean() > same
    rows = torch.randn(3, 256, generator=torch.Generator().manual_seed(2))
    difference = made.head.output(rows) - target.logits(rows)
    assert 0 < difference.std() < 0.2 * target.logits(rows).std()


def test_another_name_of_a_quantization_is_refused(target: LlamaModel, directory: Path) -> None:
    with pytest.raises(DrafterError, match="quantization is 'int3'; it must be one of auto, none, int8, int4"):
        drafter(directory, target, "int3")
