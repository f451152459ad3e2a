"""The client over gRPC, for code that waits."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import grpc

from outrider_client.calls import Attempts, Messages
from outrider_client.errors import OutriderClientError
from outrider_client.grpc.asking import completion, generation, lingering
from outrider_client.grpc.base import OPTIONS, Base
from outrider_client.grpc.course import Course
from outrider_client.grpc.methods import METHODS
from outrider_client.grpc.telling import failure, id_of, whole
from outrider_client.types import Answer, Chunk


class Client(Base):
    """Asks gateways over gRPC; threads may share one. Its methods and errors are those of `outrider_client.Client`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of the connections."""
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    def complete(self, prompt: str | Sequence[int], **parameters: Any) -> Answer:
        """A completion."""
        return whole(self._send("Complete", completion(generation(prompt, None, parameters))), chat=False)

    def chat(self, messages: Messages, **parameters: Any) -> Answer:
        """An answer to a chat."""
        return whole(self._send("Complete", completion(generation(None, messages, parameters))), chat=True)

    def stream(
        self, prompt: str | Sequence[int] | None = None, *, messages: Messages | None = None, **parameters: Any
    ) -> Stream:
        """A completion of ``prompt``, or an answer to ``messages``, chunk by chunk as it is generated."""
        return Stream(self, Course(lingering(generation(prompt, messages, parameters))))

    def resume(self, request_id: str, from_index: Sequence[int] = ()) -> Stream:
        """A stream that another process had begun, from an index of each choice on, or from its beginning."""
        return Stream(self, Course(None, request_id, from_index))

    def cancel(self, request_id: str) -> None:
        """Ends a stream for all its readers."""
        self._send("Cancel", METHODS["Cancel"].request(request_id=request_id))

    def models(self) -> list[str]:
        """Names of what is served."""
        return list(self._send("ListModels", METHODS["ListModels"].request()).models)

    def tokenize(self, text: str, model: str = "") -> list[int]:
        """Token ids of a text."""
        return list(self._send("Tokenize", METHODS["Tokenize"].request(text=text, model=model)).tokens)

    def detokenize(self, tokens: Sequence[int], model: str = "") -> str:
        """The text of token ids."""
        return str(self._send("Detokenize", METHODS["Detokenize"].request(tokens=tokens, model=model)).text)

    def _open(self, address: str) -> Any:
        if self._credentials is not None:
            return grpc.secure_channel(address, self._credentials, options=OPTIONS)
        return grpc.insecure_channel(address, options=OPTIONS)

    def _send(self, name: str, request: Any) -> Any:
        attempts = Attempts(self._gateways, self._retries, self._patience_s)
        while True:
            try:
                return self._call(name, request, self._timeout)
            except grpc.RpcError as error:
                time.sleep(attempts.pause(failure(error) or error))


class Stream:
    """Chunks of one answer, whichever connections and gateways bring them; to be iterated once.

    ``id`` and ``next`` are what another process needs to `Client.resume`. Leaving the block, or `close`, ends a
    generation that is not done.
    """

    def __init__(self, client: Client, course: Course) -> None:
        self._client, self._course = client, course
        self._attempts = Attempts(client._gateways, client._retries, client._patience_s)
        self._chunks = self._read()

    @property
    def id(self) -> str:
        """The request's id; empty before the first chunk."""
        return self._course.id

    @property
    def next(self) -> list[int]:
        """Index of the next token of each choice."""
        return list(self._course.next)

    def __iter__(self) -> Iterator[Chunk]:
        return self._chunks

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stops reading, and has the gateway stop generating, if it can be reached."""
        self._chunks.close()
        if self._course.id and not self._course.done:
            self._course.done = True
            with suppress(OutriderClientError):
                self._client.cancel(self._course.id)

    def _read(self) -> Generator[Chunk, None, None]:
        while not self._course.done:
            method, request = self._course.ask
            call = self._client._call(method, request)
            try:
                self._course.id = self._course.id or id_of(call.initial_metadata())
                for told in call:
                    self._attempts.succeeded(self._client._resume_s)
                    yield self._course.take(told)
                self._course.done = True
            except grpc.RpcError as error:
                said = failure(error)
                if not self._course.again(method, said):
                    time.sleep(self._attempts.pause(said or error))
            finally:
                call.cancel()
