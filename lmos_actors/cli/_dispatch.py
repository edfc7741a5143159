"""Dispatch of a command line to its command, and of an error to its exit code.

Heavy modules are imported only when they are needed: `--version` answers at once.
"""

from __future__ import annotations

import io
import os
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from lmos_actors._collector import collector
from lmos_actors._wings import installed_versions, is_away
from lmos_actors.errors import ConfigError, hint_at

from ._commands import COMMANDS, application
from ._exit_codes import COULD_NOT_RUN, USAGE
from ._signals import signals

if TYPE_CHECKING:
    from collections.abc import Sequence


VERBS: Final = tuple(COMMANDS)
LATER: Final = (
    "attach",
)  # fmt: skip

_GROUPS: Final = {
    "directory": ("serve",),
    "relay": ("serve", "register", "ping", "send", "listen", "join", "revoke"),
    "state": ("ls", "show", "export", "import", "check", "backup"),
}
"""The commands with subcommands."""

_RESULTS: Final = ("run", "sim", "validate", "explore")
"""The commands whose JSON output has a list of mistakes."""


def dispatch(arguments: Sequence[str] | None) -> None:
    """Run the command and exit with its code. Raises SystemExit."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if arguments is None:
        signals.take()
        collector.take_process()
    _open_streams()
    try:
        code = _command(words)
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = signals.code
        with suppress(OSError):
            print("interrupted", file=sys.stderr)
    except OSError as error:
        code = _output_failed(error)
    signals.leave(code)
    others = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
    if arguments is None and not all(thread.daemon for thread in others):
        # Agents have left threads that the interpreter would wait for, maybe for ever.
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)
    collector.settle()
    sys.exit(code)


def _open_streams() -> None:
    """Open missing standard streams, and let all of them accept every character."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - left with the process
        if isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _output_failed(error: OSError) -> int:
    """Return the exit code for output that cannot be written; prevent further writes, even at exit."""
    with suppress(OSError, ValueError):
        where = f"{error.filename}: " if error.filename else ""
        if where or not isinstance(error, BrokenPipeError):
            print(f"lmos-actors: {where}{error.strerror or error}", file=sys.stderr, flush=True)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):
                os.dup2(nowhere, stream.fileno())
    return 1 if isinstance(error, BrokenPipeError) and not error.filename else COULD_NOT_RUN


def _command(words: list[str]) -> int:
    if words == ["--version"]:
        print(installed_versions(sys.path).get("lmos-actors") or _version_in_files())
        return 0
    verb = words[0] if words else ""
    if verb in LATER:
        return _wrong(f'"{verb}" is not available yet', [])
    if verb and not verb.startswith("-") and verb not in VERBS:
        return _wrong(f'no command "{verb}"' + hint_at(verb, (*VERBS, *LATER), '"'), [])
    return _run(words)


def _version_in_files() -> str:
    """Return the version from the metadata if no folder on the path shows it, as in a zip archive."""
    from importlib.metadata import version

    return version("lmos-actors")


def _run(words: list[str]) -> int:
    from cyclopts import CycloptsError, UnusedCliTokensError

    app = application(lists=words in ([], ["--help"], ["-h"]))
    if not sys.stdout.isatty() and (not words or not {"--help", "-h"}.isdisjoint(words)):
        from rich.console import Console

        # Help as plain text, independent of the width of the window.
        app.help_formatter = "plain"
        app.console = Console(width=1_000, highlight=False, no_color=True)
    try:
        code: Any = app(words, exit_on_error=False, print_error=False, result_action="return_value")
    except UnusedCliTokensError as error:
        extra = " ".join(error.unused_tokens or ())
        why = "all arguments stand together, before or after the options"
        return _wrong_usage(words, ConfigError(f'unexpected argument "{extra}": {why}'))
    except CycloptsError as error:
        text = " ".join(str(error).split())
        if words[0] == "serve" and "Unknown option: --port" in text:
            text = "no option --port, use --listen ws://127.0.0.1:PORT"
        return _wrong_usage(words, ConfigError(text))
    except ConfigError as error:
        return _wrong_usage(words, error)
    except ImportError as error:
        missing = error.__cause__ if isinstance(error.__cause__, ImportError) else error
        if not is_away(missing):
            raise
        return _wrong(f"{words[0]}: {missing}", [])
    if code == USAGE:  # a file is wrong, which has been printed
        print(_help_of(words), file=sys.stderr)
    return int(code or 0)


def _wrong_usage(words: list[str], error: ConfigError) -> int:
    """Print a usage error; with --json, print it in the JSON output too."""
    if "--json" in words and words[0] in _RESULTS:
        from .run._display import mistakes_of, print_wrong

        of_option = error.path.startswith("-")
        print_wrong(mistakes_of(ConfigError(str(error)) if of_option else error), USAGE)
    return _wrong(str(error), words)


def _wrong(message: str, words: Sequence[str]) -> int:
    print(f"lmos-actors: {message}", file=sys.stderr)
    print(_help_of(words), file=sys.stderr)
    return USAGE


def _help_of(words: Sequence[str]) -> str:
    """Return a line that refers to the help of the command, or to the list of all commands."""
    if not words or words[0] not in VERBS:
        return "lmos-actors --help lists the commands"
    command = " ".join(words[:2] if words[1:2] and words[1] in _GROUPS.get(words[0], ()) else words[:1])
    return f"lmos-actors {command} --help explains the command"
