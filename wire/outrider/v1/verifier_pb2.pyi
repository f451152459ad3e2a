from outrider.v1 import sampling_pb2 as _sampling_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SubmitRequest(_message.Message):
    __slots__ = ("request_id", "tenant", "prompt", "emitted", "sampling", "speculation", "priority", "weight", "lease_ms", "ttft_ms", "timeout_ms", "stream_id", "record", "filtered", "residency", "reader", "tag", "prediction", "cache_salt", "embed")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    EMITTED_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    SPECULATION_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    TTFT_MS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    FILTERED_FIELD_NUMBER: _ClassVar[int]
    RESIDENCY_FIELD_NUMBER: _ClassVar[int]
    READER_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    PREDICTION_FIELD_NUMBER: _ClassVar[int]
    CACHE_SALT_FIELD_NUMBER: _ClassVar[int]
    EMBED_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    tenant: str
    prompt: bytes
    emitted: bytes
    sampling: _sampling_pb2.SamplingParams
    speculation: _sampling_pb2.Speculation
    priority: int
    weight: float
    lease_ms: int
    ttft_ms: int
    timeout_ms: int
    stream_id: str
    record: bytes
    filtered: bool
    residency: _containers.RepeatedScalarFieldContainer[str]
    reader: str
    tag: int
    prediction: bytes
    cache_salt: str
    embed: bool
    def __init__(self, request_id: _Optional[str] = ..., tenant: _Optional[str] = ..., prompt: _Optional[bytes] = ..., emitted: _Optional[bytes] = ..., sampling: _Optional[_Union[_sampling_pb2.SamplingParams, _Mapping]] = ..., speculation: _Optional[_Union[_sampling_pb2.Speculation, _Mapping]] = ..., priority: _Optional[int] = ..., weight: _Optional[float] = ..., lease_ms: _Optional[int] = ..., ttft_ms: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., stream_id: _Optional[str] = ..., record: _Optional[bytes] = ..., filtered: _Optional[bool] = ..., residency: _Optional[_Iterable[str]] = ..., reader: _Optional[str] = ..., tag: _Optional[int] = ..., prediction: _Optional[bytes] = ..., cache_salt: _Optional[str] = ..., embed: _Optional[bool] = ...) -> None: ...

class SubmitResponse(_message.Message):
    __slots__ = ("queued_ahead", "instance", "expected_ttft_ms")
    QUEUED_AHEAD_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_TTFT_MS_FIELD_NUMBER: _ClassVar[int]
    queued_ahead: int
    instance: str
    expected_ttft_ms: int
    def __init__(self, queued_ahead: _Optional[int] = ..., instance: _Optional[str] = ..., expected_ttft_ms: _Optional[int] = ...) -> None: ...

class CancelRequest(_message.Message):
    __slots__ = ("request_id", "reason", "forget")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    FORGET_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    reason: str
    forget: bool
    def __init__(self, request_id: _Optional[str] = ..., reason: _Optional[str] = ..., forget: _Optional[bool] = ...) -> None: ...

class CancelResponse(_message.Message):
    __slots__ = ("cancelled",)
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    cancelled: bool
    def __init__(self, cancelled: _Optional[bool] = ...) -> None: ...

class RenewRequest(_message.Message):
    __slots__ = ("request_ids", "lease_ms", "recorded")
    REQUEST_IDS_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    RECORDED_FIELD_NUMBER: _ClassVar[int]
    request_ids: _containers.RepeatedScalarFieldContainer[str]
    lease_ms: int
    recorded: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, request_ids: _Optional[_Iterable[str]] = ..., lease_ms: _Optional[int] = ..., recorded: _Optional[_Iterable[str]] = ...) -> None: ...

class RenewResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FollowRequest(_message.Message):
    __slots__ = ("request_id", "from_index", "heartbeat_ms", "so_far")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    FROM_INDEX_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_MS_FIELD_NUMBER: _ClassVar[int]
    SO_FAR_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    from_index: int
    heartbeat_ms: int
    so_far: bool
    def __init__(self, request_id: _Optional[str] = ..., from_index: _Optional[int] = ..., heartbeat_ms: _Optional[int] = ..., so_far: _Optional[bool] = ...) -> None: ...

class FollowResponse(_message.Message):
    __slots__ = ("frame", "held")
    FRAME_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    frame: bytes
    held: bool
    def __init__(self, frame: _Optional[bytes] = ..., held: _Optional[bool] = ...) -> None: ...

class RecallRequest(_message.Message):
    __slots__ = ("tenant", "stream_id")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    stream_id: str
    def __init__(self, tenant: _Optional[str] = ..., stream_id: _Optional[str] = ...) -> None: ...

class RecallResponse(_message.Message):
    __slots__ = ("requests",)
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    requests: _containers.RepeatedCompositeFieldContainer[RecalledRequest]
    def __init__(self, requests: _Optional[_Iterable[_Union[RecalledRequest, _Mapping]]] = ...) -> None: ...

class RecalledRequest(_message.Message):
    __slots__ = ("request_id", "running", "record", "prompt", "sampling", "speculation")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    SPECULATION_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    running: bool
    record: bytes
    prompt: bytes
    sampling: _sampling_pb2.SamplingParams
    speculation: _sampling_pb2.Speculation
    def __init__(self, request_id: _Optional[str] = ..., running: _Optional[bool] = ..., record: _Optional[bytes] = ..., prompt: _Optional[bytes] = ..., sampling: _Optional[_Union[_sampling_pb2.SamplingParams, _Mapping]] = ..., speculation: _Optional[_Union[_sampling_pb2.Speculation, _Mapping]] = ...) -> None: ...

class PagesRequest(_message.Message):
    __slots__ = ("epoch",)
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    epoch: str
    def __init__(self, epoch: _Optional[str] = ...) -> None: ...

class PagesResponse(_message.Message):
    __slots__ = ("epoch", "number", "full", "pages")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    FULL_FIELD_NUMBER: _ClassVar[int]
    PAGES_FIELD_NUMBER: _ClassVar[int]
    epoch: str
    number: int
    full: bool
    pages: bytes
    def __init__(self, epoch: _Optional[str] = ..., number: _Optional[int] = ..., full: _Optional[bool] = ..., pages: _Optional[bytes] = ...) -> None: ...

class DescribeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeResponse(_message.Message):
    __slots__ = ("model", "vocabulary", "context_length", "vocabulary_size", "dtype", "determinism", "pages", "free_pages", "page_size")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VOCABULARY_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_LENGTH_FIELD_NUMBER: _ClassVar[int]
    VOCABULARY_SIZE_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    DETERMINISM_FIELD_NUMBER: _ClassVar[int]
    PAGES_FIELD_NUMBER: _ClassVar[int]
    FREE_PAGES_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    model: str
    vocabulary: str
    context_length: int
    vocabulary_size: int
    dtype: str
    determinism: str
    pages: int
    free_pages: int
    page_size: int
    def __init__(self, model: _Optional[str] = ..., vocabulary: _Optional[str] = ..., context_length: _Optional[int] = ..., vocabulary_size: _Optional[int] = ..., dtype: _Optional[str] = ..., determinism: _Optional[str] = ..., pages: _Optional[int] = ..., free_pages: _Optional[int] = ..., page_size: _Optional[int] = ...) -> None: ...
