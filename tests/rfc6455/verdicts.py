"""What the suite would say of what was seen, and what the end under test should have said of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from lmos_actors.transport import Ended
    from tests.rfc6455.plan import Case
    from tests.rfc6455.tester import Seen

OK: Final = "OK"
NON_STRICT: Final = "NON-STRICT"
INFORMATIONAL: Final = "INFORMATIONAL"
FAILED: Final = "FAILED"
WRONG_CODE: Final = "WRONG CODE"
UNCLEAN: Final = "UNCLEAN"
FAILED_BY_CLIENT: Final = "FAILED BY CLIENT"


@attrs.frozen
class Verdict:
    """The suite's two words, of behaviour and of the close."""

    behaviour: str
    close: str


STRICT: Final = Verdict(OK, OK)
INFORMED: Final = Verdict(INFORMATIONAL, INFORMATIONAL)


def judged(case: Case, seen: Seen) -> Verdict:
    """Judge as the suite does; what no end may do, and an end without any Close, is a failure here too."""
    if seen.never:
        return Verdict(FAILED, FAILED)
    if case.free:
        return INFORMED
    return Verdict(_behaviour(case, seen), _close(case, seen))


def _behaviour(case: Case, seen: Seen) -> str:
    heard = tuple(seen.heard)
    if heard == case.strict:
        return OK
    return NON_STRICT if heard == case.lenient else FAILED


def _close(case: Case, seen: Seen) -> str:
    ending = case.ending
    if seen.first != ending.by:
        return FAILED
    if seen.answered is None or seen.said is None:
        return UNCLEAN
    if code_of(seen.answered) not in ending.codes:
        return WRONG_CODE
    return OK if seen.ended else FAILED_BY_CLIENT


def code_of(payload: bytes) -> int | None:
    """The code of a Close; None if it has none."""
    return int.from_bytes(payload[:2], "big") if payload else None


def own_account(case: Case, seen: Seen, ended: Ended) -> str:
    """What is wrong in what the end under test says of how it ended; empty if nothing is."""
    is_clean = case.ending.clean
    code = code_of((seen.said if is_clean else seen.answered) or b"")
    wanted = ("peer" if is_clean else "us", 1005 if code is None else code, is_clean)
    found = (ended.by, ended.code, ended.clean)
    return "" if found == wanted else f"it says that it ended so: {found}, not {wanted}"
