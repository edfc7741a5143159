"""The limit of open descriptors, for those who expect many connections."""

from __future__ import annotations

import sys


def raise_descriptor_limit(wanted: int) -> int:
    """Raise this process's soft limit of open descriptors to `wanted`, or as far as its hard limit allows.

    Gives the limit in force then, which may be lower or higher than `wanted`: it is never lowered. Where the
    system has no such limit, as on Windows, it gives `wanted`.
    """
    if sys.platform == "win32":
        return wanted
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if soft == unlimited or soft >= wanted:
        return wanted if soft == unlimited else soft
    aim = wanted if hard == unlimited else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (aim, hard))
    except (OSError, ValueError):
        return soft  # some systems refuse numbers below their hard limit
    return aim
