"""Getting the official clients and servers: jars by Maven, compiled drivers, the Go program.

Everything lands in the cache folder and is made again only when its inputs changed. Downloads go through the
ordinary clients (mvn, go) with whatever registries the machine has configured.
"""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

INTEROP = Path(__file__).resolve().parent.parent
CACHE = INTEROP / ".cache"
SERVER_VERSION = "5.5.0"

# Which sources make which driver. "rename" turns the packages of today's client into those of 3.x.
DRIVERS = {
    "java5": {"deps": "server", "sources": ["basic", "newer", "compat5"], "rename": False},
    "java49": {"deps": "client49", "sources": ["basic", "newer", "compat4"], "rename": False},
    "java32": {"deps": "client32", "sources": ["basic", "compat3"], "rename": True},
    "admin": {"deps": "server", "sources": ["admin"], "rename": False},
}


class Missing(Exception):
    """A tool that is not on this machine; the text is the reason to skip."""


def need(program):
    if shutil.which(program) is None:
        raise Missing(f"no {program}")


def checked(command, **kwargs):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **kwargs)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command[:4]))} ... exited {done.returncode}:\n{done.stdout[-3000:]}")
    return done.stdout


def digest(paths):
    h = hashlib.sha256()
    for path in sorted(paths):
        h.update(path.name.encode())
        h.update(path.read_bytes())
    return h.hexdigest()


def fresh(folder, stamp):
    mark = folder / ".stamp"
    return mark.exists() and mark.read_text() == stamp


def stamped(folder, stamp):
    (folder / ".stamp").write_text(stamp)


def jars(deps):
    """The folder of jars a pom names ("server", "client49", "client32")."""
    need("java")
    pom = INTEROP / "java" / "deps" / f"{deps}.xml"
    folder = CACHE / "jars" / deps
    stamp = digest([pom])
    if fresh(folder, stamp):
        return folder
    need("mvn")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    work = CACHE / "pom" / deps
    work.mkdir(parents=True, exist_ok=True)
    shutil.copy(pom, work / "pom.xml")
    checked(
        ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder}"],
        cwd=work,
    )
    stamped(folder, stamp)
    return folder


def driver(name):
    """The class path of a compiled Java driver."""
    need("javac")
    spec = DRIVERS[name]
    library = jars(spec["deps"])
    sources = [f for d in spec["sources"] for f in sorted((INTEROP / "java" / d).glob("*.java"))]
    classes = CACHE / "classes" / name
    stamp = digest(sources)
    if not fresh(classes, stamp):
        shutil.rmtree(classes, ignore_errors=True)
        classes.mkdir(parents=True)
        if spec["rename"]:
            sources = renamed(sources, CACHE / "renamed" / name)
        checked(
            ["javac", "-nowarn", "-encoding", "UTF-8", "-cp", f"{library}/*", "-d", str(classes), *map(str, sources)]
        )
        stamped(classes, stamp)
    return f"{classes}:{library}/*"


def renamed(sources, folder):
    """Copies of the sources with the package names that clients had before the project moved to Apache."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    copies = []
    for source in sources:
        copy = folder / source.name
        text = source.read_text(encoding="utf-8")
        copy.write_text(text.replace("org.apache.rocketmq.", "com.alibaba.rocketmq."), encoding="utf-8")
        copies.append(copy)
    return copies


def go_driver():
    """The compiled Go program."""
    need("go")
    source = INTEROP / "go"
    binary = CACHE / "go" / "interop-go"
    stamp = digest([*source.glob("*.go"), source / "go.mod", source / "go.sum"])
    if not fresh(binary.parent, stamp):
        binary.parent.mkdir(parents=True, exist_ok=True)
        checked(["go", "build", "-o", str(binary), "."], cwd=source, env={**os.environ, "CGO_ENABLED": "0"})
        stamped(binary.parent, stamp)
    return binary


def apogee_binary():
    path = os.environ.get("APOGEE_BIN")
    binary = Path(path) if path else INTEROP.parent / "target" / "release" / "apogee"
    if not binary.exists():
        raise Missing(f"no apogee binary ({'$APOGEE_BIN' if path else 'target/release/apogee'}); build it first")
    return binary.resolve()
