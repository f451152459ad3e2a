"""OpenAI's Responses API: `Responses` and `AsyncResponses` are ``responses`` of the clients."""

from outrider_client.responses.aio import AsyncResponses, AsyncResponseStream
from outrider_client.responses.client import Responses, ResponseStream
from outrider_client.responses.types import OutputItem, OutputPart, Response, ResponseEvent, ResponseUsage

__all__ = [
    "AsyncResponseStream",
    "AsyncResponses",
    "OutputItem",
    "OutputPart",
    "Response",
    "ResponseEvent",
    "ResponseStream",
    "ResponseUsage",
    "Responses",
]
