"""The options of the hub of a file."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from .model import RateText, Relay

if TYPE_CHECKING:
    from lmos_actors.facades import RelayOptions


def relay_options(entry: Relay | None) -> RelayOptions:
    """Return the options of the hub of a file, or the defaults for None."""
    from lmos_actors.facades import RelayOptions, Voting  # few files need it

    if entry is None:
        return RelayOptions()
    given: dict[str, Any] = {}
    if entry.rate == "unlimited":
        given["rates"] = ()
    elif entry.rate is not UNSET:
        rates = (entry.rate,) if isinstance(entry.rate, RateText) else entry.rate
        given["rates"] = tuple(rate.limit for rate in rates)
    if entry.max_message is not UNSET:
        given["max_message"] = int(entry.max_message)
    voting = partial(Voting, dict(entry.weights))
    extensions: list[Any] = [voting if each == "voting" else each for each in entry.extensions]
    return RelayOptions(extensions=extensions, broadcasts=entry.broadcasts, **given)
