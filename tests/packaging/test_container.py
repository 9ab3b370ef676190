"""The image and the three nodes of compose.yaml: what they promise, and that they run.

No container engine is needed: the steps of the Dockerfile are read here, and carried out in a root of its own by
``make image``; the services of compose.yaml run as processes.
"""

from __future__ import annotations

import re
import signal
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest

from python_tests.harness.waiting import wait_until
from recovery.store.store import CLOSE_SECONDS
from tests.packaging import dockerfile
from tests.packaging.composed import ROOT, TXHA, Composed

pytestmark = pytest.mark.slice

PASSWORD = "5b1f0c6e-not-to-be-found"


@pytest.fixture
def composed(tmp_path: Path) -> Composed:
    users = tmp_path / "users.toml"
    hashed = subprocess.run(
        [*TXHA, "hash-password"], input=PASSWORD + "\n", capture_output=True, text=True, check=True
    ).stdout.strip()
    users.write_text(f'app = "{hashed}"\n')
    return Composed(tmp_path, users)


@pytest.fixture
def running(composed: Composed) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """The nodes, after ``docker compose run found`` and ``docker compose up``; each ends as ``down`` ends it."""
    subprocess.run(composed.command("found"), check=True, env=composed.environment(), capture_output=True)
    processes = {name: composed.start(name) for name in composed.nodes}
    try:
        yield processes
    finally:
        for process in processes.values():
            process.send_signal(getattr(signal, composed.image.all("STOPSIGNAL")[0]))
        assert {process.wait(30) for process in processes.values()} <= {0}


def healthy(composed: Composed, node: str) -> bool:
    done = subprocess.run(composed.health(node), env=composed.environment(), capture_output=True, check=False)
    assert done.returncode in (0, 1), done
    return done.returncode == 0


def connect(port: int, user: str, password: str) -> pika.BlockingConnection:
    return pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", port, credentials=pika.PlainCredentials(user, password))
    )


def test_three_nodes_come_up_and_a_transaction_passes(
    composed: Composed, running: dict[str, subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    for node in composed.nodes:
        wait_until(lambda node=node: healthy(composed, node), 60, f"{node} is healthy")
    for node in composed.nodes:
        with connect(composed.client_port(node), "app", PASSWORD) as connection:
            channel = connection.channel()
            channel.queue_declare("orders", durable=True)
            channel.tx_select()
            channel.basic_publish("", "orders", node.encode())
            channel.tx_commit()
            assert channel.basic_get("orders", auto_ack=True)[2] == node.encode()
            channel.tx_commit()
    with pytest.raises(pika.exceptions.AMQPError):
        connect(composed.client_port("node-1"), "guest", "guest")
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 10 and not [path for path in files if PASSWORD.encode() in path.read_bytes()]
    for process in running.values():
        for name in ("cmdline", "environ"):
            assert PASSWORD.encode() not in Path(f"/proc/{process.pid}/{name}").read_bytes()


@pytest.mark.every
def test_nothing_is_healthy_before_the_cluster_is_founded(composed: Composed) -> None:
    process = composed.start("node-1")
    assert process.wait(60) == 1 or process.returncode == 2
    assert not healthy(composed, "node-1")


def test_nodes_listen_by_the_name_that_others_use_and_only_clients_ports_are_published() -> None:
    composed = Composed(Path("/nonexistent"), Path("/nonexistent"))
    assert len(composed.nodes) == 3
    for name in composed.nodes:
        service = composed.services[name]
        config = tomllib.loads((ROOT / composed.file["configs"][name]["file"]).read_text())
        assert config["name"] == service["hostname"] == config["amqp"]["host"] == config["peer"]["host"] == name
        assert {each["name"] for each in config["peers"]} == set(composed.nodes) - {name}
        assert all(each["host"] == each["name"] and each["port"] == 25672 for each in config["peers"])
        (published,) = service["ports"]
        assert re.fullmatch(rf"127\.0\.0\.1:57\d\d:{config['amqp']['port']}", published)
        assert service["networks"] == ["cluster"] and "network_mode" not in service


def test_each_service_has_no_right_that_it_does_not_need() -> None:
    composed = Composed(Path("/nonexistent"), Path("/nonexistent"))
    for service in composed.services.values():
        assert service["read_only"] and service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert "privileged" not in service and "environment" not in service
        assert int(service["stop_grace_period"].removesuffix("s")) > CLOSE_SECONDS
        assert service["tmpfs"] == ["/tmp"], "where `txha recover` copies the record to look at it"
        assert service["ulimits"]["nofile"] >= 20_300, "docs/operations.md, open files"
        assert service["restart"] == "no" or service["restart"].startswith("on-failure:"), "status 2 is an operator's"
    assert composed.services["found"]["profiles"] == ["found"], "nothing founds a cluster unless it is told to"


def test_the_image_runs_without_privileges_and_holds_no_secret() -> None:
    build, image = dockerfile.read(ROOT / "Dockerfile")
    names = [name for name, _ in image.steps]
    assert image.all("USER") == ["10001:10001"]
    assert not {"RUN", "COPY", "ADD"} & set(names[names.index("USER") :])
    assert image.words("ENTRYPOINT") == ["txha"] and image.health()[0] == "txha"
    assert not {"ADD", "ARG"} & {name for stage in (build, image) for name, _ in stage.steps}
    for step in build.all("RUN"):
        if " install " in step and "-m pip" in step:
            assert "--require-hashes" in step or "--no-index" in step
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignored[1] == "*" and not [line for line in ignored if re.match(r"!(packaging|\.git|tests|docs)", line)]


def test_what_the_image_keeps_is_what_the_services_mount_and_no_other_user_may_read_it() -> None:
    _, image = dockerfile.read(ROOT / "Dockerfile")
    kept = image.words("VOLUME")
    (made,) = re.findall(r"install -d -o txha -g txha -m 0700 ([^&]+)", image.all("RUN")[0])
    assert set(kept) < set(made.split()) and image.all("STOPSIGNAL") == ["SIGTERM"]
    composed = Composed(Path("/nonexistent"), Path("/nonexistent"))
    for name in composed.nodes:
        service = composed.services[name]
        assert service["volumes"] == [f"{name}:/var/lib/txha/store", "record:/var/lib/txha/record"]
        assert {volume.partition(":")[2] for volume in service["volumes"]} == set(kept)
        config = tomllib.loads((ROOT / composed.file["configs"][name]["file"]).read_text())
        assert config["amqp"]["users_file"] == "/run/secrets/users" and service["secrets"] == ["users"]


def test_the_image_has_what_runs_and_not_what_builds() -> None:
    build, image = dockerfile.read(ROOT / "Dockerfile")
    assert " pip uninstall --yes setuptools pip" in build.all("RUN")[-1]
    (installed,) = re.findall(r"apt-get install -y --no-install-recommends ([\w -]+?) *&&", image.all("RUN")[0])
    assert installed == "python3" and image.all("COPY") == ["--from=build /opt/txha /opt/txha"]


def test_the_image_is_built_from_the_locks_of_the_whole() -> None:
    whole = pins(ROOT / "requirements.lock")
    for name in ("requirements-runtime.lock", "requirements-build.lock"):
        found = pins(ROOT / name)
        assert found and found.items() <= whole.items()
    for name in ROOT.glob("requirements*.lock"):
        assert "://" not in name.read_text()


def test_the_image_has_all_that_the_project_says_it_needs() -> None:
    """RE2 was added to the project and not to this lock: the image was built, and its command ended with a trace."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {re.split(r"[^\w.-]", each)[0].lower() for each in project["dependencies"]}
    assert needed and needed <= {name.lower() for name in pins(ROOT / "requirements-runtime.lock")}


def pins(lock: Path) -> dict[str, str]:
    """Each package and its version; each has hashes."""
    text = lock.read_text()
    found = dict(re.findall(r"^([\w.-]+)==(\S+) \\\n    --hash=sha256:", text, re.MULTILINE))
    assert len(found) == len(re.findall(r"^[\w.-]+==", text, re.MULTILINE))
    return found
