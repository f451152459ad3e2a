from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EncodeRequest(_message.Message):
    __slots__ = ("inputs", "max_tokens")
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    inputs: _containers.RepeatedCompositeFieldContainer[EncodeInput]
    max_tokens: int
    def __init__(self, inputs: _Optional[_Iterable[_Union[EncodeInput, _Mapping]]] = ..., max_tokens: _Optional[int] = ...) -> None: ...

class EncodeInput(_message.Message):
    __slots__ = ("text", "chat", "parse_special", "add_special", "require_special", "param", "suffix", "files")
    class File(_message.Message):
        __slots__ = ("name", "text")
        NAME_FIELD_NUMBER: _ClassVar[int]
        TEXT_FIELD_NUMBER: _ClassVar[int]
        name: str
        text: str
        def __init__(self, name: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...
    TEXT_FIELD_NUMBER: _ClassVar[int]
    CHAT_FIELD_NUMBER: _ClassVar[int]
    PARSE_SPECIAL_FIELD_NUMBER: _ClassVar[int]
    ADD_SPECIAL_FIELD_NUMBER: _ClassVar[int]
    REQUIRE_SPECIAL_FIELD_NUMBER: _ClassVar[int]
    PARAM_FIELD_NUMBER: _ClassVar[int]
    SUFFIX_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    text: str
    chat: Chat
    parse_special: bool
    add_special: bool
    require_special: _containers.RepeatedScalarFieldContainer[str]
    param: str
    suffix: str
    files: _containers.RepeatedCompositeFieldContainer[EncodeInput.File]
    def __init__(self, text: _Optional[str] = ..., chat: _Optional[_Union[Chat, _Mapping]] = ..., parse_special: _Optional[bool] = ..., add_special: _Optional[bool] = ..., require_special: _Optional[_Iterable[str]] = ..., param: _Optional[str] = ..., suffix: _Optional[str] = ..., files: _Optional[_Iterable[_Union[EncodeInput.File, _Mapping]]] = ...) -> None: ...

class Chat(_message.Message):
    __slots__ = ("messages_json", "tools_json", "add_generation_prompt", "template_kwargs_json", "continue_final_message", "template")
    MESSAGES_JSON_FIELD_NUMBER: _ClassVar[int]
    TOOLS_JSON_FIELD_NUMBER: _ClassVar[int]
    ADD_GENERATION_PROMPT_FIELD_NUMBER: _ClassVar[int]
    TEMPLATE_KWARGS_JSON_FIELD_NUMBER: _ClassVar[int]
    CONTINUE_FINAL_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    messages_json: str
    tools_json: str
    add_generation_prompt: bool
    template_kwargs_json: str
    continue_final_message: bool
    template: str
    def __init__(self, messages_json: _Optional[str] = ..., tools_json: _Optional[str] = ..., add_generation_prompt: _Optional[bool] = ..., template_kwargs_json: _Optional[str] = ..., continue_final_message: _Optional[bool] = ..., template: _Optional[str] = ...) -> None: ...

class EncodeResponse(_message.Message):
    __slots__ = ("outputs",)
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    outputs: _containers.RepeatedCompositeFieldContainer[EncodedInput]
    def __init__(self, outputs: _Optional[_Iterable[_Union[EncodedInput, _Mapping]]] = ...) -> None: ...

class EncodedInput(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: bytes
    def __init__(self, ids: _Optional[bytes] = ...) -> None: ...

class DecodeRequest(_message.Message):
    __slots__ = ("ids", "keep_special")
    IDS_FIELD_NUMBER: _ClassVar[int]
    KEEP_SPECIAL_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[bytes]
    keep_special: bool
    def __init__(self, ids: _Optional[_Iterable[bytes]] = ..., keep_special: _Optional[bool] = ...) -> None: ...

class DecodeResponse(_message.Message):
    __slots__ = ("texts",)
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    texts: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, texts: _Optional[_Iterable[str]] = ...) -> None: ...

class DescribeTokenizerRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeTokenizerResponse(_message.Message):
    __slots__ = ("model", "vocabulary", "vocabulary_size", "context_length", "has_chat_template", "eos_token_ids", "special_tokens", "chat_template")
    class SpecialTokensEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VOCABULARY_FIELD_NUMBER: _ClassVar[int]
    VOCABULARY_SIZE_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_LENGTH_FIELD_NUMBER: _ClassVar[int]
    HAS_CHAT_TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    EOS_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    SPECIAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CHAT_TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    model: str
    vocabulary: str
    vocabulary_size: int
    context_length: int
    has_chat_template: bool
    eos_token_ids: _containers.RepeatedScalarFieldContainer[int]
    special_tokens: _containers.ScalarMap[str, str]
    chat_template: str
    def __init__(self, model: _Optional[str] = ..., vocabulary: _Optional[str] = ..., vocabulary_size: _Optional[int] = ..., context_length: _Optional[int] = ..., has_chat_template: _Optional[bool] = ..., eos_token_ids: _Optional[_Iterable[int]] = ..., special_tokens: _Optional[_Mapping[str, str]] = ..., chat_template: _Optional[str] = ...) -> None: ...
