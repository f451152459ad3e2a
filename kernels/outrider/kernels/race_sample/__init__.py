"""race_sample: the target's draw by the exponential race; race_topk: a drafter's best guesses at that draw.

The token is ``argmin_v E_v / p_v``, with E the exponential variates that the request's seed fixes for the position
and p the distribution after temperature and truncation; the same as the Gumbel-max trick. A drafter that ranks its
own distribution by the same variates agrees with the target as often as their distributions allow (Daliri, Musco,
Suresh 2024, arXiv 2408.07978).
"""

from outrider.kernels.race_sample.reference import Truncation, race_sample, race_topk, truncate

__all__ = ["Truncation", "race_sample", "race_topk", "truncate"]
