"""The parameters, answers and errors of the routes of Ollama's API, and of llama-server's."""

from __future__ import annotations

import msgspec
from outrider.gateway.api.llama import bodies as llama
from outrider.gateway.api.ollama import bodies, json_types
from outrider.gateway.api.openapi.constraints import MESSAGES, PROMPT
from outrider.gateway.api.openapi.operations import HEADERS, READ_ERRORS, SERVED, TIMEOUT, BodySpec, Operation
from outrider.gateway.api.own.readiness import Version
from outrider.gateway.errors import ErrorAnswer, OllamaErrorAnswer

_CHAT = BodySpec(
    bodies.ChatRequest, bodies.CHAT, {"model": "pocket", "messages": [{"role": "user", "content": "def f("}]}
)
_GENERATE = BodySpec(bodies.GenerateRequest, bodies.GENERATE, {"model": "pocket", "prompt": "def f("})
_ALL: dict[tuple[str, str], Operation] = {
    ("POST", "/api/chat"): Operation(
        "Answers a chat in Ollama's form.",
        _CHAT,
        headers=HEADERS,
        answer=json_types.ChatLine,
        lines=(json_types.ChatLine, OllamaErrorAnswer),
        errors=READ_ERRORS + SERVED,
    ),
    ("POST", "/api/generate"): Operation(
        "Answers a prompt in Ollama's form.",
        _GENERATE,
        headers=HEADERS,
        answer=json_types.GenerateLine,
        lines=(json_types.GenerateLine, OllamaErrorAnswer),
        errors=READ_ERRORS + SERVED,
    ),
    ("POST", "/api/embed"): Operation(
        "Embeddings of texts in Ollama's form.",
        BodySpec(bodies.EmbedRequest, bodies.EMBED, {"model": "pocket", "input": "def f("}),
        headers=TIMEOUT,
        answer=json_types.EmbedAnswer,
        errors=READ_ERRORS + SERVED,
    ),
    ("POST", "/api/embeddings"): Operation(
        "The embedding of one text in Ollama's earlier form.",
        BodySpec(bodies.OldEmbedRequest, bodies.EMBED, {"model": "pocket", "prompt": "def f("}),
        headers=TIMEOUT,
        answer=json_types.OldEmbedAnswer,
        errors=READ_ERRORS + SERVED,
    ),
    ("POST", "/api/show"): Operation(
        "One model in Ollama's form.",
        BodySpec(bodies.ShowRequest, example={"model": "pocket"}),
        answer=json_types.Shown,
        errors=READ_ERRORS + SERVED,
    ),
    ("GET", "/api/tags"): Operation("All models in Ollama's form.", answer=json_types.Tags),
    ("GET", "/api/ps"): Operation("All models that are loaded, in Ollama's form.", answer=json_types.RunningModels),
    ("GET", "/api/version"): Operation("The version of Outrider.", answer=Version),
}

OLLAMA_OPERATIONS = {at: msgspec.structs.replace(each, error=(OllamaErrorAnswer,)) for at, each in _ALL.items()}

LLAMA_OPERATIONS: dict[tuple[str, str], Operation] = {
    ("POST", "/completion"): Operation(
        "Completes a prompt in llama-server's form.",
        BodySpec(llama.CompletionRequest, llama.COMPLETION, {"prompt": "def f(", "n_predict": 4}, {"prompt": PROMPT}),
        headers=HEADERS,
        answer=llama.CompletionPart,
        events=(llama.CompletionPart, ErrorAnswer),
        errors=READ_ERRORS + SERVED,
    ),
    ("POST", "/infill"): Operation(
        "Fills in between two texts in llama-server's form.",
        BodySpec(
            llama.InfillRequest, llama.COMPLETION, {"input_prefix": "def f(", "input_suffix": "):", "n_predict": 4}
        ),
        headers=HEADERS,
        answer=llama.CompletionPart,
        events=(llama.CompletionPart, ErrorAnswer),
        errors=READ_ERRORS + SERVED,
    ),
    ("POST", "/apply-template"): Operation(
        "A chat as text.",
        BodySpec(
            llama.TemplateRequest, example={"messages": _CHAT.example["messages"]}, refined={"messages": MESSAGES}
        ),
        answer=llama.Rendered,
        errors=READ_ERRORS + SERVED,
    ),
    ("GET", "/props"): Operation("The model and its context.", answer=llama.Props, errors=SERVED),
}
