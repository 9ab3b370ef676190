"""The shape of a file of definitions, as RabbitMQ 3.10 to 4.1 write it. Keys that it does not have are refused by name.

Source: RabbitMQ's ``rabbit_definitions``, and files that both versions have written.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from broker_plugin.definitions.keys import KeyTwice, checked_json

LONGEST_NAME = 255
"""Bytes of a name: as many as AMQP can say"""
MOST_ERRORS = 5
"""Of those in a file that are told at a time"""


def _short(name: str) -> str:
    if len(name.encode("utf-8", "replace")) > LONGEST_NAME:
        raise ValueError(f"a name has at most {LONGEST_NAME} bytes")
    return name


Name = Annotated[str, AfterValidator(_short)]
Table = dict[str, Any]
"""Arguments of AMQP"""
Tags = list[str] | str
"""A list, or texts between commas"""
Limits = dict[str, int] | list[list[str | int]]
"""By their names; `rabbitmqctl` writes those of a virtual host as pairs"""


def tags_between_commas(text: str) -> list[str]:
    """As earlier versions of RabbitMQ write tags."""
    return [each.strip() for each in text.split(",") if each.strip()]


class MalformedDocument(ValueError):
    """It is no file of definitions; the text says what is wrong where."""


class DocumentEntry(BaseModel):
    """Something that a section lists."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class VhostEntry(DocumentEntry):
    """Something in a virtual host. A file of one virtual host does not say which: "" then."""

    vhost: Name = ""


class UserEntry(DocumentEntry):
    """A user. ``password`` is written by hand only."""

    name: Name
    password_hash: str | None = None
    password: str | None = None
    hashing_algorithm: str | None = None
    tags: Tags = []
    limits: Limits = {}


class VhostMetadata(DocumentEntry):
    """What else is said of a virtual host."""

    description: str | None = None
    tags: Tags = []
    default_queue_type: str | None = None
    tracing: bool = False
    protected_from_deletion: bool = False


class NewVhost(DocumentEntry):
    """A virtual host."""

    name: Name
    description: str | None = None
    tags: Tags | None = None
    metadata: VhostMetadata | None = None
    default_queue_type: str | None = None
    tracing: bool = False
    limits: Limits = []
    protected_from_deletion: bool = False


class PermissionEntry(VhostEntry):
    """What a user may do in a virtual host."""

    user: Name
    configure: str
    write: str
    read: str


class TopicPermissionEntry(VhostEntry):
    """What a user may do with a topic exchange."""

    user: Name
    exchange: Name
    write: str
    read: str


class ParameterEntry(VhostEntry):
    """A parameter of a virtual host: its limits, an operator policy, or something of a plugin."""

    component: str
    name: str
    value: Any


class GlobalParameterEntry(DocumentEntry):
    """A parameter of the cluster itself."""

    name: str
    value: Any
    component: str | None = None


class PolicyEntry(VhostEntry):
    """A policy."""

    name: Name
    pattern: str
    definition: Table
    priority: int = 0
    apply_to: str = Field("all", alias="apply-to")


class QueueEntry(VhostEntry):
    """A queue."""

    name: Name
    durable: bool = True
    auto_delete: bool = False
    arguments: Table = {}
    type: str | None = None


class ExchangeEntry(VhostEntry):
    """An exchange."""

    name: Name
    type: str
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: Table = {}


class BindingEntry(VhostEntry):
    """A binding of a queue or an exchange to an exchange."""

    source: Name
    destination: Name
    destination_type: str
    routing_key: Name = ""
    arguments: Table = {}
    properties_key: str | None = None

    @property
    def to_its_own_queue(self) -> bool:
        """Of the default exchange: to the queue whose name is the key."""
        return self.destination_type == "queue" and self.routing_key == self.destination


class Document(DocumentEntry):
    """A file. What the first block says is about who wrote it, and changes nothing."""

    rabbit_version: Any = None
    rabbitmq_version: Any = None
    product_name: Any = None
    product_version: Any = None
    rabbitmq_definition_format: Any = None
    original_cluster_name: Any = None
    original_vhost_name: Any = None
    explanation: Any = None
    description: Any = None
    default_queue_type: Any = None
    limits: Any = None
    metadata: Any = None
    tags: Any = None
    tracing: Any = None
    name: Any = None

    users: list[UserEntry] = []
    vhosts: list[NewVhost] = []
    permissions: list[PermissionEntry] = []
    topic_permissions: list[TopicPermissionEntry] = []
    parameters: list[ParameterEntry] = []
    global_parameters: list[GlobalParameterEntry] = []
    policies: list[PolicyEntry] = []
    queues: list[QueueEntry] = []
    exchanges: list[ExchangeEntry] = []
    bindings: list[BindingEntry] = []


def read_document(text: str | bytes) -> Document:
    """The file. Raises MalformedDocument."""
    try:
        document = Document.model_validate_json(text)
    except ValidationError as error:
        raise MalformedDocument(_told(error)) from None
    try:
        checked_json(text)
    except KeyTwice as error:
        raise MalformedDocument(str(error)) from None
    return document


def _told(error: ValidationError) -> str:
    """Where and what, of the first errors; a value of the file is not told, since it may be a password."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    told = []
    for each in found[:MOST_ERRORS]:
        where = ".".join(str(part) for part in each["loc"]) or "the file"
        what = "there is no such key" if each["type"] == "extra_forbidden" else each["msg"].lower()
        told.append(f"{where}: {what}")
    more = len(found) - len(told)
    return "; ".join(told) + (f"; and {more} more" if more > 0 else "")
