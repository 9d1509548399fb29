"""Without processes; the scenarios run the whole of it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from support.processes import running
from tallystick.admin import dev, dev_lookup
from tallystick.admin.dev import DevCluster
from tallystick.admin.dev_nodes import DevNode, DevState, NodeKind
from tallystick.admin.process import ProcessId
from tallystick.cli import NOT_WELL, main
from tallystick.errors import NotFound, StorageError, Unavailable, UsageError


@pytest.fixture
def cluster(tmp_path: Path) -> DevCluster:
    return DevCluster(str(tmp_path / "dev"))


@pytest.fixture
def ended() -> ProcessId:
    """A process id that names a dead process."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    process = running(child.pid)
    child.wait()
    return process


def save(cluster: DevCluster, state: object) -> None:
    os.makedirs(cluster.directory, exist_ok=True)
    with open(os.path.join(cluster.directory, "dev.json"), "wb") as file:
        file.write(msgspec.json.encode(state))


def test_the_folder_is_the_users_state_folder_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    assert dev_lookup.default_directory({"TALLY_DEV_DIR": "/a/b", "XDG_STATE_HOME": "/s"}) == "/a/b"
    assert dev_lookup.default_directory({"XDG_STATE_HOME": "/s"}) == "/s/tallystick/dev"
    assert dev_lookup.default_directory({}) == "/home/somebody/.local/state/tallystick/dev"


def test_a_damaged_state_says_what_to_do_about_what_runs(cluster: DevCluster) -> None:
    save(cluster, {"uri": 7})
    for order in (cluster.status, cluster.down, cluster.up):
        with pytest.raises(StorageError, match="not a development cluster's state") as raised:
            order()
        assert f"`pgrep -f {cluster.directory}`), then delete the folder" in str(raised.value)


def test_no_cluster_is_said_to_be_none(cluster: DevCluster) -> None:
    assert cluster.load() is None
    assert dev_lookup.running_uri(cluster.directory) is None
    with pytest.raises(UsageError, match="tally dev up"):
        cluster.status()


def test_a_cluster_whose_processes_are_dead_does_not_run(cluster: DevCluster, ended: ProcessId) -> None:
    save(cluster, DevState("memory://x", (DevNode("bookie-1", ended),)))
    assert dev_lookup.running_uri(cluster.directory) is None
    save(cluster, DevState("memory://x", (DevNode("bookie-1", ended), DevNode("bookie-2", running(os.getpid())))))
    assert dev_lookup.running_uri(cluster.directory) == "memory://x"
    save(cluster, DevState("memory://x", (DevNode("bookie-1", ended), DevNode("nameserver", running(os.getpid()), 7))))
    assert dev_lookup.running_uri(cluster.directory) == "memory://x", (
        "its metadata is a file: what is known of ledgers is there"
    )


def test_the_variable_wins_over_the_running_cluster(cluster: DevCluster) -> None:
    save(cluster, DevState("memory://x", (DevNode("bookie-1", running(os.getpid())),)))
    assert dev_lookup.find_uri({"TALLY_DEV_DIR": cluster.directory}) == "memory://x"
    assert dev_lookup.find_uri({"TALLY_DEV_DIR": cluster.directory, "TALLY_URI": "memory://y"}) == "memory://y"
    with pytest.raises(UsageError, match="which cluster"):
        dev_lookup.find_uri({"TALLY_DEV_DIR": cluster.directory + "-other"})


def test_a_name_server_is_that_of_the_variable_or_of_the_running_cluster(cluster: DevCluster, ended: ProcessId) -> None:
    def served_by(process: ProcessId) -> dict[str, str]:
        bookie = DevNode("bookie-1", running(os.getpid()))
        save(cluster, DevState("memory://x", (bookie, DevNode("nameserver", process, 7))))
        return {"TALLY_DEV_DIR": cluster.directory}

    environment = served_by(running(os.getpid()))
    assert dev_lookup.find_name_server(environment) == "127.0.0.1:7"
    assert dev_lookup.find_name_server({**environment, "TALLY_NAMESRV": "h:9876"}) == "h:9876"
    with pytest.raises(Unavailable, match="or is not ready: start it with `tally dev restart nameserver`"):
        dev_lookup.find_name_server(served_by(ended))
    save(cluster, DevState("memory://x", (DevNode("nameserver", ended, 7),)))
    with pytest.raises(UsageError, match="which name server"):
        dev_lookup.find_name_server({"TALLY_DEV_DIR": cluster.directory})


def test_addresses_are_looked_up_when_they_are_read(cluster: DevCluster, ended: ProcessId) -> None:
    addresses = dev_lookup.find_cluster({"TALLY_DEV_DIR": cluster.directory})
    with pytest.raises(UsageError, match="tally dev up --bookies"):
        addresses.uri  # noqa: B018
    save(cluster, DevState("memory://x", (DevNode("bookie-1", running(os.getpid())),)))
    assert addresses.uri == "memory://x"
    assert repr(addresses) == "<ClusterAddresses uri=memory://x name_servers=None>"
    with pytest.raises(UsageError, match="which name server"):
        addresses.name_servers  # noqa: B018
    assert dev_lookup.find_cluster({"TALLY_NAMESRV": "h:9876"}).name_servers == "h:9876"
    save(
        cluster,
        DevState("memory://x", (DevNode("bookie-1", running(os.getpid())), DevNode("nameserver", ended, 7))),
    )
    with pytest.raises(Unavailable, match="restart nameserver"):
        addresses.name_servers  # noqa: B018
    assert repr(addresses) == "<ClusterAddresses uri=memory://x name_servers=None>"
    save(cluster, {"uri": 7})
    assert repr(addresses) == "<ClusterAddresses uri=None name_servers=None>"


def test_a_cluster_of_brokers_has_no_ledgers(cluster: DevCluster) -> None:
    save(cluster, DevState("memory://x", (DevNode("nameserver", running(os.getpid()), 7),)))
    assert dev_lookup.running_uri(cluster.directory) is None


def test_a_damaged_state_file_is_named(cluster: DevCluster) -> None:
    save(cluster, {"uri": 3})
    with pytest.raises(StorageError, match=r"dev\.json"):
        cluster.load()


def test_a_bookie_by_its_number_or_id(cluster: DevCluster, ended: ProcessId) -> None:
    save(cluster, DevState("memory://x", (DevNode("bookie-1", ended),)))
    for name in ("1", "bookie-1"):
        with pytest.raises(UsageError, match="bookie-1 is dead, not alive"):
            cluster.pause([name])
    with pytest.raises(NotFound, match="no 'bookie-2' in this cluster; it has bookie-1"):
        cluster.kill(["bookie-2"])


def test_a_stranger_that_inherited_the_id_is_never_signalled(cluster: DevCluster) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        stranger = ProcessId(child.pid, running(child.pid).start_time - 1)
        save(cluster, DevState("memory://x", (DevNode("bookie-1", stranger),)))
        with pytest.raises(UsageError, match="is dead"):
            cluster.kill(["1"])
        assert cluster.down() == 0
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()


def test_deleting_leaves_what_is_not_ours(cluster: DevCluster, ended: ProcessId) -> None:
    save(cluster, DevState("memory://x", (DevNode("bookie-1", ended),)))
    for name in ("bookie-1", "bookie-of-mine"):
        os.makedirs(os.path.join(cluster.directory, name, "data"))
    assert cluster.down(delete=True) == 0
    assert os.listdir(cluster.directory) == ["bookie-of-mine"]


def test_a_bookie_that_does_not_start_shows_its_log_and_leaves_no_process(
    cluster: DevCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def spawn(arguments: list[str], *, log: str) -> ProcessId:
        with open(log, "ab") as file:
            child = subprocess.Popen([sys.executable, "-c", "print('no room left'); exit(3)"], stdout=file)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        started.append(child)
        return running(child.pid)

    monkeypatch.setattr(dev, "spawn", spawn)
    with pytest.raises(Unavailable, match="bookie-1 ended; the end of its log:\nno room left"):
        cluster.up(2)
    assert len(started) == 2
    assert [child.wait() for child in started]


def test_one_command_at_a_time(cluster: DevCluster) -> None:
    os.makedirs(cluster.directory)
    with cluster._locked(), pytest.raises(UsageError, match="another process uses this folder"):
        cluster.up(1)


@pytest.mark.parametrize("bookies", [-1, 0, 33, 100_000])
def test_a_number_of_bookies_that_a_machine_can_run(cluster: DevCluster, bookies: int) -> None:
    with pytest.raises(UsageError, match="has 1 to 32 bookies"):
        cluster.up(bookies)
    assert not os.path.exists(cluster.directory)


def test_more_that_runs_than_is_asked_for_is_named_and_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    cluster = DevCluster(str(tmp_path / "dev"), told.append)
    alive = running(os.getpid())
    nodes = tuple(DevNode(f"bookie-{number}", alive) for number in (1, 2, 3))
    save(cluster, DevState("sqlite:///x", (*nodes, DevNode("broker-a", alive))))
    assert cluster.up(2).of(NodeKind.BOOKIE) == list(nodes)
    assert told == ["bookie-3 running already, and left so: stop with `tally dev kill bookie-3`"]
    told.clear()
    cluster.up(1)
    assert told == ["bookie-2, bookie-3 running already, and left so: stop with `tally dev kill bookie-2 bookie-3`"]
    told.clear()
    cluster.up(3, sync_flush=True)
    assert told == [
        "--flush changes nothing now, as no broker is started: those that run go on as they were started; "
        "`tally dev down` and `tally dev up --flush sync` change it"
    ]


def test_dead_ones_beyond_those_that_are_asked_for_are_named_and_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: ProcessId
) -> None:
    told: list[str] = []
    cluster = DevCluster(str(tmp_path / "dev"), told.append)
    alive = running(os.getpid())
    names = (("bookie-1", alive), ("bookie-2", ended), ("nameserver", alive), ("broker-a", alive), ("broker-b", ended))
    nodes = tuple(DevNode(name, process) for name, process in names)
    save(cluster, DevState("sqlite:///x", nodes))
    monkeypatch.setattr(dev, "spawn", lambda arguments, *, log: pytest.fail(f"started {arguments}"))
    assert cluster.up(1, "1").nodes == nodes
    assert told == [
        "bookie-2 dead, and left so: start with `tally dev restart bookie-2`",
        "broker-b dead, and left so: start with `tally dev restart broker-b`",
    ]


@pytest.mark.parametrize(("earlier", "asked", "then"), [(False, True, True), (True, None, True), (True, False, False)])
def test_how_a_broker_syncs_is_kept_from_start_to_start(
    cluster: DevCluster,
    ended: ProcessId,
    monkeypatch: pytest.MonkeyPatch,
    earlier: bool,
    asked: bool | None,
    then: bool,
) -> None:
    name_server = DevNode("nameserver", running(os.getpid()), 9876)
    save(cluster, DevState("sqlite:///x", (name_server, DevNode("broker-a", ended, sync_flush=earlier))))

    def spawn(arguments: list[str], *, log: str) -> ProcessId:
        open(log, "w").close()
        return ended

    monkeypatch.setattr(dev, "spawn", spawn)
    with pytest.raises(Unavailable, match="broker-a ended"):
        cluster.up(sync_flush=asked)
    with open(os.path.join(cluster.directory, "broker-a", "broker.toml")) as file:
        assert f'flushDiskType = "{"SYNC" if then else "ASYNC"}_FLUSH"' in file.read()


def begun_name_server(cluster: DevCluster) -> Path:
    """A cluster whose start ended, without a word, before its name server listened; the server's log."""
    log = Path(cluster.directory, "nameserver", "nameserver.log")
    log.parent.mkdir(parents=True)
    log.write_text("ready nameserver address=127.0.0.1:7001\nstopped\n")
    node = DevNode("nameserver", running(os.getpid()), port=7001, log_start=log.stat().st_size)
    save(cluster, DevState("sqlite:///x", (node,)))
    return log


def test_where_a_node_listens_is_heard_though_who_started_it_is_gone(cluster: DevCluster) -> None:
    log = begun_name_server(cluster)
    assert [node.port for node in cluster.status()] == [None], "the port of the process before is not this one's"
    with pytest.raises(Unavailable, match="is not ready"):
        dev_lookup.find_name_server({"TALLY_DEV_DIR": cluster.directory})
    assert main(["dev", "status", "--dir", cluster.directory]) == NOT_WELL
    with log.open("a") as file:
        file.write("ready nameserver address=127.0.0.1:7002\n")
    assert [node.port for node in cluster.status()] == [7002]
    assert dev_lookup.find_name_server({"TALLY_DEV_DIR": cluster.directory}) == "127.0.0.1:7002"
    assert main(["dev", "status", "--dir", cluster.directory]) == 0


def test_a_node_that_runs_and_was_never_seen_ready_is_waited_for(
    cluster: DevCluster, ended: ProcessId, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = begun_name_server(cluster)

    def said(seconds: float) -> None:
        log.write_text(log.read_text() + "ready nameserver address=127.0.0.1:7002\n")

    def spawn(arguments: list[str], *, log: str) -> ProcessId:
        assert arguments[0] == "broker", "the name server runs already"
        open(log, "w").close()
        return ended

    monkeypatch.setattr(time, "sleep", said)
    monkeypatch.setattr(dev, "spawn", spawn)
    with pytest.raises(Unavailable, match="broker-a ended"):
        cluster.up(brokers="1")
    with open(os.path.join(cluster.directory, "broker-a", "broker.toml")) as file:
        assert 'namesrvAddr = "127.0.0.1:7002"' in file.read()


def test_an_interrupted_start_ends_what_it_started(cluster: DevCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    children: list[subprocess.Popen[bytes]] = []

    def spawn(arguments: list[str], *, log: str) -> ProcessId:
        open(log, "ab").close()
        children.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]))
        return running(children[-1].pid)

    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(dev, "spawn", spawn)
    monkeypatch.setattr(time, "sleep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cluster.up(2)
    assert len(children) == 2
    for child in children:
        child.wait()  # reaped already: the code is not known
        with pytest.raises(ProcessLookupError):
            os.kill(child.pid, signal.SIG_DFL)


@pytest.mark.parametrize(
    ("bookies", "brokers", "names"),
    [
        (None, None, ["bookie-1", "bookie-2", "bookie-3", "bookie-4"]),
        (3, "1+1", ["bookie-1", "bookie-2", "bookie-3", "nameserver", "broker-a", "broker-a-s1"]),
    ],
)
def test_what_an_interrupted_start_was_asked_for_is_what_the_next_one_starts(
    cluster: DevCluster,
    ended: ProcessId,
    monkeypatch: pytest.MonkeyPatch,
    bookies: int | None,
    brokers: str | None,
    names: list[str],
) -> None:
    begun: list[str] = []
    interrupts = [False, True]

    def spawn(arguments: list[str], *, log: str) -> ProcessId:
        if interrupts and interrupts.pop(0):
            raise KeyboardInterrupt
        begun.append(os.path.basename(os.path.dirname(log)))
        return ended

    monkeypatch.setattr(dev, "spawn", spawn)
    with pytest.raises(KeyboardInterrupt):
        cluster.up(bookies, brokers, sync_flush=True if brokers else None)
    assert begun == ["bookie-1"]
    assert [(one.id, one.pid) for one in cluster.status()] == [
        ("bookie-1", ended.pid),
        *((id, None) for id in names[1:]),
    ]
    with pytest.raises(Unavailable, match="bookie-1 ended"):
        cluster.up()
    assert begun[1:] == [name for name in names if "broker" not in name], "who is started first"
    assert all(node.sync_flush for node in cluster._require().of(NodeKind.BROKER))


def test_a_broker_is_started_behind_a_name_server_that_never_listened(
    cluster: DevCluster, ended: ProcessId, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(cluster, DevState("sqlite:///x", (DevNode("nameserver"), DevNode("broker-a"))))
    begun: list[str] = []
    name_server = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])

    def spawn(arguments: list[str], *, log: str) -> ProcessId:
        begun.append(arguments[0])
        if arguments[0] == "broker":
            return ended
        Path(log).write_text("ready nameserver address=127.0.0.1:7003\n")
        return running(name_server.pid)

    monkeypatch.setattr(dev, "spawn", spawn)
    with pytest.raises(Unavailable, match="broker-a ended"):
        cluster.restart(["broker-a"])
    assert begun == ["nameserver", "broker"]
    name_server.wait()  # what a failed start has begun is ended
