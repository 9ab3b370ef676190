"""``/api/whoami`` and ``/api/users``. Hashes of passwords are not given out: only a backup of the store holds them."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from broker_plugin.amqp.protocol.passwords import RABBITMQ_HASHES, RABBITMQ_SHA256, SALT_BYTES, is_hash, new_hash
from broker_plugin.definitions.document import tags_between_commas
from broker_plugin.http.errors import bad_request, not_found
from broker_plugin.http.login import ADMINISTRATOR, MANAGEMENT
from broker_plugin.http.reading import name_in, read_object
from broker_plugin.http.routing import Api, Asking
from txobserver.access import LONGEST_NAME, MOST_TAGS

KNOWN = frozenset({"name", "password", "password_hash", "hashing_algorithm", "tags", "vhost"})
"""What a user can be given; RabbitMQ ignores other keys, and here they are refused. ``vhost`` is said by rabbitmqadmin
whatever it declares."""


def routes(api: Api) -> list[BaseRoute]:
    """All of them."""
    return [
        api.route("/api/whoami", ["GET"], MANAGEMENT, whoami),
        api.route("/api/users", ["GET"], ADMINISTRATOR, list_users),
        api.route("/api/users/{name}", ["GET"], ADMINISTRATOR, get_user),
        api.route("/api/users/{name}", ["PUT"], ADMINISTRATOR, put_user),
        api.route("/api/users/{name}", ["DELETE"], ADMINISTRATOR, delete_user),
    ]


async def whoami(asking: Asking) -> Response:
    """The user who asks."""
    return JSONResponse({"name": asking.login.user, "tags": list(asking.login.tags)})


async def list_users(asking: Asking) -> Response:
    """All users."""
    return JSONResponse([_shown(each) for each in await asking.node.ask("users.list")])


async def get_user(asking: Asking) -> Response:
    """One user."""
    return JSONResponse(_shown(await _there(asking)))


async def put_user(asking: Asking) -> Response:
    """Adds a user, or gives one another password and other tags, in one step."""
    name, given = name_in(asking.request, "name"), await read_object(asking.request)
    if len(name.encode()) > LONGEST_NAME:
        raise bad_request(f"a user's name has at most {LONGEST_NAME} bytes")
    arguments = {"name": name, "tags": _tags(given), "hash": await _hash(given)}
    if unknown := sorted(given.keys() - KNOWN):
        raise bad_request(f"a user has no {unknown[0]!r}")
    done = await asking.change("users.put", arguments)
    return Response(status_code=201 if done["added"] else 204)


async def delete_user(asking: Asking) -> Response:
    """Deletes a user, whose connections are closed."""
    found = await _there(asking)
    await asking.change("users.delete", {"name": found["name"]})
    return Response(status_code=204)


async def _there(asking: Asking) -> dict[str, Any]:
    name = name_in(asking.request, "name")
    for each in await asking.node.ask("users.list"):
        if each["name"] == name:
            return dict(each)
    raise not_found()


def _shown(user: dict[str, Any]) -> dict[str, Any]:
    return {"name": user["name"], "tags": user["tags"], "limits": user["limits"]}


def _tags(given: dict[str, Any]) -> list[str]:
    """A list, or as earlier versions of RabbitMQ have it, texts between commas."""
    if "tags" not in given:
        raise bad_request("tags_not_present")
    tags = given["tags"]
    if isinstance(tags, str):
        tags = tags_between_commas(tags)
    if not isinstance(tags, list) or not all(isinstance(each, str) and each for each in tags):
        raise bad_request("tags are a list of texts, or texts between commas")
    if len(tags) > MOST_TAGS or any(len(each.encode()) > LONGEST_NAME for each in tags):
        raise bad_request(f"a user has at most {MOST_TAGS} tags, of at most {LONGEST_NAME} bytes each")
    return tags


async def _hash(given: dict[str, Any]) -> str:
    """What is kept of the password that is given, or whose hash is."""
    password, hashed = given.get("password"), given.get("password_hash")
    if password is not None and hashed is not None:
        raise bad_request("both_password_and_password_hash_are_provided")
    if isinstance(password, str) and password:
        return await asyncio.to_thread(new_hash, password, secrets.token_bytes(SALT_BYTES))
    if isinstance(hashed, str) and hashed:
        algorithm = given.get("hashing_algorithm", RABBITMQ_SHA256)
        kept = f"{algorithm}${hashed}" if algorithm in RABBITMQ_HASHES else hashed
        if is_hash(kept):
            return kept
        raise bad_request("password_hash is no hash of a kind that is known")
    raise bad_request("password or password_hash must be a text that is not empty: no user is without a password")
