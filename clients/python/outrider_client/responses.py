"""OpenAI's Responses API: `Responses` and `AsyncResponses`, the attribute ``responses`` of the clients."""

from outrider_client._async.responses import AsyncResponses, AsyncResponseStream
from outrider_client._sync.responses import Responses, ResponseStream
from outrider_client.types import OutputItem, OutputPart, Response, ResponseEvent, ResponseUsage

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
