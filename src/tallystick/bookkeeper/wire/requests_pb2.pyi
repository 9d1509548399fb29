from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Header(_message.Message):
    __slots__ = ("version", "operation", "request_id", "priority")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    version: int
    operation: int
    request_id: int
    priority: int
    def __init__(self, version: _Optional[int] = ..., operation: _Optional[int] = ..., request_id: _Optional[int] = ..., priority: _Optional[int] = ...) -> None: ...

class Read(_message.Message):
    __slots__ = ("ledger", "entry", "master_key", "previous_lac", "timeout_ms", "flag")
    LEDGER_FIELD_NUMBER: _ClassVar[int]
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    MASTER_KEY_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_LAC_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    FLAG_FIELD_NUMBER: _ClassVar[int]
    ledger: int
    entry: int
    master_key: bytes
    previous_lac: int
    timeout_ms: int
    flag: int
    def __init__(self, ledger: _Optional[int] = ..., entry: _Optional[int] = ..., master_key: _Optional[bytes] = ..., previous_lac: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., flag: _Optional[int] = ...) -> None: ...

class Add(_message.Message):
    __slots__ = ("ledger", "entry", "master_key", "body", "write_flags", "flag")
    LEDGER_FIELD_NUMBER: _ClassVar[int]
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    MASTER_KEY_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    WRITE_FLAGS_FIELD_NUMBER: _ClassVar[int]
    FLAG_FIELD_NUMBER: _ClassVar[int]
    ledger: int
    entry: int
    master_key: bytes
    body: bytes
    write_flags: int
    flag: int
    def __init__(self, ledger: _Optional[int] = ..., entry: _Optional[int] = ..., master_key: _Optional[bytes] = ..., body: _Optional[bytes] = ..., write_flags: _Optional[int] = ..., flag: _Optional[int] = ...) -> None: ...

class WriteLac(_message.Message):
    __slots__ = ("ledger", "lac", "master_key", "body")
    LEDGER_FIELD_NUMBER: _ClassVar[int]
    LAC_FIELD_NUMBER: _ClassVar[int]
    MASTER_KEY_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    ledger: int
    lac: int
    master_key: bytes
    body: bytes
    def __init__(self, ledger: _Optional[int] = ..., lac: _Optional[int] = ..., master_key: _Optional[bytes] = ..., body: _Optional[bytes] = ...) -> None: ...

class OfLedger(_message.Message):
    __slots__ = ("ledger",)
    LEDGER_FIELD_NUMBER: _ClassVar[int]
    ledger: int
    def __init__(self, ledger: _Optional[int] = ...) -> None: ...

class BookieInfo(_message.Message):
    __slots__ = ("requested",)
    REQUESTED_FIELD_NUMBER: _ClassVar[int]
    requested: int
    def __init__(self, requested: _Optional[int] = ...) -> None: ...

class Auth(_message.Message):
    __slots__ = ("plugin", "payload")
    PLUGIN_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    plugin: bytes
    payload: bytes
    def __init__(self, plugin: _Optional[bytes] = ..., payload: _Optional[bytes] = ...) -> None: ...

class StartTls(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Request(_message.Message):
    __slots__ = ("header", "read", "add", "auth", "write_lac", "read_lac", "bookie_info", "start_tls", "force", "entry_list")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    ADD_FIELD_NUMBER: _ClassVar[int]
    AUTH_FIELD_NUMBER: _ClassVar[int]
    WRITE_LAC_FIELD_NUMBER: _ClassVar[int]
    READ_LAC_FIELD_NUMBER: _ClassVar[int]
    BOOKIE_INFO_FIELD_NUMBER: _ClassVar[int]
    START_TLS_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    ENTRY_LIST_FIELD_NUMBER: _ClassVar[int]
    header: Header
    read: Read
    add: Add
    auth: Auth
    write_lac: WriteLac
    read_lac: OfLedger
    bookie_info: BookieInfo
    start_tls: StartTls
    force: OfLedger
    entry_list: OfLedger
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., read: _Optional[_Union[Read, _Mapping]] = ..., add: _Optional[_Union[Add, _Mapping]] = ..., auth: _Optional[_Union[Auth, _Mapping]] = ..., write_lac: _Optional[_Union[WriteLac, _Mapping]] = ..., read_lac: _Optional[_Union[OfLedger, _Mapping]] = ..., bookie_info: _Optional[_Union[BookieInfo, _Mapping]] = ..., start_tls: _Optional[_Union[StartTls, _Mapping]] = ..., force: _Optional[_Union[OfLedger, _Mapping]] = ..., entry_list: _Optional[_Union[OfLedger, _Mapping]] = ...) -> None: ...

class ReadResult(_message.Message):
    __slots__ = ("status", "ledger", "entry", "body", "max_lac", "lac_updated_ms")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LEDGER_FIELD_NUMBER: _ClassVar[int]
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    MAX_LAC_FIELD_NUMBER: _ClassVar[int]
    LAC_UPDATED_MS_FIELD_NUMBER: _ClassVar[int]
    status: int
    ledger: int
    entry: int
    body: bytes
    max_lac: int
    lac_updated_ms: int
    def __init__(self, status: _Optional[int] = ..., ledger: _Optional[int] = ..., entry: _Optional[int] = ..., body: _Optional[bytes] = ..., max_lac: _Optional[int] = ..., lac_updated_ms: _Optional[int] = ...) -> None: ...

class AddResult(_message.Message):
    __slots__ = ("status", "ledger", "entry")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LEDGER_FIELD_NUMBER: _ClassVar[int]
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    status: int
    ledger: int
    entry: int
    def __init__(self, status: _Optional[int] = ..., ledger: _Optional[int] = ..., entry: _Optional[int] = ...) -> None: ...

class LedgerResult(_message.Message):
    __slots__ = ("status", "ledger")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LEDGER_FIELD_NUMBER: _ClassVar[int]
    status: int
    ledger: int
    def __init__(self, status: _Optional[int] = ..., ledger: _Optional[int] = ...) -> None: ...

class ReadLacResult(_message.Message):
    __slots__ = ("status", "ledger", "lac_body", "last_entry_body")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LEDGER_FIELD_NUMBER: _ClassVar[int]
    LAC_BODY_FIELD_NUMBER: _ClassVar[int]
    LAST_ENTRY_BODY_FIELD_NUMBER: _ClassVar[int]
    status: int
    ledger: int
    lac_body: bytes
    last_entry_body: bytes
    def __init__(self, status: _Optional[int] = ..., ledger: _Optional[int] = ..., lac_body: _Optional[bytes] = ..., last_entry_body: _Optional[bytes] = ...) -> None: ...

class BookieInfoResult(_message.Message):
    __slots__ = ("status", "total_bytes", "free_bytes")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    status: int
    total_bytes: int
    free_bytes: int
    def __init__(self, status: _Optional[int] = ..., total_bytes: _Optional[int] = ..., free_bytes: _Optional[int] = ...) -> None: ...

class EntryListResult(_message.Message):
    __slots__ = ("status", "ledger", "availability")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LEDGER_FIELD_NUMBER: _ClassVar[int]
    AVAILABILITY_FIELD_NUMBER: _ClassVar[int]
    status: int
    ledger: int
    availability: bytes
    def __init__(self, status: _Optional[int] = ..., ledger: _Optional[int] = ..., availability: _Optional[bytes] = ...) -> None: ...

class Response(_message.Message):
    __slots__ = ("header", "status", "read", "add", "auth", "write_lac", "read_lac", "bookie_info", "start_tls", "force", "entry_list")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    ADD_FIELD_NUMBER: _ClassVar[int]
    AUTH_FIELD_NUMBER: _ClassVar[int]
    WRITE_LAC_FIELD_NUMBER: _ClassVar[int]
    READ_LAC_FIELD_NUMBER: _ClassVar[int]
    BOOKIE_INFO_FIELD_NUMBER: _ClassVar[int]
    START_TLS_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    ENTRY_LIST_FIELD_NUMBER: _ClassVar[int]
    header: Header
    status: int
    read: ReadResult
    add: AddResult
    auth: Auth
    write_lac: LedgerResult
    read_lac: ReadLacResult
    bookie_info: BookieInfoResult
    start_tls: StartTls
    force: LedgerResult
    entry_list: EntryListResult
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., status: _Optional[int] = ..., read: _Optional[_Union[ReadResult, _Mapping]] = ..., add: _Optional[_Union[AddResult, _Mapping]] = ..., auth: _Optional[_Union[Auth, _Mapping]] = ..., write_lac: _Optional[_Union[LedgerResult, _Mapping]] = ..., read_lac: _Optional[_Union[ReadLacResult, _Mapping]] = ..., bookie_info: _Optional[_Union[BookieInfoResult, _Mapping]] = ..., start_tls: _Optional[_Union[StartTls, _Mapping]] = ..., force: _Optional[_Union[LedgerResult, _Mapping]] = ..., entry_list: _Optional[_Union[EntryListResult, _Mapping]] = ...) -> None: ...
