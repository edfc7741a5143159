"""Execution of `export`: writing a deployment in the format of another supervisor."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from lmos_actors.deployment.files import load_deployment
from lmos_actors.errors import ConfigError

from .._importing import complain, importing, print_notes
from .._written_files import opened_file, unwritten
from ._compose import compose
from ._kubernetes import manifests
from ._procfile import procfile
from ._source import ExportOptions, Source, dns_name
from ._systemd import units

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .._written_files import Target

OK: Final = 0

Kind: TypeAlias = Literal["systemd", "compose", "procfile", "k8s"]

MAKERS: Final[Mapping[Kind, Callable[[Source], dict[str, str]]]] = {
    "systemd": units,
    "compose": compose,
    "procfile": procfile,
    "k8s": manifests,
}
"""The makers of the files, by format."""


def export(kind: Kind, file: str, options: ExportOptions) -> int:
    """Write the files of a format, or print them where no folder is given. Returns the exit code.

    Raises ConfigError.
    """
    loaded = importing(file, partial(load_deployment, file, settings=options.settings))
    if isinstance(loaded, int):
        return loaded
    source = Source(loaded, file, options)
    try:
        _check_names(source)
        texts = MAKERS[kind](source)
    except ConfigError as error:
        return complain(error)
    print_notes([*loaded.notes, *source.notes])
    if options.out is None:
        print(
            "\n".join(text if len(texts) == 1 else f"# ---- {name}\n{text}" for name, text in texts.items()),
            end="",
        )
        return OK
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritten(str(options.out), error) from None
    targets: dict[str, Target] = {}
    try:
        for name in texts:  # all before the first is written, so that none is refused halfway
            targets[name] = opened_file(str(options.out / name), force=options.force)
        for name, target in targets.items():
            target.write(texts[name])
            print(f"wrote {options.out / name}", file=sys.stderr)
    finally:
        for target in targets.values():
            target.close()
    return OK


def _check_names(source: Source) -> None:
    """Refuse groups whose names would be one where names are host names."""
    first: dict[str, str] = {}
    for name in source.groups:
        other = first.setdefault(dns_name(name), name)
        if other != name:
            source.refuse(
                f'"{name}" and "{other}" are both "{dns_name(name)}" there: rename one', "groups", name
            )
    source.check()
