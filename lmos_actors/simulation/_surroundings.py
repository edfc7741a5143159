"""The surroundings on which a repetition of a run depends, apart from its seed."""

from __future__ import annotations

import os
import platform
import re
import sys
from contextlib import suppress
from functools import cache
from typing import Final

_PACKAGES: Final = (
    "attrs", "cattrs", "lmos-actors", "msgspec", "outcome", "trio", "trio-websocket", "wsproto",
)  # fmt: skip


@cache
def surroundings() -> dict[str, object]:
    """Return the versions on which the repetition of a run depends: of Python, the C library and packages."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    found = versions(sys.path)
    packages = {package: found.get(package) for package in _PACKAGES}
    return {"python": python, "libc": " ".join(platform.libc_ver()), "packages": packages}


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
