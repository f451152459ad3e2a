"""The longest answer that a request may have."""

from __future__ import annotations

from outrider.gateway.admission.caller import Caller
from outrider.gateway.request.generation import Generation, Messages
from outrider.gateway.request.models import ServedModel
from outrider.mesh.errors import ContextExceeded, InvalidRequest


def longest_answer(served: ServedModel, generation: Generation, prompt: int, caller: Caller) -> int:
    """The most tokens of an answer to a prompt of ``prompt`` tokens: as many as asked for and as the context has left.

    Raises `ContextExceeded` for a prompt that fills the context of the model or of the caller, unless there is to be no
    answer, and `InvalidRequest` for an empty prompt or for an answer longer than the caller may have.
    """
    room = _room(served, generation, prompt, caller)
    requested, limit = generation.sampling.max_tokens, caller.lowest("max_output_tokens")
    if limit is None:
        return room if requested is None else min(room, requested)
    if requested is not None and requested > limit[0]:
        raise InvalidRequest(
            f"max_tokens: {requested} is more than {limit[1]} may have generated, {limit[0]} tokens an answer",
            param="max_tokens",
        )
    return min(room, limit[0] if requested is None else requested)


def _room(served: ServedModel, generation: Generation, prompt: int, caller: Caller) -> int:
    """Tokens that the context has left for an answer."""
    param = "messages" if isinstance(generation.prompt, Messages) else "prompt"
    if prompt == 0:
        raise InvalidRequest(f"{param} must hold at least one token", param=param)
    context, whose = served.context_length, "this model's"
    limit = caller.lowest("max_context_tokens")
    if limit is not None and limit[0] < context:
        context, whose = limit[0], f"{limit[1]}'s"
    if prompt > context or (prompt == context and generation.sampling.max_tokens != 0):
        raise ContextExceeded(
            f"{param}: {prompt} tokens leave no room for an answer; {whose} maximum context length is {context} tokens",
            param=param,
        )
    return context - prompt
