"""Execution of `export`: writing a deployment in the format of another supervisor."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

from lmos_actors.deployment.export import exported
from lmos_actors.deployment.files import load_deployment
from lmos_actors.errors import ConfigError

from .._exit_codes import OK
from .._importing import complain, importing, print_notes
from .._written_files import opened_file, unwritten

if TYPE_CHECKING:
    from lmos_actors.deployment.export import Kind

    from .._written_files import Target
    from ..options._export import ExportFlags


def export(kind: Kind, file: str, flags: ExportFlags) -> int:
    """Write the files of a format, or print them if no folder is given. Returns the exit code.

    Raises ConfigError.
    """
    options = flags.export_options()
    loaded = importing(file, partial(load_deployment, file, settings=options.settings))
    if isinstance(loaded, int):
        return loaded
    try:
        texts, notes = exported(kind, loaded, file, options)
    except ConfigError as error:
        return complain(error)
    print_notes([*loaded.notes, *notes])
    out = flags.out
    if out is None:
        print(
            "\n".join(text if len(texts) == 1 else f"# ---- {name}\n{text}" for name, text in texts.items()),
            end="",
        )
        return OK
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritten(str(out), error) from None
    targets: dict[str, Target] = {}
    try:
        for name in texts:  # all before the first is written, so that none is refused halfway
            targets[name] = opened_file(str(out / name), force=flags.force)
        for name, target in targets.items():
            target.write(texts[name])
            print(f"wrote {out / name}", file=sys.stderr)
    finally:
        for target in targets.values():
            target.close()
    return OK
