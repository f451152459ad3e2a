from outrider.v1 import sampling_pb2 as _sampling_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GenerateRequest(_message.Message):
    __slots__ = ("model", "text", "messages_json", "ids", "sampling", "speculation", "n", "priority", "bad_words", "tools_json", "tool_choice_json", "parallel_tool_calls", "return_tokens", "linger", "ttft_ms", "timeout_ms", "coalesce", "add_special", "parse_special", "prediction", "enable_thinking", "reasoning_effort", "thinking_token_budget", "include_reasoning")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_JSON_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    SPECULATION_FIELD_NUMBER: _ClassVar[int]
    N_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    BAD_WORDS_FIELD_NUMBER: _ClassVar[int]
    TOOLS_JSON_FIELD_NUMBER: _ClassVar[int]
    TOOL_CHOICE_JSON_FIELD_NUMBER: _ClassVar[int]
    PARALLEL_TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    RETURN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    LINGER_FIELD_NUMBER: _ClassVar[int]
    TTFT_MS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    COALESCE_FIELD_NUMBER: _ClassVar[int]
    ADD_SPECIAL_FIELD_NUMBER: _ClassVar[int]
    PARSE_SPECIAL_FIELD_NUMBER: _ClassVar[int]
    PREDICTION_FIELD_NUMBER: _ClassVar[int]
    ENABLE_THINKING_FIELD_NUMBER: _ClassVar[int]
    REASONING_EFFORT_FIELD_NUMBER: _ClassVar[int]
    THINKING_TOKEN_BUDGET_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_REASONING_FIELD_NUMBER: _ClassVar[int]
    model: str
    text: str
    messages_json: str
    ids: bytes
    sampling: _sampling_pb2.SamplingParams
    speculation: _sampling_pb2.Speculation
    n: int
    priority: int
    bad_words: _containers.RepeatedScalarFieldContainer[str]
    tools_json: str
    tool_choice_json: str
    parallel_tool_calls: bool
    return_tokens: bool
    linger: bool
    ttft_ms: int
    timeout_ms: int
    coalesce: bool
    add_special: bool
    parse_special: bool
    prediction: str
    enable_thinking: bool
    reasoning_effort: str
    thinking_token_budget: int
    include_reasoning: bool
    def __init__(self, model: _Optional[str] = ..., text: _Optional[str] = ..., messages_json: _Optional[str] = ..., ids: _Optional[bytes] = ..., sampling: _Optional[_Union[_sampling_pb2.SamplingParams, _Mapping]] = ..., speculation: _Optional[_Union[_sampling_pb2.Speculation, _Mapping]] = ..., n: _Optional[int] = ..., priority: _Optional[int] = ..., bad_words: _Optional[_Iterable[str]] = ..., tools_json: _Optional[str] = ..., tool_choice_json: _Optional[str] = ..., parallel_tool_calls: _Optional[bool] = ..., return_tokens: _Optional[bool] = ..., linger: _Optional[bool] = ..., ttft_ms: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., coalesce: _Optional[bool] = ..., add_special: _Optional[bool] = ..., parse_special: _Optional[bool] = ..., prediction: _Optional[str] = ..., enable_thinking: _Optional[bool] = ..., reasoning_effort: _Optional[str] = ..., thinking_token_budget: _Optional[int] = ..., include_reasoning: _Optional[bool] = ...) -> None: ...

class GenerateResponse(_message.Message):
    __slots__ = ("request_id", "first_index", "tokens", "text", "finish", "usage", "choice", "texts", "guessed_by", "logprobs", "tool_calls", "detail", "drafts", "reasoning")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_INDEX_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    FINISH_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    GUESSED_BY_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    DRAFTS_FIELD_NUMBER: _ClassVar[int]
    REASONING_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    first_index: int
    tokens: _containers.RepeatedScalarFieldContainer[int]
    text: str
    finish: str
    usage: Usage
    choice: int
    texts: _containers.RepeatedScalarFieldContainer[str]
    guessed_by: _containers.RepeatedScalarFieldContainer[str]
    logprobs: _containers.RepeatedCompositeFieldContainer[TokenLikelihood]
    tool_calls: _containers.RepeatedCompositeFieldContainer[FunctionCall]
    detail: GenerationDetail
    drafts: _containers.RepeatedCompositeFieldContainer[Draft]
    reasoning: str
    def __init__(self, request_id: _Optional[str] = ..., first_index: _Optional[int] = ..., tokens: _Optional[_Iterable[int]] = ..., text: _Optional[str] = ..., finish: _Optional[str] = ..., usage: _Optional[_Union[Usage, _Mapping]] = ..., choice: _Optional[int] = ..., texts: _Optional[_Iterable[str]] = ..., guessed_by: _Optional[_Iterable[str]] = ..., logprobs: _Optional[_Iterable[_Union[TokenLikelihood, _Mapping]]] = ..., tool_calls: _Optional[_Iterable[_Union[FunctionCall, _Mapping]]] = ..., detail: _Optional[_Union[GenerationDetail, _Mapping]] = ..., drafts: _Optional[_Iterable[_Union[Draft, _Mapping]]] = ..., reasoning: _Optional[str] = ...) -> None: ...

class Draft(_message.Message):
    __slots__ = ("first_index", "tokens", "data", "parents", "guessed_by", "accepted")
    FIRST_INDEX_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    PARENTS_FIELD_NUMBER: _ClassVar[int]
    GUESSED_BY_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    first_index: int
    tokens: _containers.RepeatedScalarFieldContainer[int]
    data: _containers.RepeatedScalarFieldContainer[bytes]
    parents: _containers.RepeatedScalarFieldContainer[int]
    guessed_by: _containers.RepeatedScalarFieldContainer[str]
    accepted: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, first_index: _Optional[int] = ..., tokens: _Optional[_Iterable[int]] = ..., data: _Optional[_Iterable[bytes]] = ..., parents: _Optional[_Iterable[int]] = ..., guessed_by: _Optional[_Iterable[str]] = ..., accepted: _Optional[_Iterable[int]] = ...) -> None: ...

class GenerationDetail(_message.Message):
    __slots__ = ("model", "fingerprint", "created", "seed", "steps", "verifier", "lossy", "ignored")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    VERIFIER_FIELD_NUMBER: _ClassVar[int]
    LOSSY_FIELD_NUMBER: _ClassVar[int]
    IGNORED_FIELD_NUMBER: _ClassVar[int]
    model: str
    fingerprint: str
    created: int
    seed: int
    steps: int
    verifier: str
    lossy: bool
    ignored: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, model: _Optional[str] = ..., fingerprint: _Optional[str] = ..., created: _Optional[int] = ..., seed: _Optional[int] = ..., steps: _Optional[int] = ..., verifier: _Optional[str] = ..., lossy: _Optional[bool] = ..., ignored: _Optional[_Iterable[str]] = ...) -> None: ...

class Usage(_message.Message):
    __slots__ = ("prompt_tokens", "completion_tokens", "cached_tokens", "accepted_tokens", "rejected_tokens", "reasoning_tokens")
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    REJECTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    REASONING_TOKENS_FIELD_NUMBER: _ClassVar[int]
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    accepted_tokens: int
    rejected_tokens: int
    reasoning_tokens: int
    def __init__(self, prompt_tokens: _Optional[int] = ..., completion_tokens: _Optional[int] = ..., cached_tokens: _Optional[int] = ..., accepted_tokens: _Optional[int] = ..., rejected_tokens: _Optional[int] = ..., reasoning_tokens: _Optional[int] = ...) -> None: ...

class TokenLikelihood(_message.Message):
    __slots__ = ("logprob", "data", "top")
    LOGPROB_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    TOP_FIELD_NUMBER: _ClassVar[int]
    logprob: float
    data: bytes
    top: _containers.RepeatedCompositeFieldContainer[LikelyToken]
    def __init__(self, logprob: _Optional[float] = ..., data: _Optional[bytes] = ..., top: _Optional[_Iterable[_Union[LikelyToken, _Mapping]]] = ...) -> None: ...

class LikelyToken(_message.Message):
    __slots__ = ("token", "logprob", "data")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    LOGPROB_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    token: int
    logprob: float
    data: bytes
    def __init__(self, token: _Optional[int] = ..., logprob: _Optional[float] = ..., data: _Optional[bytes] = ...) -> None: ...

class FunctionCall(_message.Message):
    __slots__ = ("id", "name", "arguments")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    arguments: str
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., arguments: _Optional[str] = ...) -> None: ...

class CompleteRequest(_message.Message):
    __slots__ = ("request",)
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    request: GenerateRequest
    def __init__(self, request: _Optional[_Union[GenerateRequest, _Mapping]] = ...) -> None: ...

class CompleteResponse(_message.Message):
    __slots__ = ("request_id", "usage", "choices")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    CHOICES_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    usage: Usage
    choices: _containers.RepeatedCompositeFieldContainer[GenerateResponse]
    def __init__(self, request_id: _Optional[str] = ..., usage: _Optional[_Union[Usage, _Mapping]] = ..., choices: _Optional[_Iterable[_Union[GenerateResponse, _Mapping]]] = ...) -> None: ...

class ResumeRequest(_message.Message):
    __slots__ = ("request_id", "from_index")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    FROM_INDEX_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    from_index: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, request_id: _Optional[str] = ..., from_index: _Optional[_Iterable[int]] = ...) -> None: ...

class CancelGenerationRequest(_message.Message):
    __slots__ = ("request_id",)
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    def __init__(self, request_id: _Optional[str] = ...) -> None: ...

class CancelGenerationResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListModelsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListModelsResponse(_message.Message):
    __slots__ = ("models",)
    MODELS_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, models: _Optional[_Iterable[str]] = ...) -> None: ...

class TokenizeRequest(_message.Message):
    __slots__ = ("model", "text", "messages_json", "add_special", "parse_special")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_JSON_FIELD_NUMBER: _ClassVar[int]
    ADD_SPECIAL_FIELD_NUMBER: _ClassVar[int]
    PARSE_SPECIAL_FIELD_NUMBER: _ClassVar[int]
    model: str
    text: str
    messages_json: str
    add_special: bool
    parse_special: bool
    def __init__(self, model: _Optional[str] = ..., text: _Optional[str] = ..., messages_json: _Optional[str] = ..., add_special: _Optional[bool] = ..., parse_special: _Optional[bool] = ...) -> None: ...

class TokenizeResponse(_message.Message):
    __slots__ = ("tokens", "context_length")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_LENGTH_FIELD_NUMBER: _ClassVar[int]
    tokens: _containers.RepeatedScalarFieldContainer[int]
    context_length: int
    def __init__(self, tokens: _Optional[_Iterable[int]] = ..., context_length: _Optional[int] = ...) -> None: ...

class DetokenizeRequest(_message.Message):
    __slots__ = ("model", "tokens", "keep_special")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    KEEP_SPECIAL_FIELD_NUMBER: _ClassVar[int]
    model: str
    tokens: _containers.RepeatedScalarFieldContainer[int]
    keep_special: bool
    def __init__(self, model: _Optional[str] = ..., tokens: _Optional[_Iterable[int]] = ..., keep_special: _Optional[bool] = ...) -> None: ...

class DetokenizeResponse(_message.Message):
    __slots__ = ("text",)
    TEXT_FIELD_NUMBER: _ClassVar[int]
    text: str
    def __init__(self, text: _Optional[str] = ...) -> None: ...
