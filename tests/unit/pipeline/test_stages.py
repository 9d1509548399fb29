"""Tasks ask the driver how many they are."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tallystick.errors import UsageError
from tallystick.pipeline import stages
from tallystick.pipeline.driver_port import listen
from tallystick.pipeline.stages import SETTING, StageService, serve_stages, tasks_of_stage
from tallystick.runtime.network import KEEP_ALIVE_IDLE_S


class Tracker:
    def __init__(self) -> None:
        self.counts = {3: 7}

    def getStageInfo(self, stage: int) -> Any:
        return SimpleNamespace(numTasks=self.counts[stage]) if stage in self.counts else None


class Task:
    def __init__(self, stage: int, place: str) -> None:
        self._stage, self._place = stage, place

    def stageId(self) -> int:
        return self._stage

    def getLocalProperty(self, name: str) -> str | None:
        return self._place if name == SETTING else None


class Session:
    def __init__(self) -> None:
        self.tracker, self.settings = Tracker(), dict[str, str]()
        self.conf = SimpleNamespace(set=self.settings.__setitem__)
        self.sparkContext = SimpleNamespace(
            applicationId=f"app-{id(self)}",
            getConf=lambda: {"spark.driver.host": "127.0.0.1"},
            statusTracker=lambda: self.tracker,
        )


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setattr(stages, "_PATIENCE_S", 0.1)
    session = Session()
    serve_stages(cast("Any", session))
    return session


def ask(monkeypatch: pytest.MonkeyPatch, stage: int, place: str) -> int:
    monkeypatch.setattr(stages, "this_task", lambda: Task(stage, place))
    return tasks_of_stage()


def test_the_first_answer_stands(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage that is run again in part has fewer tasks, and the same partitions."""
    place = session.settings[SETTING]
    assert ask(monkeypatch, 3, place) == 7
    session.tracker.counts[3] = 2
    assert ask(monkeypatch, 3, place) == 7
    serve_stages(cast("Any", session))
    assert session.settings[SETTING] == place


def test_of_two_questions_at_once_the_first_answer_stands(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each asked Spark before the other one was answered, and the stage was run again in part between."""
    place = session.settings[SETTING]
    counts = [2]

    def info(tracker: Tracker, stage: int) -> Any:
        count = counts.pop() if counts else 7
        if count == 2:
            assert ask(monkeypatch, stage, place) == 7
        return SimpleNamespace(numTasks=count)

    monkeypatch.setattr(Tracker, "getStageInfo", info)
    assert ask(monkeypatch, 3, place) == 7


def test_who_is_not_told_says_what_to_do(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    place = session.settings[SETTING]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        silent = f"127.0.0.1|{listener.getsockname()[1]}|x"
    for stage, other in ((4, place), (3, place[:-1]), (3, silent), (3, "")):
        with pytest.raises(UsageError, match="give the option partitions"):
            ask(monkeypatch, stage, other)


def test_the_service_of_a_context_that_is_no_more_ends_with_the_next_one() -> None:
    """One process has one context at a time: a notebook that makes its session anew and anew kept a port of each."""
    first, second = Session(), Session()
    serve_stages(cast("Any", first))
    before = stages_threads()
    for session in (second, first, second):
        serve_stages(cast("Any", session))
        assert stages_threads() == before
    for session, is_served in ((first, False), (second, True)):
        host, port, _ = session.settings[SETTING].split("|")
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection((host, int(port))):
            assert is_served
            continue
        assert not is_served


def stages_threads() -> int:
    return sum(thread.name == "tally-stages" for thread in threading.enumerate())


def test_a_service_says_where_it_is() -> None:
    host, port, token = StageService(cast("Any", Session())).port.setting().split("|")
    assert host == "127.0.0.1" and int(port) and len(token) == 32


def test_a_task_whose_host_is_gone_is_noticed() -> None:
    listener, port = listen(cast("Any", Session()))
    with listener, socket.create_connection((port.host, port.port)), listener.accept()[0] as accepted:
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == KEEP_ALIVE_IDLE_S


def test_strangers_who_say_nothing_cost_few_threads_and_keep_no_task_waiting(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = session.settings[SETTING]
    host, port, _ = place.split("|")
    before = threading.active_count()
    with contextlib.ExitStack() as stack:
        for _ in range(2 * stages.AT_ONCE):  # no more than wait in the kernel's queue
            stack.enter_context(socket.create_connection((host, int(port))))
        assert ask(monkeypatch, 3, place) == 7
        assert threading.active_count() - before <= stages.AT_ONCE


def test_strangers_whose_question_trickles_keep_no_task_waiting(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stages, "_QUESTION_S", 0.3)
    monkeypatch.setattr(stages, "_TIMEOUT_S", 2.0)
    place = session.settings[SETTING]
    host, port, _ = place.split("|")
    ended = threading.Event()
    with contextlib.ExitStack() as stack:
        strangers = [stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(stages.AT_ONCE)]

        def trickle() -> None:
            while not ended.wait(0.1):
                for stranger in strangers:
                    with contextlib.suppress(OSError):
                        stranger.send(b"x")

        thread = threading.Thread(target=trickle)
        thread.start()
        try:
            assert ask(monkeypatch, 3, place) == 7
        finally:
            ended.set()
            thread.join()


def test_only_the_newest_stages_are_remembered(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query that follows a stream has a stage each batch, for years."""
    monkeypatch.setattr(stages, "_MOST_STAGES", 3)
    place = session.settings[SETTING]
    session.tracker.counts.update({stage: stage for stage in range(10, 20)})
    assert [ask(monkeypatch, stage, place) for stage in range(10, 20)] == [*range(10, 20)]
    session.tracker.counts.clear()
    assert [ask(monkeypatch, stage, place) for stage in (17, 18, 19)] == [17, 18, 19]
    with pytest.raises(UsageError):
        ask(monkeypatch, 16, place)


def test_questions_that_fail_give_their_places_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """As while Spark ends a stage: whoever asks afterwards is answered."""
    monkeypatch.setattr(stages, "AT_ONCE", 2)
    monkeypatch.setattr(stages, "_TIMEOUT_S", 2.0)
    monkeypatch.setattr(threading, "excepthook", lambda failed: None)
    session = Session()
    place = StageService(cast("Any", session)).port.setting()
    with monkeypatch.context() as patched:
        patched.setattr(Tracker, "getStageInfo", lambda *_: 1 // 0)
        for _ in range(stages.AT_ONCE):
            with pytest.raises(UsageError):
                ask(monkeypatch, 3, place)
        for thread in threading.enumerate():
            if thread.name == "tally-stage":  # what it fails by is this test's, also where it comes late
                thread.join()
    assert ask(monkeypatch, 3, place) == 7


def test_connections_that_cannot_be_taken_give_their_places_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """As while the process has no handle left."""
    failures = [OSError("too many open files")] * 3

    class Listener:
        def __init__(self, listener: socket.socket) -> None:
            self._listener = listener

        def accept(self) -> Any:
            if failures:
                raise failures.pop()
            return self._listener.accept()

    def fail_first(spark: Any) -> Any:
        listener, port = listen(spark)
        return Listener(listener), port

    monkeypatch.setattr(stages, "AT_ONCE", 2)
    monkeypatch.setattr(stages, "_TIMEOUT_S", 2.0)
    monkeypatch.setattr(stages, "listen", fail_first)
    assert ask(monkeypatch, 3, StageService(cast("Any", Session())).port.setting()) == 7
