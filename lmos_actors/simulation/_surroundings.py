"""The environment that a run and its repetition must have in common, apart from the seed."""

from __future__ import annotations

import platform
import sys
from functools import cache
from typing import Final

from lmos_actors._wings import installed_versions

_PACKAGES: Final = (
    "attrs", "cattrs", "lmos-actors", "msgspec", "outcome", "trio", "trio-websocket", "wsproto",
)  # fmt: skip


@cache
def surroundings() -> dict[str, object]:
    """Return the versions (Python, C library, packages) that a run and its repetition must share."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    found = installed_versions(sys.path)
    packages = {package: found.get(package) for package in _PACKAGES}
    return {"python": python, "libc": " ".join(platform.libc_ver()), "packages": packages}
