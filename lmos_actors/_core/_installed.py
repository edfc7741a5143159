"""Installed packages, as the names of their folders say."""

from __future__ import annotations

import os
import re
from contextlib import suppress


def versions(path: list[str]) -> dict[str, str]:
    """Return the versions of the packages installed in folders, by name; the first folder wins.

    `importlib.metadata` finds the same, but takes longer than many a run: it reads the files.
    """
    found: dict[str, str] = {}
    for folder in path:
        with suppress(OSError):
            for entry in os.listdir(folder or "."):
                name, dash, version = entry.removesuffix(".dist-info").partition("-")
                if dash and entry.endswith(".dist-info"):
                    found.setdefault(re.sub(r"[-_.]+", "-", name).lower(), version)
    return found
