"""Hostile messages at the NATS API."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import nats.errors

from tests.gateway.hostile.case import ANSWER_S, SERVED, Case, Outcome, Target, error_message

_FLOOD = 300
_SILENCE_S = 0.5
SILENCE = "no answer"
_CODE = "Nats-Service-Error-Code"


async def _ask(target: Target, subject: str, data: bytes, **headers: str) -> Outcome:
    sent = ({"Authorization": f"Bearer {target.key}"} if target.key else {}) | headers
    try:
        answer = await target.nats.request(f"outrider.v1.{subject}", data, timeout=ANSWER_S, headers=sent or None)
    except nats.errors.TimeoutError:
        return Outcome(SILENCE)
    return Outcome((answer.headers or {}).get(_CODE, SERVED), error_message(answer.data))


def _case(name: str, what: str, answer: str, says: str, run: Callable[[Target], Awaitable[Outcome]]) -> Case:
    return Case(name, "NATS", what, (answer,), says, run)


def _sent(name: str, what: str, answer: str, says: str, subject: str, data: bytes) -> Case:
    return _case(name, what, answer, says, lambda target: _ask(target, subject, data))


def _asked(name: str, what: str, answer: str, says: str, subject: str = "generate", **body: Any) -> Case:
    return _sent(name, what, answer, says, subject, msgspec.json.encode(body))


async def _largest(target: Target) -> Outcome:
    """As large as the broker lets a message be."""
    prompt = "a" * (target.nats.max_payload - 2000)
    return await _ask(target, "generate", msgspec.json.encode({"prompt": prompt, "max_tokens": 1}))


async def _foreign_reply(target: Target, reply: str) -> Outcome:
    """Has the gateway answer on a subject that is no inbox, where nothing may arrive."""
    heard = await target.nats.subscribe("outrider.scratch.hostile")
    headers = {"Authorization": f"Bearer {target.key}"} if target.key else None
    try:
        await target.nats.publish("outrider.v1.models", b"", reply=reply, headers=headers)
        await heard.next_msg(timeout=_SILENCE_S)
    except nats.errors.TimeoutError:
        return Outcome(SILENCE)
    finally:
        await heard.unsubscribe()
    return Outcome("an answer")


async def _flood(target: Target, subject: str) -> Outcome:
    """Many requests at once: each has an answer."""
    outcomes = await asyncio.gather(*(_ask(target, subject, b"") for _ in range(_FLOOD)))
    return Outcome(SERVED if {outcome.answer for outcome in outcomes} <= {SERVED, "429"} else SILENCE)


async def _headers(target: Target) -> Outcome:
    return await _ask(target, "models", b"", **{f"X-{number}": "a" * 100 for number in range(1000)})


CASES = [
    _sent("nats-empty", "an empty message", "400", "not valid JSON", "generate", b""),
    _sent("nats-rubbish", "bytes that are no JSON", "400", "not valid JSON", "generate", bytes(range(256)) * 10),
    _sent("nats-nesting", "arrays nested 100,000 deep", "400", "nests deeper than 100", "generate",
          b'{"prompt": ' + b"[" * 100_000),
    _sent("nats-twice", "a parameter twice", "400", "given twice", "generate", b'{"prompt": "a", "n": 1, "n": 2}'),
    _sent("nats-parameters", "10,000 parameters", "400", "more than 256", "generate",
          b"{%s}" % b",".join(b'"k%d":0' % number for number in range(10_000))),
    _case("nats-largest", "the longest message of the broker", "400", "context length", _largest),
    _asked("nats-id", "a request's id with a subject's wildcards", "400", "request_id", prompt="a", request_id="a.>"),
    _asked("nats-timeout", "a time limit below 0", "400", "timeout_s", prompt="a", timeout_s=-1),
    _asked("nats-whole", "an answer that is no stream", "400", "stream", prompt="a", stream=False),
    _asked("nats-model", "a model in the subject that nobody serves", "404", "", "generate.a.b.c", prompt="a"),
    _asked("nats-models-two", "another model in the subject than in the body", "400", "model", "generate.a",
           prompt="a", model="b"),
    _asked("nats-cancel", "the end of an unknown request", "404", "", "cancel", request_id="a" * 40),
    _asked("nats-resume", "an unknown request, from index -1", "404", "", "resume", request_id="a", from_index=[-1]),
    _asked("nats-resume-text", "an index in words", "400", "from_index", "resume", request_id="a", from_index="all"),
    _case("nats-reply", "a reply subject that is no inbox", SILENCE, "",
          lambda target: _foreign_reply(target, "outrider.scratch.hostile")),
    _case("nats-headers", "1,000 headers", SERVED, "", _headers),
    _case("nats-hello", "300 greetings at once", SERVED, "", lambda target: _flood(target, "hello")),
    _case("nats-ask", "300 questions for the models at once", SERVED, "", lambda target: _flood(target, "models")),
]  # fmt: skip
