"""Formatting of files, which keeps their comments and their meaning: the execution of `fmt`."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lmos_actors.errors import ConfigError
from lmos_actors.files import FileError, LayoutError, lay_out_json, lay_out_yaml, read
from lmos_actors.reports import worst
from lmos_actors.scenario.format import orders_of

from ._importing import complain
from ._written_files import replace_file

if TYPE_CHECKING:
    from collections.abc import Sequence


def format_files(files: Sequence[str], *, check: bool, diff: bool) -> int:
    """Format files, or print those that are not formatted. Returns the exit code."""
    return worst({_format(file, check=check, diff=diff) for file in files})


def _format(file: str, *, check: bool, diff: bool) -> int:
    try:
        before, after = formatted(file)
    except ConfigError as error:
        return complain(error)
    if before == after:
        return 0
    if diff:
        lines = difflib.unified_diff(before.splitlines(), after.splitlines(), file, file, lineterm="")
        print("\n".join(lines))
    if check or diff:
        print(f"{file}: is not formatted", file=sys.stderr)
        return 1
    replace_file(file, after)
    print(f"{file}: formatted", file=sys.stderr)
    return 0


def formatted(file: str) -> tuple[str, str]:
    """Return the text of a file before and after formatting. Raises ConfigError."""
    if file.lower().endswith(".toml"):
        raise ConfigError("formatting TOML is not available yet", file)
    document = read(file)
    if document.mistakes:
        raise FileError(document.mistakes)
    orders = orders_of(document.data)
    text = Path(file).read_text(encoding="utf-8-sig")
    try:
        lay_out = lay_out_json if file.lower().endswith(".json") else lay_out_yaml
        return text, lay_out(text, orders)
    except LayoutError:
        raise ConfigError(
            "cannot be formatted without changing its meaning; it is left as it is", file
        ) from None
