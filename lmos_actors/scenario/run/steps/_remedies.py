"""Remedies for refusals by agents on other nodes, in terms of the keys of the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmos_actors._core import Spelling, refusal_remedy
from lmos_actors.system import credentials_key

if TYPE_CHECKING:
    from lmos_actors.system.model import Bridge, Elsewhere


def remedy_for(entry: Bridge | Elsewhere, error: BaseException) -> str:
    """Return a hint on how to avoid the refusal by an agent on another node; "" if there is none."""
    key = credentials_key(entry)
    credentials = 'give credentials with "bearer: env:NAME", "basic: USER:env:NAME" or "apikey: env:NAME"'
    spelling = Spelling(
        credentials if key is None else f'is "{key}" what it accepts?',
        'show a certificate that it accepts, with "cert: FILE" and "key: FILE"',
        'to trust it, name its authority with "ca: FILE"',
        "its access rules must allow that",
    )
    return refusal_remedy(error, spelling)
