"""The exit codes of commands, as in their help; after a signal the code is 128 plus its number."""

from __future__ import annotations

from typing import Final

OK: Final = 0

FAILED: Final = 1
"""Everything was tried, and some of it failed, was refused, or does not exist."""

USAGE: Final = 2
"""The command line is wrong, or a file named there."""

COULD_NOT_RUN: Final = 3

NOT_REACHED: Final = 3
"""A server, or a store, was not reached, or the connection was lost."""

NOT_DETERMINISTIC: Final = 4

TIME_LIMIT: Final = 124

INTERRUPTED: Final = 130
