"""A Compose file: a service for each group, or for each process if its processes differ."""

from __future__ import annotations

import os
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from msgspec import UNSET

from ..model import filled_for
from ._source import NUMBER, PROBE, USER, dns_name, probe

if TYPE_CHECKING:
    from ..model import Group
    from ._source import Source


def compose(source: Source) -> dict[str, str]:
    """Return the text of a Compose file. Raises FileError for a deployment that Compose cannot express."""
    source.check_containers()
    source.check()
    _note_losses(source)
    services: dict[str, Any] = {}
    volumes: dict[str, Any] = {}
    secrets: dict[str, Any] = {}
    for name in source.groups:
        made = _Services(source, name)
        services |= made.services()
        volumes |= made.volumes
        secrets |= made.secrets
    data: dict[str, Any] = {"name": dns_name(source.deployment.name), "services": services}
    data |= {key: value for key, value in (("volumes", volumes), ("secrets", secrets)) if value}
    head = "".join(f"# {line}\n" for line in source.head("compose"))
    text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=1_000)
    return {"compose.yaml": f"{head}{text}"}


def _note_losses(source: Source) -> None:
    source.lost("Compose starts what has ended again without an end: it counts nothing", "groups")
    strategy = source.deployment.launcher.strategy
    if strategy != "one_for_one":
        source.lost(f'"{strategy}": the end of a group means nothing for the others', "launcher", "strategy")
    for name in source.groups:
        source.lost_key(name, "update", "Compose replaces the containers of a service as it sees fit")
        source.lost_key(name, "backoff", "Compose has pauses of its own between restarts")


def services_of(source: Source, group: str) -> list[tuple[str, int | None]]:
    """Return the services of a group by name, each with the number of its process, or None for any."""
    found = source.groups[group]
    base = dns_name(group)
    if found.replicas == 1:
        return [(base, 1)]
    if NUMBER in repr(found):  # its keys contain the number of the process, so its processes differ
        return [(f"{base}-{number}", number) for number in range(1, found.replicas + 1)]
    return [(base, None)]


class _Services:
    """The services of one group, and the volumes and secrets that they name."""

    def __init__(self, source: Source, name: str) -> None:
        self.volumes: dict[str, Any] = {}
        self.secrets: dict[str, Any] = {}
        self._source = source
        self._name = name
        self._group: Group = source.groups[name]
        self._given = source.secrets_of(name)

    def services(self) -> dict[str, Any]:
        """Return the services by name."""
        return {
            service: self._service(service, number)
            for service, number in services_of(self._source, self._name)
        }

    def _service(self, service: str, number: int | None) -> dict[str, Any]:
        source, group = self._source, self._group
        address = source.address_of(group, number or 1)
        root = source.container_root()
        made: dict[str, Any] = {
            "image": source.image(),
            "entrypoint": [source.options.command or "lmos-actors"],  # whatever that of the image is
            "command": self._command(number),
            "working_dir": root,
            "restart": "unless-stopped",
            "stop_grace_period": f"{ceil(source.plans[self._name].shutdown)}s",
            "healthcheck": {
                "test": ["CMD", "python3", "-c", probe(address, "/readyz")],
                "interval": "5s",
                "timeout": f"{PROBE + 1}s",
                "retries": 3,
                "start_period": f"{ceil(group.ready)}s",
                "start_interval": "1s",
            },
            "user": source.options.user or USER,
            "read_only": True,
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges:true"],
            "tmpfs": ["/tmp"],
        }
        if number is not None:
            made["hostname"] = service
            if address.published is not None:
                made["ports"] = [address.published]
        return made | self._options(service, number)

    def _command(self, number: int | None) -> list[str]:
        source = self._source
        file = source.placed(source.file, source.container_root())
        words = [
            *source.words_of(self._name, str(number or 1), file),
            "--listen",
            source.address_of(self._group, number or 1).listen,
        ]
        for host in source.hosts_of(self._name):
            service = services_of(source, host)[0][0]
            there = source.address_of(source.groups[host])
            words += ["--at", f"{host}={'https' if there.secure else 'http'}://{service}:{there.port}"]
        return [_escaped(word) for word in words]

    def _options(self, service: str, number: int | None) -> dict[str, Any]:
        """Return the options that only some services have."""
        source, group = self._source, self._group
        made: dict[str, Any] = {}
        depends = {
            each: {"condition": "service_healthy" if what == "ready" else "service_started"}
            for need, what in source.needs_of(self._name).items()
            for each, _ in services_of(source, need)
        }
        environment = {key: _escaped(filled_for(value, number or 1)) for key, value in group.env.items()}
        environment |= {name: f"${{{name}:?is a secret of {self._name}}}" for name in self._given.variables}
        for key, value in (("depends_on", depends), ("environment", environment)):
            if value:
                made[key] = value
        volumes: list[str] = []
        for place in source.volumes_of(group):
            volume = f"{service}-{dns_name(place.rpartition('/')[2])}"
            self.volumes[volume] = {}
            volumes.append(f"{volume}:{place}")
        if volumes:
            made["volumes"] = volumes
        if self._given.files:
            made["secrets"] = [self._secret(path) for path in self._given.files]
        return made | self._limits(number)

    def _secret(self, path: Path) -> dict[str, str]:
        name = dns_name(path.name)
        here = os.path.relpath(path, self._source.options.out or Path())
        self.secrets[name] = {"file": here if here.startswith("../") else f"./{here}"}
        return {"source": name, "target": self._source.placed(path, self._source.container_root())}

    def _limits(self, number: int | None) -> dict[str, Any]:
        limits = self._group.limits
        made: dict[str, Any] = {}
        most: dict[str, Any] = {}
        if limits.processors is not UNSET:
            most["cpus"] = str(limits.processors)
        if limits.memory is not UNSET:
            most["memory"] = str(int(limits.memory))
        deploy: dict[str, Any] = {"resources": {"limits": most}} if most else {}
        if number is None or self._group.replicas == 0:
            deploy["replicas"] = self._group.replicas
        if deploy:
            made["deploy"] = deploy
        if limits.descriptors is not UNSET:
            made["ulimits"] = {"nofile": limits.descriptors}
        return made


def _escaped(text: str) -> str:
    return text.replace("$", "$$")
