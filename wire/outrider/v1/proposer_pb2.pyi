from outrider.v1 import sampling_pb2 as _sampling_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DraftRequest(_message.Message):
    __slots__ = ("hello", "opens", "commits", "closes", "rests", "states")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    OPENS_FIELD_NUMBER: _ClassVar[int]
    COMMITS_FIELD_NUMBER: _ClassVar[int]
    CLOSES_FIELD_NUMBER: _ClassVar[int]
    RESTS_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    hello: VerifierHello
    opens: _containers.RepeatedCompositeFieldContainer[OpenSession]
    commits: _containers.RepeatedCompositeFieldContainer[CommitTokens]
    closes: _containers.RepeatedScalarFieldContainer[int]
    rests: _containers.RepeatedScalarFieldContainer[int]
    states: _containers.RepeatedCompositeFieldContainer[HiddenStates]
    def __init__(self, hello: _Optional[_Union[VerifierHello, _Mapping]] = ..., opens: _Optional[_Iterable[_Union[OpenSession, _Mapping]]] = ..., commits: _Optional[_Iterable[_Union[CommitTokens, _Mapping]]] = ..., closes: _Optional[_Iterable[int]] = ..., rests: _Optional[_Iterable[int]] = ..., states: _Optional[_Iterable[_Union[HiddenStates, _Mapping]]] = ...) -> None: ...

class VerifierHello(_message.Message):
    __slots__ = ("instance", "vocabulary")
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    VOCABULARY_FIELD_NUMBER: _ClassVar[int]
    instance: str
    vocabulary: str
    def __init__(self, instance: _Optional[str] = ..., vocabulary: _Optional[str] = ...) -> None: ...

class OpenSession(_message.Message):
    __slots__ = ("session", "tokens", "sampling", "max_nodes", "tenant", "prompt", "proposes", "replacement", "traceparent", "private")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    MAX_NODES_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    PROPOSES_FIELD_NUMBER: _ClassVar[int]
    REPLACEMENT_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    PRIVATE_FIELD_NUMBER: _ClassVar[int]
    session: int
    tokens: bytes
    sampling: _sampling_pb2.SamplingParams
    max_nodes: int
    tenant: str
    prompt: int
    proposes: bool
    replacement: bool
    traceparent: str
    private: bool
    def __init__(self, session: _Optional[int] = ..., tokens: _Optional[bytes] = ..., sampling: _Optional[_Union[_sampling_pb2.SamplingParams, _Mapping]] = ..., max_nodes: _Optional[int] = ..., tenant: _Optional[str] = ..., prompt: _Optional[int] = ..., proposes: _Optional[bool] = ..., replacement: _Optional[bool] = ..., traceparent: _Optional[str] = ..., private: _Optional[bool] = ...) -> None: ...

class CommitTokens(_message.Message):
    __slots__ = ("session", "length", "tokens")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    session: int
    length: int
    tokens: bytes
    def __init__(self, session: _Optional[int] = ..., length: _Optional[int] = ..., tokens: _Optional[bytes] = ...) -> None: ...

class HiddenStates(_message.Message):
    __slots__ = ("session", "start", "states")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    session: int
    start: int
    states: bytes
    def __init__(self, session: _Optional[int] = ..., start: _Optional[int] = ..., states: _Optional[bytes] = ...) -> None: ...

class DraftResponse(_message.Message):
    __slots__ = ("hello", "trees")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    TREES_FIELD_NUMBER: _ClassVar[int]
    hello: ProposerHello
    trees: _containers.RepeatedCompositeFieldContainer[Tree]
    def __init__(self, hello: _Optional[_Union[ProposerHello, _Mapping]] = ..., trees: _Optional[_Iterable[_Union[Tree, _Mapping]]] = ...) -> None: ...

class ProposerHello(_message.Message):
    __slots__ = ("instance", "drafter", "context_length", "layers", "whole")
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    DRAFTER_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_LENGTH_FIELD_NUMBER: _ClassVar[int]
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    instance: str
    drafter: str
    context_length: int
    layers: _containers.RepeatedScalarFieldContainer[int]
    whole: bool
    def __init__(self, instance: _Optional[str] = ..., drafter: _Optional[str] = ..., context_length: _Optional[int] = ..., layers: _Optional[_Iterable[int]] = ..., whole: _Optional[bool] = ...) -> None: ...

class Tree(_message.Message):
    __slots__ = ("session", "length", "tokens", "parents", "confidences", "proposals")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    PARENTS_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCES_FIELD_NUMBER: _ClassVar[int]
    PROPOSALS_FIELD_NUMBER: _ClassVar[int]
    session: int
    length: int
    tokens: bytes
    parents: bytes
    confidences: bytes
    proposals: _containers.RepeatedCompositeFieldContainer[Proposal]
    def __init__(self, session: _Optional[int] = ..., length: _Optional[int] = ..., tokens: _Optional[bytes] = ..., parents: _Optional[bytes] = ..., confidences: _Optional[bytes] = ..., proposals: _Optional[_Iterable[_Union[Proposal, _Mapping]]] = ...) -> None: ...

class Proposal(_message.Message):
    __slots__ = ("node", "tokens", "probabilities", "replacement")
    NODE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    PROBABILITIES_FIELD_NUMBER: _ClassVar[int]
    REPLACEMENT_FIELD_NUMBER: _ClassVar[int]
    node: int
    tokens: bytes
    probabilities: bytes
    replacement: bool
    def __init__(self, node: _Optional[int] = ..., tokens: _Optional[bytes] = ..., probabilities: _Optional[bytes] = ..., replacement: _Optional[bool] = ...) -> None: ...
