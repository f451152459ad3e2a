"""Streams a completion from a gateway: pieces of text, each with the drafter that guessed it."""

from __future__ import annotations

import contextlib
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import httpx
import msgspec
from httpx_sse import EventSource
from outrider.mesh.access import Access
from outrider.mesh.local_meshes import local_meshes

CONNECT_S = 5.0


class RequestError(Exception):
    """The gateway refused the request or broke off; the message is the gateway's."""

    exit_code = 1


class UnreachableError(RequestError):
    """No server answers at the address."""

    exit_code = 3


class StreamRequest(Protocol):
    """A request whose answer is streamed."""

    @property
    def path(self) -> str:
        """Path of the endpoint."""

    def body(self, model: str) -> dict[str, Any]:
        """The request for ``model`` in OpenAI's form; it asks for a stream, its usage and tokens."""


STREAM = {"stream": True, "stream_options": {"include_usage": True}, "return_tokens": True}
"""What every `StreamRequest` asks for."""


@dataclass(frozen=True)
class CompletionRequest:
    """A prompt and its parameters."""

    prompt: str
    max_tokens: int
    temperature: float
    seed: int | None
    speculation: bool
    chat: bool
    drafters: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """Path of the endpoint."""
        return "/v1/chat/completions" if self.chat else "/v1/completions"

    def body(self, model: str) -> dict[str, Any]:
        """The request in OpenAI's form, with Outrider's extension that returns tokens."""
        content = {"messages": [{"role": "user", "content": self.prompt}]} if self.chat else {"prompt": self.prompt}
        return {
            **content,
            "model": model,
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            **({} if self.seed is None else {"seed": self.seed}),
            **self._speculation(),
            **STREAM,
        }

    def _speculation(self) -> dict[str, Any]:
        if not self.speculation:
            return {"speculation": "off"}
        return {"speculation": {"drafters": list(self.drafters)}} if self.drafters else {}


class _Details(msgspec.Struct):
    accepted_prediction_tokens: int = 0
    rejected_prediction_tokens: int = 0


class _Usage(msgspec.Struct):
    completion_tokens: int
    completion_tokens_details: _Details = msgspec.field(default_factory=_Details)


class _Tokens(msgspec.Struct):
    texts: list[str] = []
    guessed_by: list[str] = []
    steps: int = 0
    seed: int | None = None


class _Failure(msgspec.Struct):
    message: str


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta = msgspec.field(default_factory=_Delta)


class _Chunk(msgspec.Struct):
    id: str = ""
    choices: list[_Choice] = []
    usage: _Usage | None = None
    outrider: _Tokens | None = None
    error: _Failure | None = None


class _Models(msgspec.Struct):
    data: list[dict[str, Any]]


class Answer:
    """Iterates over ``(text, drafter)`` of each token; the drafter is empty if the target decided the token alone.

    Attributes are final when the iteration has ended: times in seconds, counts in tokens.
    """

    def __init__(self, access: Access, request: StreamRequest) -> None:
        self._access, self._request = access, request
        self.tokens = self.steps = self.accepted = self.rejected = 0
        self.seed: int | None = None
        self.request_id = ""
        self.first_s = self.total_s = 0.0

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Sends the request; `RequestError` if the gateway refuses it, breaks off or does not answer."""
        for chunk in self._received():
            if chunk.outrider:
                yield from zip(chunk.outrider.texts, chunk.outrider.guessed_by, strict=True)

    def messages(self) -> Iterator[tuple[str, str]]:
        """As iteration, of a chat: ``(thought, content)``, pieces of text of which one is empty."""
        for chunk in self._received():
            for choice in chunk.choices:
                yield choice.delta.reasoning_content or "", choice.delta.content or ""

    def _received(self) -> Iterator[_Chunk]:
        with _client(self._access) as client:
            yield from self._stream(client)

    def _stream(self, client: httpx.Client) -> Iterator[_Chunk]:
        body = self._request.body(_served_model(client))
        began = time.perf_counter()
        with client.stream("POST", self._request.path, json=body) as response:
            _require_ok(response)
            for chunk in _chunks(response):
                self._note(chunk, time.perf_counter() - began)
                yield chunk

    def _note(self, chunk: _Chunk, now_s: float) -> None:
        if chunk.error:
            raise RequestError(chunk.error.message)
        self.request_id = self.request_id or chunk.id.rpartition("-")[2]
        if detail := chunk.outrider:
            self.first_s = self.first_s or now_s
            self.steps, self.seed = detail.steps or self.steps, detail.seed or self.seed
        if chunk.usage:
            self.tokens = chunk.usage.completion_tokens
            self.accepted = chunk.usage.completion_tokens_details.accepted_prediction_tokens
            self.rejected = chunk.usage.completion_tokens_details.rejected_prediction_tokens
        self.total_s = now_s


def served_model(access: Access) -> str:
    """Name of the first model served there; `RequestError` as in `Answer`."""
    with _client(access) as client:
        return _served_model(client)


@contextlib.contextmanager
def _client(access: Access) -> Iterator[httpx.Client]:
    timeout, url = httpx.Timeout(None, connect=CONNECT_S), access.url.rstrip("/")
    try:
        with httpx.Client(
            base_url=url, headers=access.headers, timeout=timeout, trust_env=False, verify=_trusted(access)
        ) as client:
            yield client
    except ssl.SSLError:
        raise RequestError(f"{access.ca} is no certificate in PEM") from None
    except httpx.ConnectError as error:
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            raise RequestError(f"the certificate at {url} is not trusted: --ca names its authority") from None
        raise UnreachableError(_nothing_answers(url)) from None
    except (httpx.ConnectTimeout, httpx.UnsupportedProtocol, httpx.InvalidURL):
        raise UnreachableError(_nothing_answers(url)) from None
    except httpx.HTTPError as error:
        raise RequestError(f"the connection to {url} broke: {error}") from None


def _trusted(access: Access) -> ssl.SSLContext | bool:
    """The authorities to trust: those in the file, or the usual ones."""
    return access.context() if access.ca else True


def _nothing_answers(url: str) -> str:
    if any(mesh.url == url and not mesh.ready for mesh in local_meshes()):
        return f"the mesh at {url} is not ready yet: `outrider logs` shows what it does"
    return f"nothing answers at {url}: start a mesh with `outrider up`"


def _served_model(client: httpx.Client) -> str:
    response = client.get("/v1/models")
    _require_ok(response)
    models = msgspec.json.decode(response.content, type=_Models).data
    if not models:
        raise RequestError("no model is served yet")
    return str(models[0]["id"])


def _require_ok(response: httpx.Response) -> None:
    if response.status_code == 200:
        return
    try:
        failure = msgspec.json.decode(response.read(), type=_Chunk).error
    except msgspec.DecodeError:
        failure = None
    raise RequestError(failure.message if failure else f"{response.url} answered {response.status_code}")


def _chunks(response: httpx.Response) -> Iterator[_Chunk]:
    decoder = msgspec.json.Decoder(_Chunk)
    for event in EventSource(response).iter_sse():
        if event.data.startswith("{"):
            yield decoder.decode(event.data)
