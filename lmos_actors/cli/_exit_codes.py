"""The exit codes of commands, as their help says them; after a signal it is 128 and its number."""

from __future__ import annotations

from typing import Final

OK: Final = 0

FAILED: Final = 1
"""All was tried, and something of it failed, was refused, or is not there."""

USAGE: Final = 2
"""The command line is wrong, or a file that it names."""

COULD_NOT_RUN: Final = 3

NOT_REACHED: Final = 3
"""A server, or a store, was not reached; or the connection was lost."""

NOT_DETERMINISTIC: Final = 4

TIME_LIMIT: Final = 124

INTERRUPTED: Final = 130
