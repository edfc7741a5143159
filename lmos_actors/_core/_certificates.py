"""The certificates that HTTPS clients of this process trust."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl


@cache
def trusted_certificates() -> ssl.SSLContext:
    """Return the context of all HTTPS clients made by `httpx2`: to read certificates takes 20 ms."""
    from httpx2 import create_ssl_context  # of the extras `llm` and `mcp`

    return create_ssl_context()
