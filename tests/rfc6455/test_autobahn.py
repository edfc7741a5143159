"""The Autobahn cases against our server and our client, with the short cut for whole text frames and without.

What is over 1 MiB is marked `long`. So is 1 MiB in pieces of 64 bytes and more with a turn for the other end
after each of them; otherwise it has one after each of the first 2000, then after every eighth.
"""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING

import pytest

from lmos_actors.transport import ConnectionOptions
from tests.matrix import few_or_all
from tests.rfc6455.cases import GROUPS, chops, larger
from tests.rfc6455.testees import our_client, our_server
from tests.rfc6455.tester import SPARSELY
from tests.rfc6455.verdicts import INFORMED, STRICT, judged, own_account

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.rfc6455.plan import Case
    from tests.rfc6455.testees import Meeting

ENDS = {"server": our_server, "client": our_client}
ENOUGH = 3  # failures of a group, after which the rest is not tried

both_paths = pytest.mark.parametrize("fast", [True, False], ids=["fast", "wsproto"])
both_ends = pytest.mark.parametrize("end", ENDS)


@pytest.mark.parametrize("group", [group for group in GROUPS if group != "9"])
@both_paths
@both_ends
async def test_every_case_of_a_group_ends_as_it_should(end: str, fast: bool, group: str) -> None:
    await check(end, fast, (case for each in GROUPS[group] for case in each()))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "fast"),
    [
        ("server", True),
        pytest.param("client", True, marks=pytest.mark.matrix),
        pytest.param("server", False, marks=pytest.mark.matrix),
        ("client", False),
    ],
)
async def test_large_messages(end: str, fast: bool) -> None:
    """The group 9, which takes as long as all others."""
    cases = (case for each in GROUPS["9"] for case in each())
    await check(end, fast, islice(cases, 0 if end == "server" else 1, None, few_or_all(5, 1)))


@pytest.mark.long
@pytest.mark.timeout(600)
@both_paths
@both_ends
async def test_what_is_larger_than_1_mib_or_in_the_smallest_pieces(end: str, fast: bool) -> None:
    await check(end, fast, chain(larger(), chops()), every=1)


async def check(end: str, fast: bool, cases: Iterable[Case], every: int = SPARSELY) -> None:
    """Play the cases one after another; say all that is wrong."""
    wrong: list[str] = []
    async with ENDS[end](ConnectionOptions(fast_frames=fast, max_message_bytes=16 << 20), every) as meet:
        for case in cases:
            wrong += [
                f"{case.id} at our {end}, fast_frames={fast}: {why}" for why in await complaints(case, meet)
            ]
            if len(wrong) >= ENOUGH:
                break
    assert not wrong, "\n".join(wrong)


async def complaints(case: Case, meet: Meeting) -> list[str]:
    seen, ended = await meet(case)
    verdict = judged(case, seen)
    if verdict != (INFORMED if case.free else STRICT):
        return [f"{verdict}, {seen.never or shortened(str(seen))}"]
    if ended is None:
        return ["the connection never ended"]
    return [why for why in (own_account(case, seen, ended),) if why]


def shortened(text: str) -> str:
    return text if len(text) < 2000 else f"{text[:1000]} … {text[-1000:]}"
