from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class LookupRequest(_message.Message):
    __slots__ = ("fingerprint", "hashes")
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    HASHES_FIELD_NUMBER: _ClassVar[int]
    fingerprint: bytes
    hashes: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, fingerprint: _Optional[bytes] = ..., hashes: _Optional[_Iterable[bytes]] = ...) -> None: ...

class LookupResponse(_message.Message):
    __slots__ = ("leading",)
    LEADING_FIELD_NUMBER: _ClassVar[int]
    leading: int
    def __init__(self, leading: _Optional[int] = ...) -> None: ...

class FetchRequest(_message.Message):
    __slots__ = ("fingerprint", "hashes")
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    HASHES_FIELD_NUMBER: _ClassVar[int]
    fingerprint: bytes
    hashes: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, fingerprint: _Optional[bytes] = ..., hashes: _Optional[_Iterable[bytes]] = ...) -> None: ...

class FetchResponse(_message.Message):
    __slots__ = ("hash", "page", "checksum")
    HASH_FIELD_NUMBER: _ClassVar[int]
    PAGE_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    hash: bytes
    page: bytes
    checksum: int
    def __init__(self, hash: _Optional[bytes] = ..., page: _Optional[bytes] = ..., checksum: _Optional[int] = ...) -> None: ...

class StoreRequest(_message.Message):
    __slots__ = ("fingerprint", "hash", "parent", "page", "checksum")
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    PAGE_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    fingerprint: bytes
    hash: bytes
    parent: bytes
    page: bytes
    checksum: int
    def __init__(self, fingerprint: _Optional[bytes] = ..., hash: _Optional[bytes] = ..., parent: _Optional[bytes] = ..., page: _Optional[bytes] = ..., checksum: _Optional[int] = ...) -> None: ...

class StoreResponse(_message.Message):
    __slots__ = ("stored",)
    STORED_FIELD_NUMBER: _ClassVar[int]
    stored: int
    def __init__(self, stored: _Optional[int] = ...) -> None: ...
