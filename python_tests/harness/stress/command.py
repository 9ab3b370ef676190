"""``txha stress`` from its options to its exit status."""

from __future__ import annotations

import json
import logging
import random
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from rich.console import Console

from broker_plugin.cli.cluster.plan import check_settings
from broker_plugin.cli.layout import CONFIG_FILE
from broker_plugin.node.config import load_config
from python_tests.harness.cluster import end_on_sigterm
from python_tests.harness.judge import judge
from python_tests.harness.load import Load, Queues
from python_tests.harness.pika_probes import delete
from python_tests.harness.stress.clock import FakeClock
from python_tests.harness.stress.cluster import StressCluster
from python_tests.harness.stress.faults import FAULTS
from python_tests.harness.stress.foreign import Foreign
from python_tests.harness.stress.leases import LeaseWatch
from python_tests.harness.stress.members import COORDINATION, ETCD, SQLITE, Members
from python_tests.harness.stress.namespaces import NetworkError, own_surroundings
from python_tests.harness.stress.network import Namespaces, Network
from python_tests.harness.stress.own import NETWORKS, ON_THE_CLOCK, ON_THE_DISK, Own, choose_network, impossible
from python_tests.harness.stress.record import Recorder, read_history
from python_tests.harness.stress.report import write_page
from python_tests.harness.stress.results import BROKEN, HELD, Result
from python_tests.harness.stress.scenario import Extent, Leases, Schedule, Stores, Stress
from python_tests.harness.stress.schedule import RandomSchedule, ScheduleError, read_schedule
from python_tests.harness.stress.site import Site
from python_tests.harness.stress.stores import ClusterStores
from python_tests.harness.stress.syncs import Disks
from python_tests.harness.stress.terminal import show

LOAD = Load(think=0.05, single=0.15, several=0.2, large=0.002, largest=1000, ahead=200)
"""One message to 3,000 in a transaction"""

CLUSTER = "cluster"
"""The directory of the nodes, within that of the run"""


class BadInput(Exception):
    """An option cannot be used so; one sentence says why."""


Start = Callable[[Path, ExitStack], Result]
"""A run whose options have been checked, in the directory that is made for it"""
MENDABLE = (BadInput, NetworkError, ScheduleError)
"""What is raised for what people can mend"""


@dataclass(frozen=True)
class Options:
    """What was asked for; docs/operations.md explains each."""

    directory: Path | None = None
    """None: a new one below the directory for temporary files"""
    nodes: int = 3
    extent: Extent = field(default_factory=Extent)
    kinds: Sequence[str] | None = None
    """None: every kind that is possible"""
    schedule: Path | None = None
    seed: int | None = None
    min_rate: float = 20.0
    report: Path | None = None
    as_json: bool = False
    network: str = "auto"
    coordination: str = SQLITE
    settings: Sequence[str] = ()
    urls: Sequence[str] = ()
    make: Mapping[str, str] = field(default_factory=dict)
    """Kind -> the command that makes it, with brokers by URL"""
    heal: Mapping[str, str] = field(default_factory=dict)
    queue_prefix: str = ""
    queue_arguments: Mapping[str, str] = field(default_factory=dict)


def run(options: Options) -> int:
    """Run it; returns the exit status. Raises BadInput, ScheduleError, NetworkError, and what a cluster raises.

    SIGTERM ends it as Ctrl-C does, with all that it has made.
    """
    end_on_sigterm()
    for library in ("pika", "aio_pika", "aiormq", "asyncio"):
        logging.getLogger(library).setLevel(logging.CRITICAL)  # they report every fault at length
    console = Console(stderr=options.as_json)
    began = time.monotonic()

    def say(text: str) -> None:
        console.print(f"[dim]{time.monotonic() - began:6.1f} s[/]  {text}", highlight=False, soft_wrap=True)

    seed = secrets.randbits(32) if options.seed is None else options.seed
    start = (_foreign if options.urls else _own)(options, seed, say)
    place = _made(options.directory)
    say(f"seed {seed}; everything is kept in {place}")
    with ExitStack() as stack:
        result = start(place, stack)
        result.seed, result.min_rate = seed, options.min_rate
    page = options.report or place / "report.html"
    write_page(page, result)
    if options.as_json:
        print(json.dumps(result.as_dict(), indent=2))
    else:
        show(console, result)
    say(f"the report is in {page}")
    return result.status


def run_judge(path: Path) -> int:
    """Judge a history that an earlier run has written; returns the exit status. Raises BadInput."""
    try:
        if not path.is_file():
            raise BadInput(f"there is no history {path}: name the history.parquet of an earlier run")
        history = read_history(path)
    except (OSError, ValueError) as error:
        raise BadInput(str(error)) from error
    consumed = {source for attempt in history.attempts for source in attempt.consumed}
    queues = {queue: message for attempt in history.attempts for message, queue in attempt.messages.items()}
    sources = {attempt.messages[m] for attempt in history.attempts for m in attempt.messages if m in consumed}
    result = Result(judge(history, sorted(set(queues) - sources)))
    show(Console(), result)
    return BROKEN if result.broken else HELD


def _argument(value: str) -> str | int:
    """Of a queue: a number where it looks like one."""
    return int(value) if value.isdecimal() else value


def _made(directory: Path | None) -> Path:
    """Where the run keeps everything: refused options leave no directory. Raises BadInput."""
    try:
        if directory is None:
            return Path(tempfile.mkdtemp(prefix="txha-stress-")).absolute()
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"cannot make {directory or 'a directory for temporary files'}: {error.strerror}") from error
    return directory


def _own(options: Options, seed: int, say: Callable[[str], None]) -> Start:
    """Against a cluster that is started for it. Raises what ``run`` does."""
    inside = (options.directory or Path()) / CLUSTER
    if options.directory is not None and inside.exists():
        raise BadInput(f"{inside} exists already; choose another --dir")
    names = [f"node-{index + 1}" for index in range(options.nodes)]
    schedule: Schedule
    if options.schedule is not None:
        schedule = fixed = read_schedule(options.schedule, list(FAULTS), names)
        kinds = _checked(fixed.kinds, options)
    else:
        kinds = _checked(options.kinds, options)
        for reason, missing in _by_reason(impossible(FAULTS, options.network, options.nodes, options.coordination)):
            say(f"without {', '.join(missing)}: {reason}")
        cluster_wide = frozenset(kind for kind in kinds if FAULTS[kind].cluster_wide)
        schedule = RandomSchedule(seed, kinds, cluster_wide, options.extent.seconds)
    if options.coordination == ETCD and (lacking := Members.why_not()) is not None:
        raise BadInput(f"--coordination etcd is not possible here: {lacking}")
    check_settings(inside, options.nodes, list(options.settings))
    network = choose_network(options.network, kinds, options.nodes)
    if isinstance(network, Namespaces):
        own_surroundings()
    return partial(_started, options, kinds, schedule, network, random.Random(seed), say)


def _started(
    options: Options,
    kinds: Sequence[str],
    schedule: Schedule,
    network: Network,
    chance: random.Random,
    say: Callable[[str], None],
    place: Path,
    stack: ExitStack,
) -> Result:
    with_etcd = options.coordination == ETCD
    tampered = ON_THE_DISK | ON_THE_CLOCK  # the library for disks also mends what libfaketime does to sleeps
    cluster = StressCluster(
        place / CLUSTER,
        options.nodes,
        network,
        options.settings,
        small=options.nodes - 1 if "disk-full" in kinds else None,
        clock=FakeClock(place / "clocks") if ON_THE_CLOCK & set(kinds) else None,
        disks=Disks(place / "disks") if tampered & set(kinds) and Disks.why_not() is None else None,
        members=Members(network, options.nodes, place / "etcd") if with_etcd else None,
    )
    say(f"starting {options.nodes} nodes{' and their etcd' if with_etcd else ''}; faults: {', '.join(kinds)}")
    stack.enter_context(cluster)
    nodes = dict(zip(cluster.urls, cluster.names, strict=True))
    leases = stack.enter_context(LeaseWatch(cluster.status, _lease_of(cluster), nodes))
    return _run(options, place, Own(cluster), LOAD, schedule, chance, say, stack, ClusterStores(cluster), leases)


def _lease_of(cluster: StressCluster) -> float:
    """How long a lease holds, in seconds, as the nodes are configured: what is set stands in each file."""
    return load_config(cluster.directory / cluster.names[0] / CONFIG_FILE).timing.lease_ttl


def _by_reason(impossible: Mapping[str, str]) -> Iterator[tuple[str, list[str]]]:
    for reason in dict.fromkeys(impossible.values()):
        yield reason, [kind for kind, found in impossible.items() if found == reason]


def _foreign(options: Options, seed: int, say: Callable[[str], None]) -> Start:
    """Against brokers by URL. Raises what ``run`` does."""
    if options.coordination != SQLITE:
        raise BadInput("--coordination has no effect with --url: the brokers run already")
    kinds = list(options.kinds or options.make)
    for kind in kinds:
        if kind not in options.make:
            raise BadInput(f"there is no --fault-command for {kind}")
    if not kinds:
        raise BadInput("brokers by --url need a --fault-command kind=command for each kind of fault")
    site = Foreign(options.urls, options.make, options.heal)
    if not site.healthy():
        raise BadInput("not all of the brokers let a client in; look at each --url")
    prefix = f"{options.queue_prefix}txha-stress-{secrets.token_hex(3)}-"
    arguments = {key: _argument(value) for key, value in options.queue_arguments.items()}
    load = replace(LOAD, queues=Queues().with_prefix(prefix, arguments))
    schedule: Schedule
    if options.schedule is not None:
        schedule = read_schedule(options.schedule, kinds, site.names)
    else:
        schedule = RandomSchedule(seed, kinds, site.cluster_wide, options.extent.seconds)

    def start(place: Path, stack: ExitStack) -> Result:
        say(f"{len(options.urls)} brokers; queues {prefix}…; faults: {', '.join(kinds)}")
        result = _run(options, place, site, load, schedule, random.Random(seed), say, stack, None)
        if not result.broken:  # else they are evidence
            delete(options.urls, load.queues)
        return result

    return start


def _run(
    options: Options,
    place: Path,
    site: Site,
    load: Load,
    schedule: Schedule,
    chance: random.Random,
    say: Callable[[str], None],
    stack: ExitStack,
    stores: Stores | None,
    leases: Leases | None = None,
) -> Result:
    recorder = stack.enter_context(Recorder(place / "history.parquet"))
    return Stress(site, load, schedule, options.extent, recorder, chance, say, stores, leases).run()


def _checked(kinds: Sequence[str] | None, options: Options) -> list[str]:
    """The kinds to use: all that are possible, or those that were asked for. Raises BadInput if one is not possible."""
    if options.network not in NETWORKS:
        raise BadInput(f"there is no network {options.network!r}; there are {', '.join(NETWORKS)}")
    if options.coordination not in COORDINATION:
        raise BadInput(f"there is no coordination store {options.coordination!r}; there are {', '.join(COORDINATION)}")
    wanted = list(FAULTS) if kinds is None else list(kinds)
    for kind in wanted:
        if kind not in FAULTS:
            raise BadInput(f"there is no fault {kind!r}; there are {', '.join(FAULTS)}")
    missing = impossible(wanted, options.network, options.nodes, options.coordination)
    if kinds is not None:
        for kind, reason in missing.items():
            raise BadInput(f"{kind} is not possible here: {reason}")
    return [kind for kind in wanted if kind not in missing]
