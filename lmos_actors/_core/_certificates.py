"""The certificates that HTTPS clients of this process trust."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl


def trusted_certificates() -> ssl.SSLContext:
    """Return the TLS context that all `httpx2` clients share: reading the certificates takes 20 ms."""
    return _context(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@lru_cache(maxsize=4)
def _context(_file: str | None, _folder: str | None) -> ssl.SSLContext:
    from httpx2 import create_ssl_context  # of the extras `llm` and `mcp`; it reads these variables

    return create_ssl_context()
