"""From the words of a command line to a command, and from what went wrong to an exit code.

Nothing heavy is imported before it is known to be needed: `--version` answers at once.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Final

from lmos_actors._errors import ConfigError, nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

VERBS: Final = ("run", "validate", "schema")
LATER: Final = (
    "init", "fmt", "sim", "explore", "replay", "diff", "record", "up", "down", "ps", "logs", "restart",
    "scale", "drain", "status", "top", "tree", "inspect", "trace", "deadletters", "attach", "call", "read",
    "write", "observe", "listen", "describe", "chat", "relay", "serve", "conform", "export", "doctor",
)  # fmt: skip

USAGE: Final = 2
INTERRUPTED: Final = 130


def main(arguments: Sequence[str] | None = None) -> None:
    """Be the command: run it and exit with its code. Exits by SystemExit."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = _command(words)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        code = INTERRUPTED
    except BrokenPipeError:
        # whoever read our output has gone; nothing more is written, not even at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    sys.exit(code)


def _command(words: list[str]) -> int:
    if words == ["--version"]:
        from importlib.metadata import version

        print(version("lmos-actors"))
        return 0
    verb = words[0] if words else ""
    if verb in LATER:
        return _wrong(f'"{verb}" is not available yet')
    if verb and not verb.startswith("-") and verb not in VERBS:
        near = nearest(verb, (*VERBS, *LATER))
        return _wrong(f'no command "{verb}"' + (f', did you mean "{near}"?' if near else ""))
    return _run(words)


def _run(words: list[str]) -> int:
    from cyclopts import CycloptsError

    from ._commands import app

    try:
        code: Any = app(words, exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        return _wrong(" ".join(str(error).split()))
    except ConfigError as error:
        return _wrong(str(error))
    return int(code or 0)


def _wrong(message: str) -> int:
    print(f"lmos-actors: {message}", file=sys.stderr)
    print("lmos-actors --help lists the commands", file=sys.stderr)
    return USAGE
