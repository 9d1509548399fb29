import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tallystick import cli
from tallystick.admin import repair
from tallystick.cli.app import app
from tallystick.errors import RecoveryIncomplete, UsageError


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TALLY_URI", raising=False)
    monkeypatch.delenv("TALLY_NAMESRV", raising=False)
    monkeypatch.setenv("TALLY_DEV_DIR", str(tmp_path / "dev"))


def raising(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def show(service: object) -> None:
        raise error

    monkeypatch.setattr("tallystick.cli.options.MetadataOption.resolve", show)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["foo"], 'Unknown command "foo"'),
        (["ledger", "read"], "Try: tally ledger read --help"),
        (["ledger", "delete", "7.6"], '"7.6" is no whole number.'),
        (["ledger", "delete", "1_0", "--yes"], '"1_0" is no whole number.'),
        (["ledger", "delete", "\u0661", "--yes"], '"\u0661" is no whole number.'),  # Python reads the Arabic digit as 1
        (["stream", "trim", "t/n/persistent/s", "--keep-s", "\u0663"], '"\u0663" is no number.'),
        (["stream", "roll", "t/n/persistent/s", "--wait-s", "1_0"], 'Invalid value for --wait-s: "1_0" is no number.'),
        (["stream", "roll", "t/n/persistent/s", "--wait-s", "nan"], '"nan" is no number.'),
        (["stream", "read", "t/n/persistent/s", "-o", "", "--uri", "sqlite:///x"], "-o is beginning, end, -N"),
        (["stream", "tail", "t/n/persistent/s", "-o", "", "--uri", "sqlite:///x"], "-o is beginning, end, -N"),
        (["stream", "read", "t/n/persistent/s", "-f", "", "--uri", "sqlite:///x"], "-f is empty"),
        (["dev", "up", "--bookies", "2.5"], 'Invalid value for --bookies: "2.5" is no whole number.'),
        (["dev", "up", "--bookies", "two"], 'Invalid value for --bookies: "two" is no whole number.'),
        (["ledger", "read", "x"], "Try: tally ledger read --help"),
        (["ledger", "create", "x"], "unexpected on the command line: x"),
        (["ledger", "read", "1", "--nope"], "--nope"),
        (["ledger", "list"], "which cluster?"),
        (["ledger", "list", "--uri", ""], "--uri is empty: give it a value, or leave it out"),
        (["topic", "delete", "T", "--yes", "--name-server", ""], "--name-server is empty"),
        (["dev", "down", "--delete", "--dir", ""], "--dir is empty"),
        (["dev", "up", "--brokers", ""], "--brokers is empty"),
        (["cluster", "backup", ""], "an empty text names no file or folder. Try: tally cluster backup --help"),
        (["cluster", "restore", ""], "an empty text names no file"),
        (["store", "check", ""], "an empty text names no file"),
        (["bookie", "check", ""], "an empty text names no file"),
        (["bookie", "check", "/nowhere", "--journal", ""], "Invalid value for --journal: an empty text names no file"),
        (
            ["bookie", "decommission", "b0", "--open-grace", "-1", "--uri", "sqlite:///x"],
            "--open-grace is a number from 0 (given=-1.0)",
        ),
        (["broker", "acl", "import", "", "--broker", "127.0.0.1:1"], "an empty text names no file"),
        (
            ["broker", "acl", "import", "/nowhere", "--broker", "127.0.0.1:1"],
            "the file: No such file or directory (path",
        ),
        (["stream", "read", "t/n/persistent/s", "--to", ""], "--to is s@TIME, or LEDGER:ENTRY"),
        (["dev", "kill"], "NODE requires an argument. Try: tally dev kill --help"),
        (["topic", "list"], "which name server?"),
        (["topic", "list", "--name-server", "nowhere"], "nowhere"),
        (["message", "send", "T", "x", "--property", "p"], "--property needs name=value (given=p)"),
        (["ha", "status", "--every", "0"], "--every is above 0 seconds"),
        (["ha", "status", "--every", "nan"], '"nan" is no number.'),
        (["ha", "status", "--every", "100000"], "at most 86400"),
        (["sim", "run", "--seconds", "-1"], "--seconds must be above 0"),
        (["dev", "up", "--bookies", "33"], "1 to 32 bookies"),
        (["topic", "list", "--name-server", "foo"], "several are separated by ; or ,"),
        (["dev", "up", "--brokers", "0"], "as in 1+1"),
        (["stream", "read", "t/n/persistent/s"], "which cluster?"),
        (["stream", "read", "t/n/persistent/.."], "the name of a stream is tenant/namespace/persistent/topic"),
        (
            ["stream", "delete", "persistent://t/n/s 1", "--uri", "sqlite:///x"],
            "give --yes (stream=t/n/persistent/s+1)",
        ),
        (["stream", "read", "t/n/persistent/s", "-c", "-1"], "-c is a number from 0 (given=-1)"),
        (["stream", "tail", "t/n/persistent/s", "-c-5"], "-c is a number from 0 (given=-5)"),
        (["stream", "read", "t/n/persistent/s", "-f", "%s %"], "-f ends with a single %: write %%"),
        (["stream", "read", "t/n/persistent/s", "-f", "%z"], "-f does not know %z"),
        (["stream", "read", "t/n/persistent/s", "-f", "%s", "-J"], "-f says all that is printed"),
        (["stream", "read", "t/n/persistent/s", "-J", "--ids"], "leave out --ids and -K"),
        (["stream", "read", "t/n/persistent/s", "-K", ""], "-K needs a text"),
        (["stream", "read", "t/n/persistent/s", "-o", "start"], "-o is beginning, end, -N"),
        (["stream", "read", "t/n/persistent/s", "-o", "-3", "--to", "1:0"], "--to goes with -o"),
        (["stream", "read", "t/n/persistent/s", "--to", "end"], "--to is s@TIME, or LEDGER:ENTRY"),
        (["stream", "read", "t/n/persistent/s", "--cursor", "c", "-o", "end"], "a cursor has a place"),
        (["stream", "tail", "t/n/persistent/s", "--takeover", "--uri", "sqlite:///x"], "--takeover goes with --cursor"),
        (["stream", "seek", "t/n/persistent/s", "c"], "--from requires an argument"),
        (["stream", "cursors", "t/n/persistent/s", "-o", "end"], "it goes with --create"),
        (["stream", "cursors", "t/n/persistent/s", "--takeover"], "--takeover goes with --delete"),
        (
            ["stream", "cursors", "t/n/persistent/s", "--delete", "c", "--uri", "sqlite:///x"],
            "(stream=t/n/persistent/s cursor=c)",
        ),
        (["stream", "cursors", "t/n/persistent/s", "--create", "a", "--delete", "b"], "give one of them"),
        (["stream", "create", "t/n/persistent/s", "--cluster", "c"], "--cluster goes with --pulsar"),
        (["stream", "trim", "t/n/persistent/s", "--uri", "sqlite:///x"], "say what to keep: --keep-s"),
        (["stream", "delete", "t/n/persistent/s", "--uri", "sqlite:///x"], "cannot be undone: give --yes"),
        (["stream", "terminate", "t/n/persistent/s", "--uri", "sqlite:///x"], "cannot be undone: give --yes"),
        (["bookie", "run", "--set", "novalue"], "--set needs key=value (given=novalue)"),
    ],
)
def test_wrong_usage_is_2_and_one_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err
    assert printed.err.startswith("tally: ") and printed.err.count("\n") == 1


def test_a_sign_that_the_locale_lacks_is_shown_by_its_number() -> None:
    """It was taken for a bug of ours."""
    settings = {**os.environ, "PYTHONIOENCODING": "ascii"}
    print_it = "from tallystick import cli; cli._open_streams(); print('Z\\xfcrich')"
    shown = subprocess.run([sys.executable, "-c", print_it], env=settings, capture_output=True, check=True)
    assert shown.stdout == b"Z\\xfcrich\n"


def test_a_complaint_is_one_line_that_a_terminal_does_not_obey(capsys: pytest.CaptureFixture[str]) -> None:
    """What was typed, or stands in the metadata, was printed as it is."""
    assert cli.main(["stream", "\x1b[31mx\ny"]) == 2
    complaint = capsys.readouterr().err
    assert r"\x1b[31mx\x0ay" in complaint
    assert complaint.count("\n") == 1 and "\x1b" not in complaint


def test_a_complaint_about_a_very_long_name_shows_its_two_ends(capsys: pytest.CaptureFixture[str]) -> None:
    """10,000 characters hid the reason and the advice."""
    assert cli.main(["ledger", "read", "n" * 9_999 + "z"]) == 2
    complaint = capsys.readouterr().err
    assert len(complaint) < 500
    assert "(10,002 signs)" in complaint and 'nz" is no whole number. Try: tally ledger read --help' in complaint


def test_a_failure_is_1_with_its_fields_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raising(monkeypatch, RecoveryIncomplete(ledger=7, entry=3))
    assert cli.main(["ledger", "recover", "7"]) == 1
    said = capsys.readouterr().err
    assert "(ledger=7 entry=3). See which bookies are down" in said


def test_what_does_not_exist_is_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["store", "check", "/nowhere"]) == 1
    assert capsys.readouterr().err == "tally: there is no such folder (directory=/nowhere)\n"


def test_a_usage_error_is_2(monkeypatch: pytest.MonkeyPatch) -> None:
    raising(monkeypatch, UsageError("no"))
    assert cli.main(["ledger", "list"]) == 2


def test_a_bug_is_1_without_a_traceback_unless_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raising(monkeypatch, ZeroDivisionError("oh"))
    assert cli.main(["ledger", "list"]) == 1
    assert (
        capsys.readouterr().err
        == "tally: unexpected ZeroDivisionError: oh. This is a bug; TALLY_DEBUG=1 shows where.\n"
    )
    monkeypatch.setenv("TALLY_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        cli.main(["ledger", "list"])


@pytest.mark.parametrize(("no_color", "bold"), [("", True), ("1", False)])
def test_help_on_a_terminal_is_plain_where_no_colour_is_wanted(no_color: str, bold: bool) -> None:
    environment = {**os.environ, "NO_COLOR": no_color, "TERM": "xterm", "COLUMNS": "80"}
    reading, writing = pty.openpty()
    try:
        subprocess.run([sys.executable, "-m", "tallystick", "--help"], stdout=writing, env=environment, timeout=30)
        assert (b"\x1b[1m" in os.read(reading, 65536)) == bold
    finally:
        os.close(reading)
        os.close(writing)


def test_an_interrupt_is_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    raising(monkeypatch, KeyboardInterrupt())
    assert cli.main(["ledger", "list"]) == 130
    assert capsys.readouterr().err == ""


def test_an_interrupt_while_the_command_is_being_loaded_is_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupted(ModuleType):
        def __getattr__(self, name: str) -> object:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "tallystick.cli.stop_signals", Interrupted("stop_signals"))
    assert cli.main(["ledger", "list"]) == 130
    assert capsys.readouterr().err == ""


def test_an_interrupt_in_a_class_statement_is_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python 3.11 makes a RuntimeError of what ``__set_name__`` raises, and imports have many classes."""
    error = RuntimeError("Error calling __set_name__ on 'cached_property' instance")
    error.__cause__ = KeyboardInterrupt()

    class Interrupted(ModuleType):
        def __getattr__(self, name: str) -> object:
            raise error

    monkeypatch.setitem(sys.modules, "tallystick.cli.app", Interrupted("app"))
    assert cli.main(["ledger", "list"]) == 130
    assert capsys.readouterr().err == ""


def test_next_to_nothing_is_loaded_where_an_interrupt_is_not_caught_yet() -> None:
    """Ctrl-C in the first 70 ms showed a traceback."""
    program = "import sys; import tallystick.cli; print(*sorted(sys.modules))"
    environment = {"PYTHONPATH": str(Path(cli.__file__).parents[2])}
    done = subprocess.run([sys.executable, "-S", "-c", program], env=environment, capture_output=True, text=True)
    loaded = done.stdout.split()
    assert {name for name in loaded if name.startswith("tallystick")} == {"tallystick", "tallystick.cli"}
    assert not {"collections", "enum", "re", "signal", "typing"} & set(loaded)


@pytest.mark.parametrize("command", ["completion bash", "--help", "sim run --help", "topic list --help"])
def test_a_closed_pipe_is_141_and_silent(command: str) -> None:
    program = f"import sys; from tallystick import cli; sys.exit(cli.main({command.split()}))"
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([sys.executable, "-c", program], stdout=writing, stderr=subprocess.PIPE, timeout=30)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("unbuffered", ["1", ""])
def test_a_full_disk_behind_our_output_is_no_bug(unbuffered: str) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "tallystick", "completion", "bash"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=30,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
    assert done.returncode == 1
    assert done.stderr == "tally: [Errno 28] No space left on device while reading input or writing output\n"


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_outputs_are_no_bug(closed: str, tmp_path: Path) -> None:
    uri = f"sqlite://{tmp_path}/m.db"
    for command in (f"cluster init {uri}", f"ledger list --uri {uri}", f"ledger list --uri {uri} --json"):
        script = f'exec "$0" -m tallystick {command} {closed}'
        done = subprocess.run(["bash", "-c", script, sys.executable], capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done.stderr
        assert "bug" not in done.stderr


@pytest.mark.parametrize(("command", "code"), [("topic delete X", 2), ("message send X", 0)])
def test_a_closed_input_is_an_empty_one(command: str, code: int) -> None:
    found = []
    for stdin in ("<&-", "</dev/null"):
        script = f'exec "$0" -m tallystick {command} --name-server 127.0.0.1:1 {stdin}'
        done = subprocess.run(["bash", "-c", script, sys.executable], capture_output=True, text=True, timeout=30)
        found.append((done.returncode, done.stderr))
    assert found[0] == found[1] and found[0][0] == code, found


def test_a_cluster_in_memory_is_nothing_for_the_command_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TALLY_URI", "memory://x")
    bookie = ["bookie", "run", "--set", f"journalDirectory={tmp_path}/j", "--set", f"ledgerDirectories={tmp_path}/l"]
    for command, code in (
        (["cluster", "init", "memory://x"], cli.WRONG_USAGE),
        (["ledger", "list", "--uri", "Memory://x"], cli.WRONG_USAGE),
        (["ledger", "list"], cli.WRONG_USAGE),
        ([*bookie, "--set", "metadataServiceUri=memory://x"], 1),  # the original's code for bad settings
    ):
        assert cli.main(command) == code
        assert "memory:// lives in one process, and no other sees it: use sqlite:///abs" in capsys.readouterr().err
    assert not any(tmp_path.iterdir())


def test_the_exit_code_of_a_command_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tallystick.node.bookie_main", lambda config, overrides, *, rejoin: 3 + rejoin)
    assert cli.main(["bookie", "run"]) == 3
    assert cli.main(["bookie", "run", "--rejoin"]) == 4


@pytest.mark.parametrize("server", ["bookie", "broker", "nameserver"])
def test_settings_of_the_command_line_reach_the_server(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[object, ...]] = []

    def run(*given: object, rejoin: bool = False) -> int:
        seen.append(given)
        return 0

    main = {"nameserver": "name_server"}.get(server, server)
    monkeypatch.setattr(f"tallystick.node.{main}_main", run)
    assert cli.main([server, "run", "--config", "b.conf", "--set", "bookiePort=0", "--set", "a=b=c"]) == 0
    assert seen == [("b.conf", {"bookiePort": "0", "a": "b=c"})]


def test_a_collection_is_ordered_by_the_bookies_configuration(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ledgers" / "tally").mkdir(parents=True)
    file = tmp_path / "bookie.conf"
    file.write_text(
        f"metadataServiceUri=sqlite:///m.db\njournalDirectory={tmp_path}/j\nledgerDirectories={tmp_path}/ledgers\n"
    )
    assert cli.main(["bookie", "collect", "--now", "--config", str(file)]) == 0
    assert f"{tmp_path}/ledgers" in capsys.readouterr().out
    assert (tmp_path / "ledgers" / "tally" / "collect").read_text().startswith("now ")
    assert cli.main(["bookie", "collect", "--config", str(file), "--set", f"ledgerDirectories={tmp_path}/none"]) == 1


def test_help_loads_no_room() -> None:
    """What keeps ``tally --help`` quick: neither the event loop nor a wire format nor a driver."""
    program = (
        "import sys; from tallystick import cli; cli.main(['--help']);"
        "print([name for name in ('asyncio', 'uvloop', 'msgspec', 'google.protobuf', 'sqlite3', 'structlog',"
        " 'tallystick.bookkeeper', 'tallystick.rocketmq', 'tallystick.admin', 'tallystick.cli.ledger')"
        " if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert all(
        name in done.stdout for name in ("bookie", "cluster", "completion", "dev", "ledger", "nameserver", "topic")
    )


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_the_commands(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(word in script for word in ("recover", "keep-open", "restart"))


def test_the_help_of_tail_tells_where_it_ends(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["ledger", "tail", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "the newest entries of an idle open ledger appear when the writer appends again or closes" in text


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert re.fullmatch(r"tallystick [\d.]+ \(codec: (python|compiled, CRC32C by .+)\)\n", capsys.readouterr().out)


def test_every_command_has_a_help() -> None:
    for name in ("bookie", "broker", "cluster", "dev", "ha", "ledger", "message", "nameserver", "store", "topic"):
        for command in app[name]:
            if not command.startswith("-"):
                assert app[name][command].help, f"tally {name} {command}"


@pytest.mark.parametrize(
    ("is_enabled", "when"), [(True, "gone, within seconds"), (False, "gone, once repair is enabled")]
)
def test_an_ordered_audit_says_when_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_enabled: bool, when: str
) -> None:
    async def ordered(uri: str) -> bool:
        return is_enabled

    monkeypatch.setattr(repair, "order_audit", ordered)
    assert cli.main(["autorecovery", "audit", "--now", "--uri", "sqlite:///x"]) == 0
    assert when in capsys.readouterr().out
