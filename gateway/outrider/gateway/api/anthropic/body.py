"""The body of ``POST /v1/messages``, and the chat that it asks for."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from outrider.gateway.api.anthropic.tools import Choice, Tools, chat_choice
from outrider.gateway.api.anthropic.turns import SYSTEM, conversation
from outrider.gateway.api.openai.bodies import ChatBody
from outrider.gateway.api.schema.generation import GenerationBody
from outrider.gateway.api.schema.ignored import note_part
from outrider.gateway.api.schema.json_schemas import note_unenforced
from outrider.gateway.api.schema.parameters import read
from outrider.gateway.api.schema.structure import JsonSchemaFormat, NamedSchema
from outrider.gateway.api.schema.thinking import ThoughtBudget
from outrider.gateway.api.schema.thoughts import Seal
from outrider.gateway.api.schema.unsupported import MESSAGES
from outrider.mesh.errors import InvalidRequest
from outrider.wire.bounds import Count
from outrider.wire.sampling import MOST_STOPS, ShortText

_FORMAT = "response_format.json_schema.schema"


class Metadata(msgspec.Struct, frozen=True):
    """``metadata``; its user keeps to one verifier, as ``user`` does in chats."""

    user_id: Annotated[str, Meta(max_length=1024)] | None = None


class ThinkingConfig(msgspec.Struct, frozen=True):
    """``thinking``: whether the model thinks, if it can be told; an ``omitted`` thought is in its signature alone."""

    type: Literal["enabled", "disabled", "adaptive", "between_tools"]
    budget_tokens: ThoughtBudget | None = None
    display: Literal["summarized", "omitted"] | None = None


class OutputFormat(msgspec.Struct, frozen=True, tag_field="type", tag="json_schema"):
    """``{"type": "json_schema", "schema": {...}}``."""

    schema: dict[str, Any]


class OutputConfig(msgspec.Struct, frozen=True):
    """``output_config``: the form of the answer's text."""

    format: OutputFormat | None = None
    effort: str | None = None


class MessagesBody(GenerationBody, frozen=True, kw_only=True):
    """Body of ``POST /v1/messages``. Parameters of the gateway's own, such as ``seed``, are those of a chat."""

    messages: Annotated[
        list[dict[str, Any]], Meta(min_length=1, description="an array of at least one turn with a role and a content")
    ]
    max_tokens: Count | None = None
    system: SYSTEM = ""
    stop_sequences: Annotated[
        tuple[ShortText, ...],
        Meta(
            max_length=MOST_STOPS, description=f"an array of up to {MOST_STOPS} strings, each of 1 to 1000 characters"
        ),
    ] = ()
    tools: Annotated[
        list[dict[str, Any]], Meta(max_length=128, description='an array like [{"name": ..., "input_schema": {...}}]')
    ] = msgspec.field(default_factory=list)
    tool_choice: Choice | None = None
    thinking: Annotated[ThinkingConfig, Meta(description='an object like {"type": "adaptive"}')] | None = None
    output_config: (
        Annotated[OutputConfig, Meta(description='an object like {"format": {"type": "json_schema", ...}}')] | None
    ) = None
    metadata: Annotated[Metadata, Meta(description='an object like {"user_id": ...}')] | None = None
    cache_control: dict[str, Any] | None = None

    def chat(self, seal: Seal, tenant: str, ignored: list[str] | None) -> Chat:
        """The chat that the body asks for, of a caller of ``tenant``; ``ignored`` is as in `note_part`.

        Raises `InvalidRequest`.
        """
        shared = {name: getattr(self, name) for name in GenerationBody.__struct_fields__}
        said = conversation(self.system, self.messages, seal, tenant, ignored)
        tools = Tools.read(self.tools, said.changes, ignored)
        chat = ChatBody(
            **shared
            | {"stop": self.stop_sequences or self.stop, "user": self.user or (self.metadata or Metadata()).user_id},
            messages=said.messages,
            max_tokens=self.max_tokens,
            response_format=self._format,
            tools=tools.offered,
            tool_choice=chat_choice(self.tool_choice),
            parallel_tool_calls=self.tool_choice is None or not self.tool_choice.disable_parallel_tool_use,
            enable_thinking=None if self.thinking is None else self.thinking.type != "disabled",
            thinking_token_budget=None if self.thinking is None else self.thinking.budget_tokens,
        )
        return Chat(chat, tools)

    @property
    def omits_thoughts(self) -> bool:
        """Whether thoughts are sent as signatures alone."""
        return self.thinking is not None and self.thinking.display == "omitted"

    @property
    def _format(self) -> JsonSchemaFormat | None:
        wanted = None if self.output_config is None else self.output_config.format
        return None if wanted is None else JsonSchemaFormat(NamedSchema("answer", wanted.schema))


class Chat(msgspec.Struct, frozen=True):
    """A chat, and the ``tools`` of the request that asks for it."""

    body: ChatBody
    tools: Tools

    def renamed(self, error: InvalidRequest) -> InvalidRequest:
        """``error`` with the names that parameters have in this API."""
        error.message = self._named(error.message)
        error.param = None if error.param is None else self._named(error.param)
        return error

    def note_unenforced(self, ignored: list[str] | None) -> None:
        """As `outrider.gateway.api.schema.json_schemas.note_unenforced`; raises `InvalidRequest` for bad schemas."""
        try:
            names = self.body.unenforced
        except InvalidRequest as error:
            raise self.renamed(error) from None
        note_unenforced([self._named(name) for name in names], ignored)

    def _named(self, text: str) -> str:
        return self.tools.named(text).replace(_FORMAT, "output_config.format.schema")


def read_messages(body: bytes, ignored: list[str] | None = None) -> MessagesBody:
    """The body of a message, read as `read` does; raises `InvalidRequest`."""
    made = read(body, MessagesBody, MESSAGES, ignored)
    if made.output_config is not None and made.output_config.effort is not None:
        note_part("output_config.effort", "", ignored)
    return made
