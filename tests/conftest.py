from __future__ import annotations

import gc
import importlib
import os
import random
import shutil
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import settings

from rekindle import Store, open_store
from tests import command, remote_hosts, servers

ENGINES = ("sqlite", "postgresql")

# Nobody is there to leave a pager.
os.environ["PAGER"] = "cat"

# A shell lets what it runs in the background ignore these, and what we start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)

# To compile the tests takes longer than to run most of them. Bytecode stays beside the source even if
# Python is told to write none: under another folder Python would not look for that of the libraries.
sys.dont_write_bytecode = False

# A run of the suite repeats the last one, and so needs few examples: what many and fresh ones find
# belongs to a run that looks for it. Without a deadline: a busy machine is not a finding.
settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=20)
settings.register_profile("fresh", print_blob=True, deadline=None, max_examples=500)


# All of their tests belong to steps of their own, and they import large libraries.
APART = {
    "networks": (
        "matrix", "contract/test_platform_features.py", "contract/test_platform_gateway.py",
        "acceptance/test_networks.py", "unit/platforms/test_telegram.py",
        "unit/platforms/test_discord.py", "unit/platforms/test_slack.py",
    ),
    "slow": (
        "unit/platforms/test_telegram.py", "unit/platforms/test_discord.py",
        "unit/platforms/test_slack.py",
    ),
    "browser": ("web",),
    "agents": ("agents",),
}  # fmt: skip


# Where processes run that are not on this machine, as the parameters of tests name it.
NETWORK_FILES = ("test_platforms.py", "test_kinds.py")  # their Telegram takes seconds to import
PLACES = {"container", "ssh", "apptainer", "modal"}

# Acceptance tests of what stands above the store. tests/contract tests what they need of PostgreSQL, and
# other acceptance tests kill, overtake and share stores on it: so these run on it in a step apart.
ABOVE_STORE = {
    "test_agent.py", "test_approval.py", "test_chat.py", "test_faults_size.py",
    "test_gateway_recall.py", "test_memory.py", "test_monitoring.py", "test_schedule.py",
}  # fmt: skip


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import what the markers leave out."""
    marks = str(config.getoption("markexpr"))
    for mark, names in APART.items():
        paths = [Path(__file__).parent / name for name in names]
        if f"not {mark}" in marks and collection_path in paths:
            return True
    return None


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, Any, Any]:
    """Do not look for garbage among what is collected: all of it stays until the end."""
    gc.disable()
    try:
        if session.config.args_source is pytest.Config.ArgsSource.TESTPATHS:
            _import_own_share_first(session.config)
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def _import_own_share_first(config: pytest.Config) -> None:
    """Let each worker begin with other files, so that in a new clone none is compiled by all."""
    given = getattr(config, "workerinput", None)
    if given is None:
        return
    folder = Path(__file__).parent
    left_out = [*map(folder.joinpath, chain(*APART.values())), folder / "frameworks"]
    files = [
        file
        for file in sorted(folder.rglob("test_*.py"))
        if not any(file.is_relative_to(path) for path in left_out)
    ]
    start = len(files) * int(given["workerid"].removeprefix("gw")) // given["workercount"]
    for file in (*files[start:], *files[:start]):
        name = ".".join(file.relative_to(folder.parent).with_suffix("").parts)
        with suppress(Exception, pytest.skip.Exception):  # comes again when it is collected
            importlib.import_module(name)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs a container, another host or a large library: it runs in a step of its own."""
    for item in items:
        given = getattr(item, "callspec", None)
        values = [] if given is None else [str(value) for value in given.params.values()]
        named = {word for value in values for word in value.split(", ")}
        if item.path.parent.name == "contract" and named & PLACES:
            item.add_marker("places")
        is_above_store = item.path.parent.name == "acceptance" and item.path.name in ABOVE_STORE
        if is_above_store and "postgresql" in named:
            item.add_marker("engines")
        ids = [] if given is None else given.id.split("-")  # a parameter may be a function
        if item.path.name in NETWORK_FILES and "telegram" in ids:
            item.add_marker("networks")


def is_looking() -> bool:
    """Whether this run looks for what nobody has thought of: only then many examples pay."""
    return not settings.default.derandomize  # pyright: ignore[reportOptionalMemberAccess]


def pytest_runtest_setup() -> None:
    """Ignore SIGPIPE again: a test that ran the command in this process left its default action."""
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)


# The folder of the servers that all workers of a run share.
SERVERS = pytest.StashKey[Path]()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Repeat the same examples, unless REKINDLE_FUZZ=1 or --hypothesis-seed asks for fresh ones."""
    given = getattr(config, "workerinput", {}).get("servers")
    config.stash[SERVERS] = Path(given or tempfile.mkdtemp(prefix="rekindle-servers-"))
    if config.getoption("--hypothesis-profile"):
        return
    if os.environ.get("REKINDLE_FUZZ") and config.getoption("--hypothesis-seed") is None:
        config.option.hypothesis_seed = str(random.SystemRandom().randrange(2**32))
    is_fresh = config.getoption("--hypothesis-seed") is not None
    settings.load_profile("fresh" if is_fresh else "fixed")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of xdist where the servers are."""
    node.workerinput["servers"] = str(node.config.stash[SERVERS])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: list[Any]) -> None:
    """Fork the workers of a whole run off one process that has loaded what all of them need."""
    if config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        for spec in specs:
            spec.python = command.get_worker_program()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the servers when the last worker has ended."""
    if not hasattr(config, "workerinput") and SERVERS in config.stash:
        servers.remove_shared(config.stash[SERVERS])


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say how to repeat a run with fresh examples."""
    if (seed := config.getoption("--hypothesis-seed")) is not None:
        terminalreporter.write_line(f"fresh examples; repeat with --hypothesis-seed={seed}")


T = TypeVar("T", servers.Postgres, remote_hosts.Podman, remote_hosts.Sshd)


def _or_skipped_loudly(make: Callable[[], T], what: str) -> T:
    try:
        return make()
    except servers.Missing as reason:
        warnings.warn(f"{what} NOT TESTED: {reason}", stacklevel=1)
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def postgres(pytestconfig: pytest.Config) -> servers.Postgres:
    folder = pytestconfig.stash[SERVERS]
    return _or_skipped_loudly(lambda: servers.share_postgres(folder), "POSTGRESQL IS")


@pytest.fixture(scope="session")
def bubblewrap() -> None:
    """Skip tests that need the sandbox as it is where bubblewrap is installed."""
    if shutil.which("bwrap") is None:
        warnings.warn("BUBBLEWRAP IS NOT TESTED: bwrap is not installed", stacklevel=1)
        pytest.skip("bwrap is not installed")


# A test may cut all connections to these two, so that each worker has its own.


@pytest.fixture(scope="session")
def podman_service() -> Iterator[remote_hosts.Podman]:
    server = _or_skipped_loudly(remote_hosts.Podman, "CONTAINERS ARE")
    yield server
    server.remove()


@pytest.fixture
def podman(podman_service: remote_hosts.Podman) -> Iterator[remote_hosts.Podman]:
    yield podman_service
    podman_service.sweep()


@pytest.fixture(scope="session")
def sshd() -> Iterator[remote_hosts.Sshd]:
    server = _or_skipped_loudly(remote_hosts.Sshd, "SSH IS")
    yield server
    server.remove()


@pytest.fixture(scope="session")
def pooled(postgres: servers.Postgres) -> Iterator[Callable[[str], str]]:
    """Call it for the way to a database: through pgbouncer with REKINDLE_TEST_POOLER=1."""
    if not os.environ.get("REKINDLE_TEST_POOLER"):
        yield str
        return
    pooler = servers.Pgbouncer(postgres)
    yield pooler.route
    pooler.remove()


@pytest.fixture
def store_database(
    postgres: servers.Postgres, pooled: Callable[[str], str]
) -> Iterator[Callable[[], str]]:
    """Call it for the URL of a database with an empty store in it, gone after the test."""
    made: list[str] = []

    def make() -> str:
        made.append(pooled(postgres.store_database()))
        return made[-1]

    yield make
    for url in made:
        postgres.drop(url)


@pytest.fixture(params=ENGINES)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a store can be opened: the path of none yet, then the URL of an empty one."""
    if request.param == "sqlite":
        return str(tmp_path / "sessions.db")
    return request.getfixturevalue("store_database")()


@pytest.fixture(scope="session")
def empty_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with an empty store in it, to be copied: to make one takes ten times as long."""
    file = tmp_path_factory.mktemp("empty") / "sessions.db"
    open_store(file).close()
    return file


class Clock:
    """A clock that stands still until told."""

    def __init__(self, now: float = 1_790_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def forward(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(target: str, clock: Clock, empty_file: Path) -> Iterator[Store]:
    if "://" not in target and not Path(target).exists():
        shutil.copy(empty_file, target)
    with open_store(target, clock=clock) as opened:
        yield opened


@pytest.fixture
def reopened(target: str, clock: Clock) -> Iterator[Callable[[], Store]]:
    """Further stores on the same data, as another process would open them."""
    opened: list[Store] = []

    def again() -> Store:
        opened.append(open_store(target, clock=clock))
        return opened[-1]

    yield again
    for other in opened:
        other.close()
