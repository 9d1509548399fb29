"""The originals' programs as test peers: released jars by name through Maven, our driver programs beside them.

All lands in one user cache folder (``TALLY_INTEROP_CACHE``, else ``~/.cache/tallystick/interop``) and is made once:

    lib-<original>-<version>/*.jar         one original, as Maven resolves it
    driver-<original>-<hash>/driver.jar    its folder of tests/interop/java compiled against it
    driver-<original>-<hash>/classes.jsa   class-data archive: halves the start of every peer

``<hash>`` covers the sources, the jars' version and the Java version. A folder appears by one rename, so a run that
dies half-way leaves nothing that a later one would take for whole, and two runs at once do not meet.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).resolve().parent.parent / "interop" / "java"
COMMON = (
    "-Dio.netty.tryReflectionSetAccessible=true",
    # Without it a bookie on the loopback interface calls itself "0:0:0:0:0:0:0:1%lo" and refuses that as an id.
    "-Djava.net.preferIPv4Stack=true",
    "-Xshare:auto",
    "-Xlog:cds=off",
    "-Xlog:cds+dynamic=off",
)
SMALL = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-XX:MaxDirectMemorySize=256m")


@dataclass(frozen=True)
class Original:
    """One original system: what Maven is asked for, and what its processes need."""

    name: str
    version: str
    artifacts: tuple[tuple[str, str, str], ...]  # group, name, version
    flags: tuple[str, ...]
    # Makes the files that a training run needs in a folder, and gives its arguments. None: no archive is made.
    training: Callable[[Path], list[str]] | None = None
    versions: tuple[str, str, str] | None = (
        None  # what says which versions of other artifacts fit: group, name, version
    )

    @property
    def sources(self) -> list[Path]:
        """What all drivers share, and this one's own."""
        return [*sorted(SOURCES.glob("*.java")), *sorted((SOURCES / self.name).glob("*.java"))]


def opened(*packages: str) -> tuple[str, ...]:
    return tuple(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in packages)


def _train_bookkeeper(folder: Path) -> list[str]:
    from support.peers import bookie_configuration
    from support.ports import free_port

    configuration = folder / "bookie.conf"
    configuration.write_text(bookie_configuration("zk://unused/ledgers", free_port(), folder, {}))
    return [str(folder), str(configuration)]


def _train_rocketmq(folder: Path) -> list[str]:
    from support.broker_peers import broker_configuration, free_ports, name_server_configuration

    ports = free_ports()
    name_server = f"127.0.0.1:{ports.name_server}"
    files = {
        "namesrv.conf": name_server_configuration(folder, ports.name_server),
        "broker.conf": broker_configuration(folder / "store", ports, name_server, {}),
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    return [*(str(folder / name) for name in files), name_server]


BOOKKEEPER = Original(
    "bookkeeper",
    "4.18.0",
    (
        ("org.apache.bookkeeper", "bookkeeper-server", "4.18.0"),
        # ZooKeeper's server needs these two and does not bring them.
        ("io.dropwizard.metrics", "metrics-core", "4.1.12.1"),
        ("org.xerial.snappy", "snappy-java", "1.1.10.5"),
    ),
    (
        *opened("java.io", "java.util.zip", "java.nio", "jdk.internal.misc"),
        "-Dzookeeper.admin.enableServer=false",
        "-Dzookeeper.4lw.commands.whitelist=ruok",
        f"-Dlog4j2.configurationFile={SOURCES / 'bookkeeper' / 'log4j2.properties'}",
    ),
    _train_bookkeeper,
)
DISTRIBUTEDLOG = Original(
    "distributedlog",
    "4.18.0",
    (
        ("org.apache.distributedlog", "distributedlog-core", "4.18.0"),
        ("io.dropwizard.metrics", "metrics-core", "4.1.12.1"),
        ("org.xerial.snappy", "snappy-java", "1.1.10.5"),
    ),
    BOOKKEEPER.flags,
)
PULSAR = Original(
    "pulsar",
    "4.2.4",
    (("org.apache.pulsar", "pulsar-broker", "4.2.4"),),
    (
        *opened("java.io", "java.lang", "java.nio", "java.util.zip", "java.net", "sun.net", "sun.nio.ch"),
        *(
            "--add-opens=jdk.management/com.sun.management.internal=ALL-UNNAMED",
            "--add-opens=java.management/sun.management=ALL-UNNAMED",
        ),
        f"-Dlog4j2.configurationFile={SOURCES / 'bookkeeper' / 'log4j2.properties'}",
    ),
    versions=("org.apache.pulsar", "pulsar", "4.2.4"),
)
ROCKETMQ = Original(
    "rocketmq",
    "5.5.0",
    tuple(("org.apache.rocketmq", f"rocketmq-{part}", "5.5.0") for part in ("namesrv", "broker", "client", "tools")),
    (
        *opened("java.io", "java.lang", "java.nio", "java.util", "jdk.internal.misc", "jdk.internal.ref", "sun.nio.ch"),
        # Else one answer that is late on a busy machine closes the connection under all others that are on their way.
        "-Dcom.rocketmq.remoting.client.closeSocketIfTimeout=false",
    ),
    _train_rocketmq,
)


@dataclass(frozen=True)
class Java:
    """A machine that can run an original. ``lib`` holds the jars, ``driver`` our programs."""

    original: Original
    lib: Path
    driver: Path

    def command(self, main: str, *arguments: str, flags: tuple[str, ...] = SMALL) -> list[str]:
        """The command line of one peer."""
        archive = self.driver / "classes.jsa"
        shared = (f"-XX:SharedArchiveFile={archive}",) if archive.exists() else ()
        path = class_path(self.lib, self.driver)
        return ["java", *COMMON, *self.original.flags, *flags, *shared, "-cp", path, main, *arguments]


def missing() -> str | None:
    """Why no original can run on this machine; None when they can."""
    needed = [name for name in ("java", "javac", "mvn") if shutil.which(name) is None]
    return f"no {', '.join(needed)} on the PATH" if needed else None


def prepare(original: Original) -> Java:
    """Resolve, compile and train what is not in the cache yet. The first time takes half a minute, later ones none."""
    lib = _lib(original)
    home = lib.parent
    home.mkdir(parents=True, exist_ok=True)
    if not lib.exists():
        _build(lib, lambda folder: _resolve(original, folder))
    driver = home / f"driver-{original.name}-{_fingerprint(original)}"
    if not driver.exists():
        _build(driver, lambda folder: _compile(original, lib, folder))
    java = Java(original, lib, driver)
    if original.training is not None and not (driver / "classes.jsa").exists():
        _train(java, original.training)
    return java


def prepare_library(original: Original) -> Java:
    """As ``prepare``, without our programs: for those that run from their source."""
    lib = _lib(original)
    lib.parent.mkdir(parents=True, exist_ok=True)
    if not lib.exists():
        _build(lib, lambda folder: _resolve(original, folder))
    return Java(original, lib, lib)


def is_cached(original: Original) -> bool:
    """Whether ``prepare`` has nothing to download."""
    return _lib(original).exists()


def _lib(original: Original) -> Path:
    home = Path(os.environ.get("TALLY_INTEROP_CACHE") or Path.home() / ".cache" / "tallystick" / "interop")
    return home / f"lib-{original.name}-{original.version}"


def class_path(lib: Path, driver: Path) -> str:
    """Always in this order: an archive fits only the class path that it was made with."""
    return os.pathsep.join([str(driver / "driver.jar"), *sorted(str(jar) for jar in lib.glob("*.jar"))])


def _build(target: Path, fill: Callable[[Path], None]) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as folder:
        made = Path(folder) / "made"
        made.mkdir()
        fill(made)
        try:
            made.rename(target)
        except OSError:  # another run was first
            if not target.exists():
                raise


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:3])} … failed with {done.returncode}:\n{done.stdout[-3000:]}")


def _coordinates(group: str, name: str, version: str) -> str:
    return f"<groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"


def _resolve(original: Original, folder: Path) -> None:
    dependencies = "".join(f"<dependency>{_coordinates(*artifact)}</dependency>" for artifact in original.artifacts)
    managed = ""
    if original.versions is not None:
        imported = f"{_coordinates(*original.versions)}<type>pom</type><scope>import</scope>"
        managed = (
            "<dependencyManagement><dependencies>"
            f"<dependency>{imported}</dependency></dependencies></dependencyManagement>"
        )
    pom = (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>tallystick</groupId>'
        f"<artifactId>peers</artifactId><version>1</version>{managed}"
        f"<dependencies>{dependencies}</dependencies></project>"
    )
    with tempfile.TemporaryDirectory() as project:
        (Path(project) / "pom.xml").write_text(pom)
        _run(["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={folder}"], Path(project))


def _fingerprint(original: Original) -> str:
    version = subprocess.run(["java", "-version"], stderr=subprocess.PIPE, check=True).stderr
    digest = hashlib.sha256(version + original.version.encode())
    for source in original.sources:
        digest.update(source.read_bytes())
    return digest.hexdigest()[:12]


def _compile(original: Original, lib: Path, folder: Path) -> None:
    classes = folder / "classes"
    _run(["javac", "-d", str(classes), "-cp", str(lib / "*"), *map(str, original.sources)], folder)
    # A jar, because an archive of class data refuses folders of classes.
    with zipfile.ZipFile(folder / "driver.jar", "w") as jar:
        for file in sorted(classes.rglob("*.class")):
            jar.write(file, file.relative_to(classes))
    shutil.rmtree(classes)


def _train(java: Java, training: Callable[[Path], list[str]]) -> None:
    """One short run of all roles writes the class-data archive. It only saves time, so a run that fails is left be."""
    with tempfile.TemporaryDirectory() as folder:
        temporary = java.driver / f".classes-{os.getpid()}.jsa"
        home = (f"-Duser.home={folder}", f"-Drocketmq.home.dir={folder}")
        command = java.command(
            "Train",
            *training(Path(folder)),
            flags=(*SMALL, *home, f"-XX:ArchiveClassesAtExit={temporary}"),
        )
        try:
            subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
            temporary.rename(java.driver / "classes.jsa")
        except (subprocess.SubprocessError, OSError) as error:
            said = getattr(error, "stdout", None) or b""
            print(f"no class-data archive (peers start slower): {type(error).__name__}: {said[-1000:]!r}")
