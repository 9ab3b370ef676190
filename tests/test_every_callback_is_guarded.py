"""No callback of the event loop runs outside the guard (``damage_found_while_serving``): a look at every line that asks
the loop for something.

Whatever takes a callback or a coroutine is asked of a guard, whose name is ``guard``; every protocol is a
``GuardedProtocol``. What a coroutine awaits needs no guard: the coroutine has one.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "broker_plugin"
ELSEWHERE = {"cli", "compiled", "guard.py", "http"}
"""Commands of their own processes; a build; the guard itself; the door, a process that holds nothing."""
ASKING = {
    *("call_soon", "call_soon_threadsafe", "call_later", "call_at", "create_task", "ensure_future", "TaskGroup"),
    *("run_coroutine_threadsafe", "add_done_callback", "run_in_executor", "to_thread", "add_signal_handler"),
    *("add_reader", "add_writer", "create_server", "create_connection", "create_unix_server", "start_server"),
    *("start_unix_server", "connect_accepted_socket", "create_datagram_endpoint", "open_connection", "subprocess_exec"),
    *("set_exception_handler", "submit", "Timer", "Thread"),
}
AWAITED = {"run_in_executor", "to_thread"}
"""Asked for and awaited in one expression, they call no function back."""
CALLBACKS = {"connection_made", "connection_lost", "data_received", "eof_received", "pause_writing", "resume_writing"}
ALLOWED = {
    ("node/main.py", "add_signal_handler"): "it sets the event that ends the node, broken or not",
    ("node/ports.py", "create_server"): "a look whether the port is free; what connects meanwhile is not served",
    ("node/ports.py", "Protocol"): "the same",
    ("node/ending.py", "Timer"): "it ends a process that does nothing any more but wait for its threads",
    ("node/resident.py", "Thread"): "it gives memory back to the system, and tells nothing",
    ("node/disk_watch.py", "Thread"): "it asks for free bytes; what it finds is posted by the guard",
    ("host/broker_end.py", "Protocol"): "it runs in the process of a host broker, which the connection tells of errors",
    ("host/broker_end.py", "NodeProtocol"): "the same",
    ("coordination/etcd/change_stream.py", "Thread"): "it runs in a process of its own, or in that of a command",
    ("coordination/etcd/version_pipe.py", "Thread"): "it sets what a watch waits for, and the watch reads again anyway",
    ("node/link_tls.py", "BaseProtocol"): "the type of what takes a connection over: it is a guarded one",
    ("node/link_tls.py", "Protocol"): "the same",
    ("coordination/record_thread.py", "submit"): "the future goes to the guard; no caller waits for an answer",
}


def unguarded(source: str) -> list[str]:
    """What is asked of the loop without a guard, and classes that are no guarded protocols, in the order of lines."""
    found: list[tuple[int, str]] = []
    tree = ast.parse(source)
    awaited = {node.value.func for node in ast.walk(tree) if isinstance(node, ast.Await) and is_call(node.value)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in ASKING and not is_guard(node.value):
            if not (node.attr in AWAITED and node in awaited):
                found.append((node.lineno, node.attr))
        elif isinstance(node, ast.Attribute) and node.attr.endswith("Protocol") and named(node.value) == "asyncio":
            found.append((node.lineno, node.attr))
        elif isinstance(node, ast.Name) and node.id in ASKING:
            found.append((node.lineno, node.id))
        elif isinstance(node, ast.ImportFrom) and node.module in ("asyncio", "threading"):
            found.append((node.lineno, "import"))
        elif isinstance(node, ast.ClassDef) and takes_callbacks(node) and not is_guarded(node):
            found.append((node.lineno, node.name))
    return [name for _, name in sorted(found)]


def is_call(node: ast.expr) -> bool:
    return isinstance(node, ast.Call)


def is_guard(node: ast.expr) -> bool:
    return named(node) in ("guard", "_guard")


def named(node: ast.expr) -> str:
    """The last word of a dotted name."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def is_guarded(node: ast.ClassDef) -> bool:
    return "GuardedProtocol" in map(named, node.bases)


def takes_callbacks(node: ast.ClassDef) -> bool:
    return any(isinstance(each, ast.FunctionDef) and each.name in CALLBACKS for each in node.body)


def test_every_callback_of_the_node_is_guarded() -> None:
    found = set()
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT)
        if name.parts[0] not in ELSEWHERE:
            found |= {(str(name), what) for what in unguarded(path.read_text())}
    assert found == set(ALLOWED)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("guard.call_soon(f)", []),
        ("self._server.guard.call_later(1, f)", []),
        ("post=self.guard.call_soon_threadsafe", []),
        ("loop.call_soon(f)", ["call_soon"]),
        ("asyncio.get_running_loop().call_later(1, f)", ["call_later"]),
        ("later = loop.call_later", ["call_later"]),
        ("guard.loop.create_task(f())", ["create_task"]),
        ("async def f():\n await loop.run_in_executor(None, g)", []),
        ("loop.run_in_executor(None, g)", ["run_in_executor"]),
        ("async def f():\n await loop.create_server(g)", ["create_server"]),
        ("asyncio.ensure_future(f()).add_done_callback(g)", ["ensure_future", "add_done_callback"]),
        ("from asyncio import create_task", ["import"]),
        ("class A(asyncio.Protocol): pass", ["Protocol"]),
        ("class A(asyncio.BufferedProtocol): pass", ["BufferedProtocol"]),
        ("class A(Base):\n def data_received(self, data): pass", ["A"]),
        ("class A(GuardedProtocol):\n def data_received(self, data): pass", []),
    ],
)
def test_the_look_sees(source: str, found: list[str]) -> None:
    assert sorted(unguarded(source)) == sorted(found)
