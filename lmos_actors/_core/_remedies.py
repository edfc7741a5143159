"""Advice for a user when a remote agent refuses or cannot be reached, in terms of options or of keys."""

from __future__ import annotations

from typing import Final

import attrs

from lmos_actors.errors import (
    AgentUnavailable,
    ConnectFailed,
    Forbidden,
    MailboxFull,
    OutcomeUnknown,
    RateLimited,
    TransportError,
    Unauthorized,
)


@attrs.frozen
class Spelling:
    """The words used in advice about `credentials`, a `certificate` and an `authority`.

    Each field is a part of a sentence that says what to do. `other_credentials` is for a client that is known
    but not allowed; "" omits that advice. `presence` is for a server other than the expected one.
    """

    credentials: str
    certificate: str
    authority: str
    other_credentials: str = ""
    presence: str = "is the agent served there?"


_FIXES: Final[tuple[tuple[type[Exception], str], ...]] = (
    (AgentUnavailable, "nothing was begun, so try again"),
    (MailboxFull, "nothing was begun, so try again later"),
    (RateLimited, "nothing was begun, so try again later"),
    (OutcomeUnknown, "look before asking again"),
)

_FOR_CERTIFICATES: Final = (
    ("host", "ask for it by a name that its certificate has"),
    ("IP address", "ask for it by a name that its certificate has"),
    ("expired", "it has to be renewed there"),
    ("not yet valid", "is the clock right, here and there?"),
)
"""Remedies where the certificate of a server is not accepted, by a word in the reason."""

_UNKNOWN_AUTHORITY: Final = ("issuer", "self")
"""Words in the reason where the authority of a server's certificate is not trusted."""


_ELSEWHERE: Final = (0, 200, 404, 405, 426)
"""Statuses from servers other than the one that was looked for; 0 for none."""


def remedy(error: BaseException, spelling: Spelling) -> str:
    """Return brief advice on an error, or "" if there is none."""
    found = refusal_remedy(error, spelling)
    if "it speaks" in str(error):  # trying again would not help
        return found
    return found or next((fix for tp, fix in _FIXES if isinstance(error, tp)), "")


def refusal_remedy(error: BaseException, spelling: Spelling) -> str:
    """Return advice if credentials, a certificate or an authority caused the error, else ""."""
    if isinstance(error, AgentUnavailable) and isinstance(error.__cause__, ConnectFailed):
        cause = error.__cause__
        return _for_connecting(cause, spelling) if cause.certificate or cause.status in (401, 403) else ""
    if isinstance(error, ConnectFailed):
        return _for_connecting(error, spelling)
    if isinstance(error, Unauthorized):
        return spelling.credentials
    if isinstance(error, TransportError) and getattr(error, "status", None) == 401:  # from a directory
        return spelling.credentials
    return spelling.other_credentials if isinstance(error, Forbidden) else ""


def _for_connecting(error: ConnectFailed, spelling: Spelling) -> str:
    if error.certificate == "client":
        return spelling.certificate
    if error.certificate == "server":
        found = next((fix for word, fix in _FOR_CERTIFICATES if word in error.why), "")
        if not found and any(word in error.why for word in _UNKNOWN_AUTHORITY):
            return spelling.authority
        return found or "is it made as verifiers demand? The guide on certificates shows how"
    known = {401: spelling.credentials, 403: spelling.other_credentials}
    if error.status in known:
        return known[error.status]
    is_there = "TLS" in error.why or "it speaks" in error.why or (error.status or 0) not in _ELSEWHERE
    return "" if is_there else spelling.presence
