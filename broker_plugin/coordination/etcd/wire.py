"""What is said to etcd and answered: the part of its interface (version 3) that is used here, as protobuf messages.

Names and numbers of the fields are those of etcd's own ``rpc.proto``, ``kv.proto`` and ``auth.proto``. A field that is
not listed is skipped in an answer. The classes are made when the module is loaded: code that protobuf's compiler has
written works with some versions of its library only (docs/decisions/etcd.md).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "bool": _Field.TYPE_BOOL,
    "bytes": _Field.TYPE_BYTES,
    "int32": _Field.TYPE_INT32,  # enumerations, too: they are written alike
    "int64": _Field.TYPE_INT64,
    "string": _Field.TYPE_STRING,
    "uint64": _Field.TYPE_UINT64,
}
_MESSAGES = {
    "Header": "cluster_id=1 uint64, member_id=2 uint64, revision=3 int64",
    "KeyValue": "key=1 bytes, create_revision=2 int64, mod_revision=3 int64, value=5 bytes",
    "RangeRequest": (
        "key=1 bytes, range_end=2 bytes, limit=3 int64, serializable=7 bool, keys_only=8 bool, count_only=9 bool"
    ),
    "RangeResponse": "header=1 Header, kvs=2 *KeyValue, count=4 int64",
    "PutRequest": "key=1 bytes, value=2 bytes",
    "DeleteRangeRequest": "key=1 bytes",
    "RequestOp": "request_range=1 RangeRequest, request_put=2 PutRequest, request_delete_range=3 DeleteRangeRequest",
    "ResponseOp": "response_range=1 RangeResponse",
    "Compare": "result=1 int32, target=2 int32, key=3 bytes, mod_revision=6 int64",
    "TxnRequest": "compare=1 *Compare, success=2 *RequestOp, failure=3 *RequestOp",
    "TxnResponse": "header=1 Header, succeeded=2 bool, responses=3 *ResponseOp",
    "WatchCreateRequest": "key=1 bytes",
    "WatchRequest": "create_request=1 WatchCreateRequest",
    "Event": "type=1 int32, kv=2 KeyValue",
    "WatchResponse": (
        "header=1 Header, created=3 bool, canceled=4 bool, compact_revision=5 int64, cancel_reason=6 string, "
        "events=11 *Event"
    ),
    "AuthenticateRequest": "name=1 string, password=2 string",
    "AuthenticateResponse": "header=1 Header, token=2 string",
}
"""Of each message the fields: name, number, type; a star before that where there may be several"""
_PACKAGE = "txha.etcd"
EQUAL, OF_MOD_REVISION = 0, 2
"""Of a comparison: how, and what is compared"""
DELETED = 1
"""The type of an event that tells of a key that is gone"""


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="txha_etcd.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field in fields.split(", "):
            what, kind = field.split(" ")
            called, number = what.split("=")
            added = message.field.add(name=called, number=int(number), label=_Field.LABEL_OPTIONAL)
            if kind.startswith("*"):
                added.label = _Field.LABEL_REPEATED
            if (kind := kind.lstrip("*")) in _SCALARS:
                added.type = _SCALARS[kind]
            else:
                added.type, added.type_name = _Field.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _MESSAGES
    }


_MADE = _classes()
RangeRequest: Any = _MADE["RangeRequest"]
PutRequest: Any = _MADE["PutRequest"]
DeleteRangeRequest: Any = _MADE["DeleteRangeRequest"]
RequestOp: Any = _MADE["RequestOp"]
Compare: Any = _MADE["Compare"]
TxnRequest: Any = _MADE["TxnRequest"]
WatchRequest: Any = _MADE["WatchRequest"]
WatchCreateRequest: Any = _MADE["WatchCreateRequest"]
AuthenticateRequest: Any = _MADE["AuthenticateRequest"]


class Method(NamedTuple):
    """A call of etcd's: its path, and the class of its answers."""

    path: str
    response: Any


RANGE = Method("/etcdserverpb.KV/Range", _MADE["RangeResponse"])
TXN = Method("/etcdserverpb.KV/Txn", _MADE["TxnResponse"])
WATCH = Method("/etcdserverpb.Watch/Watch", _MADE["WatchResponse"])
AUTHENTICATE = Method("/etcdserverpb.Auth/Authenticate", _MADE["AuthenticateResponse"])


def changed_if(key: bytes, mod_revision: int, *changes: Any) -> Any:
    """A transaction: these changes, if ``key`` was changed last in that revision (0: is not there).

    If it was not, the answer holds what is there.
    """
    return TxnRequest(
        compare=[Compare(result=EQUAL, target=OF_MOD_REVISION, key=key, mod_revision=mod_revision)],
        success=list(changes),
        failure=[RequestOp(request_range=RangeRequest(key=key))],
    )


def below(prefix: bytes) -> bytes:
    """The end of the range of all keys that begin with ``prefix``, whose last byte is not the highest."""
    return prefix[:-1] + bytes([prefix[-1] + 1])
