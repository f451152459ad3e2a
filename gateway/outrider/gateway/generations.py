"""From a request to its stream of tokens: the one way in, whatever the front door."""

from __future__ import annotations

from outrider.gateway import metrics
from outrider.gateway.attempts import TRANSIENT, persist
from outrider.gateway.encoder import Encoder
from outrider.gateway.errors import ContextExceeded
from outrider.gateway.models import Models, Served
from outrider.gateway.request import Generation, Messages
from outrider.gateway.settings import GatewaySettings
from outrider.gateway.stream import TokenStream
from outrider.gateway.verifiers import Job, Verifiers
from outrider.mesh.errors import InvalidRequest
from outrider.mesh.service import Mesh


class Generations:
    """Starts generations and keeps those in flight."""

    def __init__(self, mesh: Mesh, settings: GatewaySettings) -> None:
        self._bus, self._settings = mesh.bus, settings
        self._verifiers = Verifiers(mesh.registry, mesh.tasks, self._on_lost)
        self._encoder = Encoder(self.models)
        self._streams: set[TokenStream] = set()
        mesh.bus.on_change(self._on_bus)

    @property
    def models(self) -> Models:
        """What can be served."""
        return self._verifiers.models

    def __len__(self) -> int:
        return len(self._streams)

    async def start(self, request_id: str, generation: Generation) -> TokenStream:
        """Tokenizes and submits; the caller closes the stream.

        `UnknownModel`, `InvalidRequest`, `Overloaded` when every verifier is full, `Unavailable` when services are
        missing for longer than ``place_s``.
        """
        stream = TokenStream(await self._job(request_id, generation), self._verifiers, self._bus, self._settings)
        self._streams.add(stream)
        metrics.streams.set(len(self))
        try:
            await stream.open()
        except BaseException:
            await self.end(stream)
            raise
        return stream

    async def end(self, stream: TokenStream) -> None:
        """Closes a stream, wherever it stands."""
        self._streams.discard(stream)
        metrics.streams.set(len(self))
        await stream.close()

    async def _job(self, request_id: str, generation: Generation) -> Job:
        served = await self._find(generation.model)
        seconds = self._settings.place_s
        prompt = await persist(lambda: self._encoder.encode(served, generation.prompt), seconds, TRANSIENT)
        room = _room(served, generation, len(prompt))
        return Job(
            request_id=request_id,
            tenant=generation.tenant,
            served=served,
            prompt=prompt,
            sampling=generation.sampling.to_proto(min(room, generation.max_tokens or room)),
            speculation=generation.speculation.to_proto(),
        )

    async def _find(self, name: str | None) -> Served:
        """The model; one that was served a moment ago is waited for."""

        async def find() -> Served:
            return self.models.find(name)

        return await persist(find, self._settings.place_s if self.models.seen(name) else 0.0, TRANSIENT)

    def _on_lost(self, instance: str) -> None:
        for stream in self._streams:
            if stream.verifier == instance:
                stream.follow("lost")

    def _on_bus(self, connected: bool) -> None:
        if not connected:
            for stream in self._streams:
                stream.follow("disconnected")


def _room(served: Served, generation: Generation, prompt: int) -> int:
    """Tokens that the context has left for an answer."""
    param = "messages" if isinstance(generation.prompt, Messages) else "prompt"
    if prompt == 0:
        raise InvalidRequest(f"{param} must hold at least one token", param=param)
    if prompt >= served.context_length:
        raise ContextExceeded(
            f"{param}: {prompt} tokens leave no room for an answer in the model's maximum context length of "
            f"{served.context_length} tokens",
            param=param,
        )
    return served.context_length - prompt
