from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LookupRequest(_message.Message):
    __slots__ = ("keys",)
    KEYS_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, keys: _Optional[_Iterable[bytes]] = ...) -> None: ...

class LookupResponse(_message.Message):
    __slots__ = ("leading",)
    LEADING_FIELD_NUMBER: _ClassVar[int]
    leading: int
    def __init__(self, leading: _Optional[int] = ...) -> None: ...

class Page(_message.Message):
    __slots__ = ("key", "data", "checksum", "tokens", "index", "seconds", "offset", "size", "tier")
    KEY_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    data: bytes
    checksum: int
    tokens: int
    index: int
    seconds: float
    offset: int
    size: int
    tier: str
    def __init__(self, key: _Optional[bytes] = ..., data: _Optional[bytes] = ..., checksum: _Optional[int] = ..., tokens: _Optional[int] = ..., index: _Optional[int] = ..., seconds: _Optional[float] = ..., offset: _Optional[int] = ..., size: _Optional[int] = ..., tier: _Optional[str] = ...) -> None: ...

class FetchRequest(_message.Message):
    __slots__ = ("keys", "shared", "prefill")
    KEYS_FIELD_NUMBER: _ClassVar[int]
    SHARED_FIELD_NUMBER: _ClassVar[int]
    PREFILL_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    shared: bool
    prefill: Prefill
    def __init__(self, keys: _Optional[_Iterable[bytes]] = ..., shared: _Optional[bool] = ..., prefill: _Optional[_Union[Prefill, _Mapping]] = ...) -> None: ...

class Prefill(_message.Message):
    __slots__ = ("tenant", "tokens", "first", "priority", "weight", "within_ms", "residency", "cache_salt")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    WITHIN_MS_FIELD_NUMBER: _ClassVar[int]
    RESIDENCY_FIELD_NUMBER: _ClassVar[int]
    CACHE_SALT_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    tokens: bytes
    first: int
    priority: int
    weight: float
    within_ms: int
    residency: _containers.RepeatedScalarFieldContainer[str]
    cache_salt: str
    def __init__(self, tenant: _Optional[str] = ..., tokens: _Optional[bytes] = ..., first: _Optional[int] = ..., priority: _Optional[int] = ..., weight: _Optional[float] = ..., within_ms: _Optional[int] = ..., residency: _Optional[_Iterable[str]] = ..., cache_salt: _Optional[str] = ...) -> None: ...

class FetchResponse(_message.Message):
    __slots__ = ("pages", "lease")
    PAGES_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    pages: _containers.RepeatedCompositeFieldContainer[Page]
    lease: int
    def __init__(self, pages: _Optional[_Iterable[_Union[Page, _Mapping]]] = ..., lease: _Optional[int] = ...) -> None: ...

class ReleaseRequest(_message.Message):
    __slots__ = ("lease",)
    LEASE_FIELD_NUMBER: _ClassVar[int]
    lease: int
    def __init__(self, lease: _Optional[int] = ...) -> None: ...

class ReleaseResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StoreRequest(_message.Message):
    __slots__ = ("tenant", "pages")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    PAGES_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    pages: _containers.RepeatedCompositeFieldContainer[Page]
    def __init__(self, tenant: _Optional[str] = ..., pages: _Optional[_Iterable[_Union[Page, _Mapping]]] = ...) -> None: ...

class StoreResponse(_message.Message):
    __slots__ = ("stored",)
    STORED_FIELD_NUMBER: _ClassVar[int]
    stored: int
    def __init__(self, stored: _Optional[int] = ...) -> None: ...
