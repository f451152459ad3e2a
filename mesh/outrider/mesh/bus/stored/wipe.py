"""Deletes stored messages so that their bytes on the broker's disk are overwritten."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import nats.js.errors as js_errors
from nats.js import JetStreamContext, api

_BATCH = 256
_IDLE_S = 30.0


async def wipe(js: JetStreamContext, stream: str, subject: str, before: float, timeout_s: float) -> int:
    """Deletes the messages on ``subject`` (wildcards allowed) that were stored at ``before`` or earlier.

    nats-server overwrites each message with random bytes before it deletes the message (`no_erase` is false). A purge
    only marks messages as deleted; it ends the messages of a stream that an operator made with `deny_delete`.
    ``before`` is in seconds since 1970. Returns the number of messages; a stream that does not exist has none. Raises
    errors of nats-py.
    """
    with suppress(js_errors.NotFoundError):
        if subjects := (await js.stream_info(stream, subject)).state.subjects:
            numbers = await _numbers(js, stream, subject, before, sum(subjects.values()), timeout_s)
            for start in range(0, len(numbers), _BATCH):
                await asyncio.gather(*(_delete(js, stream, number) for number in numbers[start : start + _BATCH]))
            if numbers:
                await js.purge_stream(stream, seq=max(numbers) + 1, subject=subject)
            return len(numbers)
    return 0


async def _numbers(
    js: JetStreamContext, stream: str, subject: str, before: float, least: int, timeout_s: float
) -> list[int]:
    """Sequence numbers of the messages, at ``least`` so many, without their contents."""
    config = api.ConsumerConfig(
        ack_policy=api.AckPolicy.NONE, mem_storage=True, inactive_threshold=_IDLE_S, num_replicas=1, headers_only=True
    )
    subscription = await js.pull_subscribe(subject, stream=stream, config=config)
    try:
        left = max(least, (await subscription.consumer_info()).num_pending or 0)
        numbers: list[int] = []
        while left > 0:
            batch = [message.metadata for message in await subscription.fetch(min(_BATCH, left), timeout_s)]
            numbers += [each.sequence.stream for each in batch if each.timestamp.timestamp() <= before]
            left -= len(batch)
        return numbers
    finally:
        await subscription.unsubscribe()


async def _delete(js: JetStreamContext, stream: str, number: int) -> None:
    with suppress(js_errors.APIError):  # another process has deleted it meanwhile, or the stream denies it
        await js.delete_msg(stream, number)
