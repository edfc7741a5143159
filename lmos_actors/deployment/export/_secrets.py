"""The secrets that the processes of a group need: the names of variables and files, not the values."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from lmos_actors.errors import ConfigError
from lmos_actors.files import is_list, is_mapping, read
from lmos_actors.llm import AnthropicModel, OpenAIModel
from lmos_actors.security import Reference
from lmos_actors.system import keywords_of
from lmos_actors.system.model import Remote

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..files import DeploymentFile
    from ..model import Group


@attrs.define
class Secrets:
    """Names of variables, and paths of files: certificates, keys, and files that references name.

    `unreadable` is set if a file with access rules could not be read: the secrets in that file are not known.
    """

    variables: dict[str, None] = attrs.Factory(dict[str, None])
    files: dict[Path, None] = attrs.Factory(dict[Path, None])
    unreadable: bool = False

    def add(self, text: object, folder: Path) -> None:
        """Add the secret that a text refers to, if it is a reference; relative paths are from `folder`."""
        if not isinstance(text, str):
            return
        try:
            reference = Reference.parse(text, folder)
        except ConfigError:
            return
        if reference.kind == "env":
            self.variables[reference.place] = None
        else:
            self.files[Path(reference.place)] = None


def secrets_of(loaded: DeploymentFile, group: Group, file: Path, folder: Path) -> Secrets:
    """Return the secrets of a group whose processes run in `folder`.

    Variables that the group's `env` sets are left out. Blocks on the disk.
    """
    deployment, found = loaded.deployment, Secrets()
    for name in (group.cert, group.key, group.client_ca):
        if name is not None:
            found.files[folder / name] = None
    for entry in deployment.agents.values():
        if not isinstance(entry, Remote):
            continue
        found.add(entry.bearer, file.parent)
        found.add((entry.basic or "").partition(":")[2], file.parent)
        found.add(entry.apikey, file.parent)
        for path in (entry.ca, entry.cert, entry.key):
            if path is not None:
                found.files[file.parent / path] = None
    for name in group.agents:
        for text in _given_to(name, loaded):
            found.add(text, folder)
    if group.security is not None:
        rules = folder / group.security
        try:
            data = read(rules).data
        except ConfigError:
            found.unreadable = True
        else:
            for text in _texts_in(data):
                found.add(text, rules.parent)
    for name in group.env:
        found.variables.pop(name, None)
    return found


def _given_to(name: str, loaded: DeploymentFile) -> Iterator[str]:
    """Yield the texts in an agent's arguments; for one of our models without a `key`, the default key too."""
    system, entry = loaded.system, loaded.deployment.agents.get(name)
    spec = None if entry is not None or system.used is None else system.used.agents.get(name)
    args: dict[str, Any] = getattr(entry, "args", {}) if spec is None else keywords_of(spec.factory)
    yield from _texts_in(args)
    cls: Any = system.classes.get(name)
    models: tuple[Any, ...] = (OpenAIModel, AnthropicModel)
    if cls is not None and issubclass(cls, models) and "key" not in args:
        yield from _texts_in(attrs.fields(cls).key.default)


def _texts_in(data: Any) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif is_mapping(data):
        for value in data.values():
            yield from _texts_in(value)
    elif is_list(data):
        for value in data:
            yield from _texts_in(value)
