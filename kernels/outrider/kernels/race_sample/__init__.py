"""race_sample: the target's draw by the exponential race; race_topk: a drafter's best guesses at that draw.

The token is ``argmin_v E_v / p_v``, with E the exponential variates that the request's seed fixes for the position
and p the distribution after temperature and truncation; the same as the Gumbel-max trick. A drafter that ranks its
own distribution by the same variates agrees with the target as often as their distributions allow (Daliri, Musco,
Suresh 2024, arXiv 2408.07978).

`draw` goes from raw logits to tokens in one call, for rows of different requests; tokens are the same on every device.
"""

from __future__ import annotations

from collections.abc import Sequence

from outrider.kernels.backend import takes_triton
from outrider.kernels.race_sample import cpu, reference
from outrider.kernels.race_sample.draws import Draws, Penalties
from outrider.kernels.race_sample.reference import edited_logits, race_sample, race_topk
from outrider.kernels.race_sample.truncation import Truncation, truncate
from torch import Tensor

__all__ = [
    "Draws",
    "Penalties",
    "Truncation",
    "draw",
    "edited_logits",
    "race",
    "race_sample",
    "race_topk",
    "truncate",
]


def draw(logits: Tensor, draws: Draws) -> Tensor:
    """One token a row: penalties, temperature, grammar mask, top-k, top-p, min-p, and the race.

    A row's token depends on that row alone, and is the same on every device.

    Args:
        logits: float32, bfloat16 or float16 [n, V], as the model gave them.
        draws: the rows' parameters.

    Returns:
        int32 [n]; -1 where nothing can be drawn: a logit is NaN or 1e30 or more, before or after penalties, or every
        token is impossible or forbidden.

    Raises:
        ValueError: the parameters do not fit the logits.
    """
    if takes_triton(logits.device):
        from outrider.kernels.race_sample import triton

        return triton.draw(logits, draws)
    if logits.device.type == "cpu":
        return cpu.draw(logits, draws)
    return reference.draw(logits, draws)


def race(
    logits: Tensor, seeds: Sequence[int], positions: Sequence[int], temperatures: Sequence[float]
) -> list[int] | None:
    """Draws by the compiled race, for rows without penalties, mask and truncation.

    Args:
        logits: float32 [n, V].
        seeds: of each row, 0 to 2**64 - 1.
        positions: of each row's token to draw.
        temperatures: of each row; 0 takes the likeliest token.

    Returns:
        The tokens, -1 where nothing can be drawn. None without compiled code, and where a logit is NaN or 1e30 or more.
    """
    return cpu.race(logits, seeds, positions, temperatures) if logits.device.type == "cpu" else None
