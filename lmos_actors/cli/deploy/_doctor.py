"""Execution of `doctor FILE`: checks that this machine has all that a deployment needs, before it starts.

Nothing is changed: no folder is made, no store is opened, and a port is held for an instant only.
"""

from __future__ import annotations

import io
import os
import resource
import shutil
import socket
import stat
import sys
import time
from contextlib import redirect_stderr
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET

from lmos_actors.deployment.export import secrets_of
from lmos_actors.deployment.files import load_deployment
from lmos_actors.deployment.model import DATABASE, filled_for, texts_of
from lmos_actors.deployment.processes import DESCRIPTORS_EACH, FEW_DESCRIPTORS, controls_of
from lmos_actors.errors import ConfigError
from lmos_actors.persistence import LockFile
from lmos_actors.security import Reference, SecretSource, Security, server_tls
from lmos_actors.transport import endpoint_of

from .._doctor import Finding, Verdict, report
from .._importing import importing
from ..run._load import noting

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lmos_actors.deployment.files import DeploymentFile
    from lmos_actors.deployment.model import Group

MEGABYTE: Final = 1 << 20
LITTLE: Final = 256 * MEGABYTE
"""Free space of a disk below which a warning is given."""

NONE_LEFT: Final = 8 * MEGABYTE
"""Free space below which a store could not even begin."""

DAY: Final = 86_400.0
YEARS: Final = 3 * 365 * DAY
"""Seconds by which a clock may be later than all files of a project."""

MOST: Final = 3
"""Maximum lines of one kind about the processes of a group; the others are counted."""


def diagnose_deployment(file: str, settings: Mapping[str, str], *, json: bool) -> int:
    """Check, print the findings, and return the exit code: 1 if there is a problem."""
    wrong: list[dict[str, Any]] = []
    quiet = io.StringIO()  # what is wrong is a finding
    with redirect_stderr(quiet):
        loaded = importing(file, partial(load_deployment, file, settings=settings), notice=noting(wrong))
    if isinstance(loaded, int):
        return report([_mistake(file, each) for each in wrong], json=json)
    return report(list(_Deployment(loaded, file).findings()), json=json)


def obstacles(loaded: DeploymentFile, file: str) -> list[Finding]:
    """Return the obstacles to a start here: ports in use, and secrets that other users can read."""
    looked = _Deployment(loaded, file)
    found = (each for name, group in loaded.deployment.groups.items() for each in looked.dangers(name, group))
    return [each for each in found if each.verdict != "ok"]


def _mistake(file: str, mistake: Mapping[str, Any]) -> Finding:
    place = ":".join(
        str(part) for part in (mistake["file"] or file, mistake["line"], mistake["column"]) if part
    )
    of_import = mistake["kind"] == "import"
    remedy = (
        "correct the module" if of_import else f"correct the file; lmos-actors validate {file} shows the line"
    )
    return Finding("imports" if of_import else "file", "fail", f"{place}: {mistake['message']}", remedy)


class _Deployment:
    """The checks of one file."""

    def __init__(self, loaded: DeploymentFile, file: str) -> None:
        self._file = Path(os.path.abspath(file))
        self._loaded = loaded
        self._controls = controls_of(file)
        self._runs = self._controls.is_running()
        self._groups = loaded.deployment.groups

    def findings(self) -> Iterator[Finding]:
        """Yield the findings, in the order in which a start would need them."""
        counts = (
            f"{len(self._groups)} groups, {sum(each.replicas for each in self._groups.values())} processes"
        )
        yield Finding("file", "ok", f"{self._file.name}: {counts}")
        for note in self._loaded.notes:
            yield Finding("file", "warn", f"{note.file}:{note.line}:{note.column}: {note.message}")
        yield Finding("imports", "ok", f"{len(self._loaded.system.classes)} agents")
        if self._runs:
            yield Finding("launcher", "ok", "it runs: ports and stores that are taken may be its own")
        yield self._clock()
        yield from self._machine()
        yield self._writable("state of up", self._controls.folder)
        for name, group in self._groups.items():
            yield from _shortened(self._group(name, group))

    # ---- the machine

    def _clock(self) -> Finding:
        modules = [
            getattr(sys.modules.get(each.__module__), "__file__", None)
            for each in self._loaded.system.classes.values()
        ]
        files = [self._file, *(Path(path) for path in modules if path), Path(__file__)]
        times = {path: path.stat().st_mtime for path in files if path.exists()}
        newest = max(times, key=lambda path: times[path])
        ahead = time.time() - times[newest]
        if ahead < -DAY:
            saw = f"{_span(-ahead)} behind {newest.name}"
        elif ahead > YEARS:
            saw = f"{_span(ahead)} ahead of every file"
        else:
            return Finding("clock", "ok", time.strftime("%Y-%m-%d %H:%M:%S %Z"))
        remedy = "set the clock, and keep it by NTP: certificates, leases and registrations go by it"
        return Finding("clock", "warn", saw, remedy)

    def _machine(self) -> Iterator[Finding]:
        groups = [(name, group) for name, group in self._groups.items() if group.replicas]
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        together = 0
        for name, group in groups:
            limits = group.limits
            if limits.descriptors is not UNSET:
                yield _most(
                    f"{name}: descriptors", limits.descriptors, hard, "raise the hard limit of this user"
                )
            if limits.processors is not UNSET:
                enough = limits.processors <= processors
                saw = f"{limits.processors} wanted, {processors} there"
                yield Finding(
                    f"{name}: processors",
                    "ok" if enough else "warn",
                    saw,
                    "" if enough else "it has all of them",
                )
            if limits.memory is not UNSET:
                together += int(limits.memory) * group.replicas
                wanted, enough = int(limits.memory), int(limits.memory) <= memory
                saw = f"{_size(wanted)} wanted, {_size(memory)} there"
                remedy = "" if enough else "a lower limit, or a larger machine"
                yield Finding(f"{name}: memory", "ok" if enough else "fail", saw, remedy)
        if together > memory:
            saw = f"{_size(together)} for all processes, {_size(memory)} there"
            yield Finding("memory", "warn", saw, "fewer processes, or lower limits")
        count = sum(group.replicas for _, group in groups)
        yield self._processes(count)
        if 0 <= hard < FEW_DESCRIPTORS + DESCRIPTORS_EACH * count:
            wanted = FEW_DESCRIPTORS + DESCRIPTORS_EACH * count
            yield _most("open files of up", wanted, hard, "raise the hard limit of this user")

    @staticmethod
    def _processes(wanted: int) -> Finding:
        soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
        enough = soft < 0 or wanted < soft
        saw = f"{wanted} wanted, {'no limit' if soft < 0 else f'{soft} at most'}"
        return Finding(
            "processes", "ok" if enough else "fail", saw, "" if enough else f"ulimit -u {wanted * 2}"
        )

    # ---- one group

    def dangers(self, name: str, group: Group) -> Iterator[Finding]:
        """Yield findings on the ports of a group, and on its secrets that other users can read."""
        yield from _shortened(self._ports(name, group))
        secrets = secrets_of(self._loaded, group, self._file, self._folder(group, 1))
        yield from filter(None, (_readable(name, path) for path in secrets.files if path.is_file()))

    def _group(self, name: str, group: Group) -> Iterator[Finding]:
        folders = {number: self._folder(group, number) for number in range(1, group.replicas + 1)}
        for folder in dict.fromkeys(folders.values()):
            if not folder.is_dir():
                yield Finding(f"{name}: folder", "fail", f"{folder}: no such folder", f"mkdir -p {folder}")
        yield from self._ports(name, group)
        for number, folder in folders.items():
            if folder.is_dir():
                for key, path in _written(group, folder, number):
                    yield from self._written(f"{name}: {key}", path)
                if not isinstance(group.omnia, bool) and group.omnia.uploads is not None:
                    uploads = folder / filled_for(group.omnia.uploads, number)
                    yield self._writable(f"{name}: uploads", uploads)
        first = folders.get(1, self._folder(group, 1))
        if first.is_dir():
            yield from self._protection(name, group, first)

    def _folder(self, group: Group, number: int) -> Path:
        return Path(os.path.normpath(self._file.parent / filled_for(group.cwd or ".", number)))

    def _ports(self, name: str, group: Group) -> Iterator[Finding]:
        for number in range(1, group.replicas + 1):
            for text in texts_of(group.listen):
                endpoint = endpoint_of(filled_for(text, number))
                if endpoint.port:
                    yield self._port(f"{name}: port", endpoint.host, endpoint.port)

    def _port(self, name: str, host: str, port: int) -> Finding:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as asked:
            asked.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                asked.bind((host, port))
                asked.listen(1)
            except OSError as error:
                saw = f"{host}:{port}: {error.strerror or error}"
                if self._runs:
                    return Finding(name, "ok", f"{saw}: the deployment runs")
                return Finding(name, "fail", saw, "end what listens there, or choose another address")
        return Finding(name, "ok", f"{host}:{port} is free")

    def _written(self, name: str, path: Path) -> Iterator[Finding]:
        found = self._writable(name, path.parent)
        yield found
        if found.verdict == "fail" or not path.exists():
            return
        if not os.access(path, os.W_OK):
            yield Finding(name, "fail", f"{path} cannot be written", f"chmod u+w {path}")
        lock = LockFile(os.path.realpath(path))
        if Path(lock.path).exists() and os.access(lock.path, os.W_OK):
            if lock.acquire():
                lock.release()
            elif not self._runs:
                saw = f"{path} is in use by {lock.owner()}"
                yield Finding(name, "fail", saw, "end that process: a store has one at a time")

    def _writable(self, name: str, folder: Path) -> Finding:
        """Return a finding on a folder, which need not exist: whether it is writable, and the free space."""
        there = next(path for path in (folder, *folder.parents) if path.exists())
        if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
            return Finding(
                name, "fail", f"{there} cannot be written", "allow writing there, or use another folder"
            )
        free = shutil.disk_usage(there).free
        if free < NONE_LEFT:
            return Finding(name, "fail", f"{_size(free)} free at {there}", "make room on the disk")
        if free < LITTLE:
            return Finding(name, "warn", f"{_size(free)} free at {there}", "make room on the disk")
        return Finding(name, "ok", f"{folder} can be written, {_size(free)} free")

    def _protection(self, name: str, group: Group, folder: Path) -> Iterator[Finding]:
        if group.cert is not None:
            yield _tried(
                f"{name}: certificate", partial(_certificate, group, folder), f"{group.cert} is valid"
            )
        if group.security is not None:
            load = partial(Security.load, folder / group.security)
            yield _tried(f"{name}: security", load, f"{group.security} can be used")
        secrets = secrets_of(self._loaded, group, self._file, folder)
        for variable in secrets.variables:
            yield _secret(
                name, Reference("env", variable), f"set the variable {variable} where `up` is started"
            )
        for path in secrets.files:
            if not path.is_file():
                yield Finding(f"{name}: file", "fail", f"{path}: no such file", "put it there")
            elif (readable := _readable(name, path)) is not None:
                yield readable


def _shortened(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield the first findings of each name and verdict, then the number of those left out."""
    counts: dict[tuple[str, Verdict], int] = {}
    for finding in findings:
        kind = (finding.name, finding.verdict)
        counts[kind] = counts.get(kind, 0) + 1
        if counts[kind] <= MOST:
            yield finding
    for (name, verdict), count in counts.items():
        if count > MOST:
            yield Finding(name, verdict, f"and {count - MOST} more like these")


def _written(group: Group, folder: Path, number: int) -> Iterator[tuple[str, Path]]:
    """Yield the key and the path of each database that a process writes."""
    if group.store is not None and group.store.startswith(DATABASE):
        yield "store", folder / filled_for(group.store, number).removeprefix(DATABASE)
    if isinstance(group.directory, str) and "://" not in group.directory:
        yield "directory", folder / filled_for(group.directory, number)


def _certificate(group: Group, folder: Path) -> None:
    key, authorities = (None if name is None else folder / name for name in (group.key, group.client_ca))
    assert group.cert is not None
    server_tls(folder / group.cert, key, client_ca=authorities)


def _tried(name: str, use: Any, ok: str) -> Finding:
    try:
        use()
    except ConfigError as error:
        return Finding(name, "fail", str(error).partition("\n")[0], "correct it, or put the right file there")
    return Finding(name, "ok", ok)


def _secret(group: str, reference: Reference, remedy: str) -> Finding:
    source = SecretSource(reference)
    source.read()
    if source.problem is None:
        return Finding(f"{group}: secret", "ok", f"{reference} is there")
    return Finding(f"{group}: secret", "fail", source.problem, remedy)


def _readable(name: str, path: Path) -> Finding | None:
    """Return a finding if all users can read a secret file, else None."""
    if not _is_secret(path) or not path.stat().st_mode & stat.S_IROTH:
        return None
    return Finding(f"{name}: file", "warn", f"{path} can be read by all users", f"chmod o-r {path}")


def _is_secret(path: Path) -> bool:
    """Return whether a file must be hidden: a certificate without its key is public."""
    try:
        data = path.read_bytes()[:MEGABYTE]
    except OSError:
        return True
    return b"PRIVATE KEY-----" in data or b"-----BEGIN CERTIFICATE-----" not in data


def _most(name: str, wanted: int, most: int, remedy: str) -> Finding:
    enough = most < 0 or wanted <= most
    saw = f"{wanted} wanted, {'no limit' if most < 0 else f'{most} at most'}"
    return Finding(name, "ok" if enough else "fail", saw, "" if enough else remedy)


def _size(count: int) -> str:
    return f"{count / MEGABYTE:,.0f} MiB"


def _span(seconds: float) -> str:
    days = seconds / DAY
    return f"{days:.0f} days" if days < 2 * 365 else f"{days / 365:.0f} years"
