"""The source of an export: a deployment file, its groups, their commands, and notes on what gets lost."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from lmos_actors.files import FileError, mapped
from lmos_actors.security import is_loopback
from lmos_actors.transport import endpoint_of

from ..files import launch_plan
from ..model import DATABASE, filled_for, needs_of, texts_of
from ._secrets import secrets_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmos_actors.files import Mistake, Note
    from lmos_actors.transport import Endpoint

    from ..files import DeploymentFile
    from ..model import Group
    from ..processes import GroupPlan
    from ._secrets import Secrets

NUMBER: Final = "$(replica)"
USER: Final = "10001"
"""The default user of containers: any but root."""

PROBE: Final = 5
"""Seconds between two readiness checks by a supervisor, and for an answer."""


@attrs.frozen(kw_only=True)
class ExportOptions:
    """Options for the files of other supervisors; None means the format's default."""

    image: str | None = None
    root: str | None = None
    command: str | None = None
    user: str | None = None
    port: int = 8080
    storage: str = "1Gi"
    out: Path | None = None
    """The folder for the files, None if they are printed."""
    settings: Mapping[str, str] = attrs.Factory(dict[str, str])


@attrs.frozen
class Address:
    """The address at which a process listens in its container.

    `published` is the port mapping from the machine, None if there is none. With `asks_certificate` the
    process refuses every client without a certificate, including health probes.
    """

    port: int
    secure: bool
    published: str | None
    asks_certificate: bool

    @property
    def listen(self) -> str:
        """The URL at which the process listens."""
        return f"{'wss' if self.secure else 'ws'}://0.0.0.0:{self.port}"


class Source:
    """A deployment to be exported; `notes` and `mistakes` grow during the export."""

    def __init__(self, loaded: DeploymentFile, file: str, options: ExportOptions) -> None:
        self._loaded = loaded
        self.deployment = loaded.deployment
        self.options = options
        self.file = Path(os.path.abspath(file))
        self.project = loaded.root
        self.notes: list[Note] = []
        self.mistakes: list[Mistake] = []
        self._document = loaded.document
        self._given: dict[str, str] = {}  # the URLs of directories that the file leaves a free port

    @property
    def groups(self) -> dict[str, Group]:
        """The groups by name, in the order of the file."""
        return self.deployment.groups

    @cached_property
    def plans(self) -> dict[str, GroupPlan]:
        """The launcher's plan of each group."""
        plan = launch_plan(self.deployment, str(self.file))
        return {group.name: group for group in plan.groups}

    # ---- notes and mistakes

    def lost(self, why: str, *path: str) -> None:
        """Add a note that the format cannot express the part of the file at `path`."""
        self.notes.append(self._document.note(path, why, key=True))

    def lost_key(self, group: str, key: str, why: str) -> None:
        """Add a note that the format cannot express a key of a group, if the file has that key."""
        if self._says(group, key):
            self.lost(f'"{key}" of "{group}": {why}', "groups", group, key)

    def refuse(self, why: str, *path: str) -> None:
        """Add a mistake for a part of the file that cannot be exported at all."""
        self.mistakes.append(
            self._document.mistake(path, why, key=path[-1:] not in (("listen",), ("store",)))
        )

    def check(self) -> None:
        """Raise FileError if a mistake was noted."""
        if self.mistakes:
            raise FileError(self.mistakes)

    def head(self, kind: str) -> list[str]:
        """Return the comment at the top of a file: its origin, and what gets lost."""
        lines = [f"Made from {self.file.name} by: lmos-actors export {kind}"]
        if self.notes:
            lines.append("What it does not say as the file does:")
            lines += [f"- line {note.line}: {note.message}" for note in self.notes]
        return lines

    # ---- processes

    def folder_of(self, group: Group) -> Path:
        """Return the folder in which a group's processes run, as an absolute path on this machine."""
        return Path(os.path.normpath(self.file.parent / (group.cwd or ".")))

    def placed(self, path: Path, root: str) -> str:
        """Return the path of a project file once the project is in `root`; other paths are not changed."""
        path = Path(os.path.normpath(path))
        if not path.is_relative_to(self.project):
            return str(path)
        return os.path.normpath(Path(root) / path.relative_to(self.project))

    def words_of(self, group: str, number: str, file: str) -> list[str]:
        """Return the arguments of the command that runs one process; `number` may be a placeholder."""
        settings = (
            word for key, value in self.options.settings.items() for word in ("--set", f"{key}={value}")
        )
        known = (group, *self.hosts_of(group))
        at = (
            word for name, url in self._given.items() if name in known for word in ("--at", f"{name}={url}")
        )
        return ["serve", file, "--group", group, "--replica", number, *settings, *at]

    def give_addresses(self) -> None:
        """Set an address for each directory at a free port: there is no launcher to pass its address on.

        Groups of several processes are refused: all would have one address.
        """
        used = {
            text
            for group in self.groups.values()
            for text in (*texts_of(group.register), *texts_of(group.lookup))
        }
        taken = {endpoint.port for group in self.groups.values() for endpoint in _endpoints(group)}
        for name, group in self.groups.items():
            first = _endpoints(group)[0]
            if name not in used or group.public_url is not None or first.port:
                continue
            if group.replicas > 1:
                why = (
                    f'the processes of the directory "{name}" listen at free ports, and without the launcher '
                    'nobody else knows which: give it one process, and a port, such as "listen: ws://127.0.0.1:7000"'
                )
                here = ("groups", name, "listen")
                self.refuse(why, *(here if self._says(name, "listen") else here[:-1]))
                continue
            port = next(number for number in range(self.options.port, 65_536) if number not in taken)
            taken.add(port)
            host = f"[{first.host}]" if ":" in first.host else first.host
            self._given[name] = f"{'https' if first.secure else 'http'}://{host}:{port}"
            why = (
                f'"{name}" listens at port {port}, as nobody else would know a free one: --port names another'
            )
            self.lost(why, "groups", name)

    def _says(self, group: str, key: str) -> bool:
        return key in mapped(mapped(mapped(self._document.data).get("groups")).get(group))

    # ---- containers: each process has a machine of its own

    def container_root(self) -> str:
        """Return the folder of the project in an image."""
        return self.options.root or "/app"

    def image(self) -> str:
        """Return the name of the image."""
        return self.options.image or f"{dns_name(self.deployment.name)}:latest"

    def address_of(self, group: Group, number: int = 1) -> Address:
        """Return the address of a process in its container, with the file's port if the file names one."""
        first = texts_of(group.listen)[0]
        endpoint = endpoint_of(filled_for(first, number))
        asks = group.client_ca is not None and group.security is None
        if not endpoint.port:
            return Address(self.options.port, endpoint.secure, None, asks)
        host = f"{endpoint.host}:" if is_loopback(endpoint.host) else ""
        return Address(endpoint.port, endpoint.secure, f"{host}{endpoint.port}:{endpoint.port}", asks)

    def check_containers(self) -> None:
        """Refuse groups that `serve` would not open in a container, or whose state would be lost there."""
        for name, group in self.groups.items():
            is_guarded = group.security is not None or group.client_ca is not None
            if not group.insecure and not (is_guarded and self.address_of(group).secure):
                lacks = "without TLS" if is_guarded else "without access rules"
                why = (
                    f'in a container "{name}" listens at all addresses, {lacks}: set "security", "cert" and '
                    'a wss address, or say "insecure: true" where something else protects it'
                )
                self.refuse(why, "groups", name)
            if group.allow_operations:
                self.lost_key(name, "allow_operations", "no client is on the machine of a container")
            if len(texts_of(group.listen)) > 1:
                self.lost_key(name, "listen", "a container listens at one address, the first")
            for key, path in self.state_of(group):
                if self.project.is_relative_to(_volume_of(path)):
                    why = (
                        f'in a container the folder of "{path.name}" has the program, too, so it cannot be '
                        f'written: a folder of its own, such as "state/{path.name}", can be a volume'
                    )
                    self.refuse(why, "groups", name, key)

    def state_of(self, group: Group) -> list[tuple[str, Path]]:
        """Return the files that a process writes, with the keys that name them; `uploads` is a folder."""
        folder = self.folder_of(group)
        found: list[tuple[str, Path]] = []
        if group.store is not None and group.store.startswith(DATABASE):
            found.append(("store", folder / group.store.removeprefix(DATABASE)))
        if isinstance(group.directory, str) and "://" not in group.directory:
            found.append(("directory", folder / group.directory))
        uploads = None if isinstance(group.omnia, bool) else group.omnia.uploads
        if uploads is not None:
            found.append(("omnia", folder / uploads / "uploads"))
        return found

    def volumes_of(self, group: Group) -> list[str]:
        """Return the folders in which a process keeps state, by their paths in its container."""
        places = [self.placed(_volume_of(path), self.container_root()) for _, path in self.state_of(group)]
        return list(dict.fromkeys(places))

    def needs_of(self, group: str) -> dict[str, str]:
        """Return the groups that a group waits for, each with the state to wait for."""
        return {
            name: what for name, what in needs_of(self.groups[group], self.groups).items() if name != group
        }

    def hosts_of(self, group: str) -> tuple[str, ...]:
        """Return the groups whose directories a group uses."""
        return self.plans[group].hosts

    def secrets_of(self, name: str) -> Secrets:
        """Return the secrets that the processes of a group need. Blocks on the disk."""
        group = self.groups[name]
        found = secrets_of(self._loaded, group, self.file, self.folder_of(group))
        if found.unreadable:
            why = f"{group.security} cannot be read, so its secrets are not known"
            self.lost_key(name, "security", why)
        return found


def _endpoints(group: Group) -> list[Endpoint]:
    return [endpoint_of(filled_for(text, 1)) for text in texts_of(group.listen)]


def _volume_of(path: Path) -> Path:
    """Return the folder of a file, for a volume; it is above numbered folders, so that processes share it."""
    folder = path.parent
    while NUMBER in str(folder):
        folder = folder.parent
    return folder


def dns_name(text: str) -> str:
    """Return a name in the form of host names: lower case, digits and hyphens."""
    made = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in text.lower())
    return made.strip("-") or "agents"


def probe(address: Address, path: str, host: str = "127.0.0.1") -> str:
    """Return a Python program that ends with 0 if a process reports that it is healthy."""
    if address.asks_certificate:
        return f"import socket; socket.create_connection(('{host}', {address.port}), {PROBE}).close()"
    url = f"{'https' if address.secure else 'http'}://{host}:{address.port}{path}"
    if not address.secure:
        return f"import urllib.request as r; r.urlopen('{url}', timeout={PROBE})"
    context = "ssl._create_unverified_context()"
    return f"import ssl, urllib.request as r; r.urlopen('{url}', timeout={PROBE}, context={context})"
