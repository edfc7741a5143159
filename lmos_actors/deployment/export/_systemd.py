"""Systemd units: a template for each group, whose instances are its processes, and a target for all."""

from __future__ import annotations

import sys
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import UNSET

from lmos_actors.files import fill

from ..processes import CANNOT_START
from ._source import dns_name

if TYPE_CHECKING:
    from ..model import Group
    from ._source import Source

INSTANCE: Final = "%i"
"""The number of a process, in systemd's notation."""


def units(source: Source) -> dict[str, str]:
    """Return the texts of the units by name. Raises FileError if units cannot express the deployment."""
    source.give_addresses()
    source.check()
    _note_losses(source)
    made = {_target(source): _whole(source)}
    made |= {f"{_unit(source, name)}@.service": _service(source, name) for name in source.groups}
    head = "".join(f"# {line}\n" for line in source.head("systemd"))
    return {name: f"{head}\n{text}" for name, text in made.items()}


def _note_losses(source: Source) -> None:
    source.lost(
        "systemd counts the starts of each process alone, neither those of its group nor those of all",
        "groups",
    )
    strategy = source.deployment.launcher.strategy
    if strategy != "one_for_one":
        source.lost(f'"{strategy}": the end of a group means nothing for the others', "launcher", "strategy")
    for name in source.groups:
        ready = [need for need, what in source.needs_of(name).items() if what == "ready"]
        if ready:
            why = f'"{name}" starts after {", ".join(ready)}, ready or not, and is stopped with it'
            source.lost(why, "groups", name)
        source.lost_key(name, "ready", "systemd does not watch whether a process becomes ready")
        source.lost_key(name, "update", "systemd restarts all processes that it is asked to at once")
        source.lost_key(name, "backoff", "the pause before a restart does not grow")


# ---- the target


def _target(source: Source) -> str:
    return f"{dns_name(source.deployment.name)}.target"


def _whole(source: Source) -> str:
    instances = [each for name in source.groups for each in _instances(source, name)]
    lines = ["[Unit]", f"Description={_plain(source.deployment.summary or source.deployment.name)}"]
    lines += [f"Wants={each}" for each in instances]
    return "\n".join([*lines, "", "[Install]", "WantedBy=multi-user.target", ""])


def _instances(source: Source, group: str) -> list[str]:
    unit = _unit(source, group)
    return [f"{unit}@{number}.service" for number in range(1, source.groups[group].replicas + 1)]


def _unit(source: Source, group: str) -> str:
    return f"{dns_name(source.deployment.name)}-{dns_name(group)}"


# ---- the template of a group


def _service(source: Source, name: str) -> str:
    group, plan = source.groups[name], source.plans[name]
    needed = [each for need in source.needs_of(name) for each in _instances(source, need)]
    unit = [
        f"Description={_plain(source.deployment.name)}: {_plain(name)}, process {INSTANCE}",
        f"PartOf={_target(source)}",
        *(f"Requires={each}" for each in needed),
        f"After={' '.join(['network.target', *needed])}",
        f"StartLimitIntervalSec={plan.max_seconds:g}",
        f"StartLimitBurst={plan.max_restarts + 1}",
    ]
    pause = [] if plan.backoff is None else [f"RestartSec={plan.backoff.initial:g}"]
    service = [
        "Type=exec",
        *([f"User={source.options.user}"] if source.options.user else []),
        f"WorkingDirectory={_with_number(_here(source, source.folder_of(group)))}",
        f"ExecStart={_command(source, name)}",
        "Restart=always",
        f"RestartPreventExitStatus={CANNOT_START}",
        *pause,
        "KillMode=mixed",
        f"TimeoutStopSec={ceil(plan.shutdown)}",
        *_limits(group),
        *(f"Environment={_quoted(f'{key}={value}')}" for key, value in group.env.items()),
        *_secrets(source, name),
        "NoNewPrivileges=true",
        "PrivateTmp=true",
    ]
    return "\n".join(["[Unit]", *unit, "", "[Service]", *service, ""])


def _here(source: Source, path: Path) -> str:
    return source.placed(path, source.options.root or str(source.project))


def _command(source: Source, group: str) -> str:
    beside = Path(sys.executable).with_name("lmos-actors")
    command = source.options.command or str(beside)
    words = source.words_of(group, INSTANCE, _here(source, source.file))
    return " ".join([command, *(each if each == INSTANCE else _quoted(each, "$") for each in words)])


def _limits(group: Group) -> list[str]:
    limits = group.limits
    made: list[str] = []
    if limits.descriptors is not UNSET:
        made.append(f"LimitNOFILE={limits.descriptors}")
    if limits.memory is not UNSET:
        made.append(f"MemoryMax={int(limits.memory)}")
    if limits.processors is not UNSET:
        made.append(f"CPUQuota={limits.processors * 100}%")
    return made


def _secrets(source: Source, group: str) -> list[str]:
    names = source.secrets_of(group).variables
    if not names:
        return []
    place = f"/etc/{dns_name(source.deployment.name)}.env"
    why = f'"{group}" needs {", ".join(names)}: a file {place} with such lines, readable by root alone'
    return [f"# {why}", f"EnvironmentFile={place}"]


def _plain(text: str) -> str:
    return " ".join(text.split()).replace("%", "%%")


def _with_number(text: str) -> str:
    """Return a text of the file with the number of the instance in place of `$(replica)`."""
    return str(fill(text.replace("%", "%%"), lambda _: INSTANCE))


def _quoted(text: str, doubled: str = "") -> str:
    """Return one word in systemd's quoting; `doubled` are further characters that systemd expands."""
    made = _with_number(text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n"))
    for each in doubled:
        made = made.replace(each, each * 2)
    return made if made and not set(made) & set(" \t'\"\\;") else f'"{made}"'
