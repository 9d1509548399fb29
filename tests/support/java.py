"""The original's programs as test peers: its released jars by name through Maven, our driver programs beside them.

All lands in one user cache folder (``TALLY_INTEROP_CACHE``, else ``~/.cache/tallystick/interop``) and is made once:

    lib-4.18.0/*.jar            the original, as Maven resolves it
    driver-<hash>/driver.jar    tests/interop/java compiled against it
    driver-<hash>/classes.jsa   class-data archive: halves the start of every peer

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
from dataclasses import dataclass
from pathlib import Path

BOOKKEEPER = "4.18.0"
JARS = (
    ("org.apache.bookkeeper", "bookkeeper-server", BOOKKEEPER),
    # ZooKeeper's server needs these two and does not bring them.
    ("io.dropwizard.metrics", "metrics-core", "4.1.12.1"),
    ("org.xerial.snappy", "snappy-java", "1.1.10.5"),
)
SOURCES = Path(__file__).resolve().parent.parent / "interop" / "java"
OPENED = ("java.io", "java.util.zip", "java.nio", "jdk.internal.misc")
COMMON = (
    *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in OPENED),
    "-Dio.netty.tryReflectionSetAccessible=true",
    # Without it a bookie on the loopback interface calls itself "0:0:0:0:0:0:0:1%lo" and refuses that as an id.
    "-Djava.net.preferIPv4Stack=true",
    "-Dzookeeper.admin.enableServer=false",
    "-Dzookeeper.4lw.commands.whitelist=ruok",
    f"-Dlog4j2.configurationFile={SOURCES / 'log4j2.properties'}",
    "-Xshare:auto",
    "-Xlog:cds=off",
    "-Xlog:cds+dynamic=off",
)
SMALL = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-XX:MaxDirectMemorySize=256m")


@dataclass(frozen=True)
class Java:
    """A machine that can run the original. ``home`` holds the jars and our driver."""

    lib: Path
    driver: Path

    def command(self, main: str, *arguments: str, flags: tuple[str, ...] = SMALL) -> list[str]:
        """The command line of one peer."""
        archive = self.driver / "classes.jsa"
        shared = (f"-XX:SharedArchiveFile={archive}",) if archive.exists() else ()
        return ["java", *COMMON, *flags, *shared, "-cp", class_path(self.lib, self.driver), main, *arguments]


def missing() -> str | None:
    """Why the original cannot run on this machine; None when it can."""
    needed = [name for name in ("java", "javac", "mvn") if shutil.which(name) is None]
    return f"no {', '.join(needed)} on the PATH" if needed else None


def prepare() -> Java:
    """Resolve, compile and train what is not in the cache yet. The first time takes half a minute, later ones none."""
    home = Path(os.environ.get("TALLY_INTEROP_CACHE") or Path.home() / ".cache" / "tallystick" / "interop")
    home.mkdir(parents=True, exist_ok=True)
    lib = home / f"lib-{BOOKKEEPER}"
    if not lib.exists():
        _build(lib, _resolve)
    driver = home / f"driver-{_fingerprint()}"
    if not driver.exists():
        _build(driver, lambda folder: _compile(lib, folder))
    java = Java(lib, driver)
    if not (driver / "classes.jsa").exists():
        _train(java)
    return java


def class_path(lib: Path, driver: Path) -> str:
    """Always in this order: an archive fits only the class path that it was made with."""
    return os.pathsep.join([str(driver / "driver.jar"), *sorted(str(jar) for jar in lib.glob("*.jar"))])


def _build(target: Path, fill: object) -> None:
    assert callable(fill)
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


def _resolve(folder: Path) -> None:
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version></dependency>"
        for group, name, version in JARS
    )
    pom = (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>tallystick</groupId>'
        f"<artifactId>peers</artifactId><version>1</version><dependencies>{dependencies}</dependencies></project>"
    )
    with tempfile.TemporaryDirectory() as project:
        (Path(project) / "pom.xml").write_text(pom)
        _run(["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={folder}"], Path(project))


def _fingerprint() -> str:
    version = subprocess.run(["java", "-version"], stderr=subprocess.PIPE, check=True).stderr
    digest = hashlib.sha256(version + BOOKKEEPER.encode())
    for source in sorted(SOURCES.glob("*.java")):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:12]


def _compile(lib: Path, folder: Path) -> None:
    classes = folder / "classes"
    sources = [str(source) for source in sorted(SOURCES.glob("*.java"))]
    _run(["javac", "-d", str(classes), "-cp", str(lib / "*"), *sources], folder)
    # A jar, because an archive of class data refuses folders of classes.
    with zipfile.ZipFile(folder / "driver.jar", "w") as jar:
        for file in sorted(classes.rglob("*.class")):
            jar.write(file, file.relative_to(classes))
    shutil.rmtree(classes)


def _train(java: Java) -> None:
    """One short run of all roles writes the class-data archive. It only saves time, so a run that fails is left be."""
    from support.peers import bookie_configuration, free_port

    with tempfile.TemporaryDirectory() as folder:
        configuration = Path(folder) / "bookie.conf"
        configuration.write_text(bookie_configuration("zk://unused/ledgers", free_port(), Path(folder), {}))
        temporary = java.driver / f".classes-{os.getpid()}.jsa"
        flags = (*SMALL, f"-XX:ArchiveClassesAtExit={temporary}")
        done = subprocess.run(
            java.command("Train", folder, str(configuration), flags=flags), capture_output=True, text=True, timeout=120
        )
        if done.returncode == 0 and temporary.exists():
            temporary.rename(java.driver / "classes.jsa")
        else:
            print(f"no class-data archive (peers start slower): {done.stdout[-500:]} {done.stderr[-500:]}")
