"""The conversion of problem details in HTTP answers into exceptions."""

from __future__ import annotations

from typing import Any

from lmos_actors.errors import RemoteProtocolError
from lmos_actors.files import mapped
from lmos_actors.protocol import lmos


def error_in(value: Any, status: int) -> Exception:
    """Return the exception that problem details represent."""
    data = mapped(value)
    path, started = data.get("path"), data.get("started")
    detail = str(data.get("detail") or "")
    message = lmos.Error(
        thing_id="-",
        message_id="-",
        type=str(data.get("type") or ""),
        title=str(data.get("title") or ""),
        status=str(status),
        detail=detail,
        instance="",
        path=path if isinstance(path, str) else None,
        started=started if isinstance(started, bool) else None,
        about=mapped(data.get("about")) or None,
    )
    error = lmos.error_of(message)
    return RuntimeError(detail or f"HTTP {status}") if isinstance(error, RemoteProtocolError) else error
