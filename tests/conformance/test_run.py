"""Running cases: what they share, how each outcome is told, and what a server that goes away leads to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from lmos_actors import ConfigError
from lmos_actors.conformance import ConformOptions, Level, Result, Unreachable, Verdict, all_cases, conform
from lmos_actors.conformance.card import DEVIATIONS, LMOS_LEVELS, ROWS, lmos
from lmos_actors.conformance.scripted import NetworkServer, RequestHead, refusal
from lmos_actors.conformance.session import (
    AS_IN_EXAMPLES,
    AS_KOTLIN,
    AS_WRITTEN,
    Chapter,
    Failed,
    NoAnswer,
    run_case,
)
from lmos_actors.conformance.target import NotOffered, NotRun
from lmos_actors.conformance.wire import ConnectionEnd, ConnectionGone, Unreachable as Nobody
from lmos_actors.transport import MemoryNetwork
from tests.conformance.breaking import HERE, card_of, on_virtual_time, right
from tests.conformance.kotlin import kotlin_card

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lmos_actors.conformance.scripted import Reply
    from lmos_actors.conformance.session import CaseContext

URL = f"http://{HERE.authority}/agents/conformance"


def result_of(
    run: Callable[[CaseContext], Awaitable[None]], *, unsafe: bool = False, **options: Any
) -> Result:
    """Run a case that is no case of the kit."""

    async def main() -> Result:
        network, chapter = MemoryNetwork(), Chapter()
        chapter.case("own.case", "A case", section=lmos("error"), expected="this", unsafe=unsafe)(run)
        async with trio.open_nursery() as nursery:
            await nursery.start(right().run, network, HERE)
            server = await ConformOptions(**options).find(network, URL)
            result = await run_case(server, chapter.cases[0])
            nursery.cancel_scope.cancel()
        return result

    result: Result = on_virtual_time(main)
    return result


def test_a_case_has_what_its_chapter_has_unless_it_gives_more() -> None:
    async def run(context: CaseContext) -> None: ...

    chapter: Chapter[CaseContext] = Chapter(section=lmos("error"), needs="an event")
    chapter.add("own.as-chapter", "A case", run, expected="this")
    chapter.add("own.else", "A case", run, expected="this", section=lmos("event"), needs="")
    found = [(case.section, case.needs) for case in chapter.cases]
    assert found == [(lmos("error"), "an event"), (lmos("event"), "")]
    with pytest.raises(RuntimeError, match=r"neither own\.case nor its chapter has a section"):
        Chapter[Any]().add("own.case", "A case", run, expected="this")


def raising(error: Exception) -> Callable[[CaseContext], Awaitable[None]]:
    async def run(context: CaseContext) -> None:
        raise error

    return run


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (Failed("so"), Verdict.FAILED),
        (NotOffered("so"), Verdict.NOT_OFFERED),
        (NotRun("so"), Verdict.NOT_RUN),
        (NoAnswer("so"), Verdict.FAILED),
        (Nobody("ws://x", "so"), Verdict.FAILED),
        (ConnectionGone(ConnectionEnd(1003, "so")), Verdict.FAILED),
    ],
    ids=lambda each: type(each).__name__,
)
def test_the_reason_for_the_end_of_a_case_is_shown(error: Exception, verdict: Verdict) -> None:
    result = result_of(raising(error))
    assert result.verdict is verdict
    assert "so" in result.seen
    assert result.expected == "this"


def test_what_the_kit_presents_is_in_no_report() -> None:
    async def run(context: CaseContext) -> None:
        await context.session()
        raise Failed("you said s3cret-token, and k3y")

    headers = ((b"Authorization", b"Bearer s3cret-token"), (b"X-Api-Key", b"k3yk3y"), (b"X", b"k3y"))
    result = result_of(run, headers=lambda _: headers)
    assert result.seen == "you said ***, and k3y"
    text = "".join(each.text for each in result.traffic)
    assert "Authorization: …" in text
    assert "X-Api-Key: …" in text
    assert "Sec-WebSocket-Version: 13" in text
    assert "s3cret" not in text


def test_a_mistake_of_the_kit_is_no_verdict() -> None:
    with pytest.raises(BaseExceptionGroup) as caught:
        result_of(raising(KeyError("kit")))
    assert caught.value.subgroup(KeyError) is not None


def test_a_case_that_never_ends_fails() -> None:
    async def run(context: CaseContext) -> None:
        await trio.sleep_forever()

    result = result_of(run)
    assert result.verdict is Verdict.FAILED
    assert "not over after 60 s" in result.seen
    assert result.seconds >= 60


def test_what_is_unsafe_waits_for_permission() -> None:
    async def run(context: CaseContext) -> None:
        return None

    assert result_of(run, unsafe=True).verdict is Verdict.NOT_RUN
    assert "--allow-unsafe" in result_of(run, unsafe=True).seen
    assert result_of(run, unsafe=True, allow_unsafe=True).verdict is Verdict.PASSED


LEVELS = (
    # deviation, at spec, at lenient, at kotlin-wot
    ("id-no-uuid", Verdict.FAILED, Verdict.TOLERATED, Verdict.TOLERATED),
    ("time-number", Verdict.FAILED, Verdict.TOLERATED, Verdict.PASSED),
    ("time-format", Verdict.FAILED, Verdict.FAILED, Verdict.FAILED),
    ("closes-1003", Verdict.FAILED, Verdict.FAILED, Verdict.PASSED),
)


@pytest.mark.parametrize("row", LEVELS, ids=lambda row: row[0])
def test_a_level_decides_what_comes_of_a_departure(row: tuple[str, Verdict, Verdict, Verdict]) -> None:
    key, *verdicts = row

    async def run(context: CaseContext) -> None:
        context.differs(key, "this")
        context.differs(key, "this")

    for level, verdict in zip(LMOS_LEVELS, verdicts, strict=True):
        result = result_of(run, level=level)
        assert result.verdict is verdict, level
        assert [each.key for each in result.departures] == [key]
        assert ("this" in result.seen) == (verdict is not Verdict.PASSED)


def test_deviations_are_written_once() -> None:
    assert len(DEVIATIONS) == len(ROWS)


def test_connections_end_with_their_case() -> None:
    async def main() -> None:
        network, serving = MemoryNetwork(), right()
        async with trio.open_nursery() as nursery:
            await nursery.start(serving.run, network, HERE)
            await conform(network, URL, ConformOptions(cases=("handshake.*",)))
            await trio.sleep(10)
            assert serving.server.connections == []
            nursery.cancel_scope.cancel()

    on_virtual_time(main)


def test_what_went_by_is_kept_and_bounded() -> None:
    async def run(context: CaseContext) -> None:
        session = await context.session()
        for _ in range(150):
            await session.ask("readProperty", name="level")

    result = result_of(run)
    assert len(result.traffic) == 200
    assert result.left_out == 2 + 300 + 1 - 200
    assert result.traffic[-2].text.startswith("{")
    assert all(each.at >= 0 for each in result.traffic)


def test_the_speech_is_found_out() -> None:
    assert card_of(cases=("handshake.accept",)).spoken == str(AS_WRITTEN)
    assert card_of(cases=("handshake.accept",), level=Level.KOTLIN_WOT).spoken == str(AS_KOTLIN)
    kotlin = kotlin_card(Level.LENIENT, cases=("handshake.accept",))
    assert "property, subscribeevent" in kotlin.spoken
    assert AS_IN_EXAMPLES not in (AS_WRITTEN, AS_KOTLIN)


def test_ids_are_patterns() -> None:
    card = card_of(cases=("handshake.acc*", "handshake.accept"))
    assert [result.id for result in card.results] == ["handshake.accept"]
    with pytest.raises(ConfigError, match=r"no case is called 'handshake.acept'; 'handshake.accept' is"):
        ConformOptions(cases=("handshake.acept",))
    for name in ("patience", "idle"):
        wrong: dict[str, Any] = {name: 0}
        with pytest.raises(ConfigError, match=name):
            ConformOptions(**wrong)


def test_nobody_there_is_no_card() -> None:
    async def main() -> None:
        with pytest.raises(Unreachable, match=r"kit\.example"):
            await conform(MemoryNetwork(), URL)

    on_virtual_time(main)


def test_a_server_that_goes_away_is_not_looked_for_in_every_case() -> None:
    async def main() -> None:
        network, results = MemoryNetwork(), list[Result]()
        async with trio.open_nursery() as nursery:
            serving = await nursery.start(_until_cancelled, network)

            def on_result(result: Result) -> None:
                results.append(result)
                if len(results) == 1:
                    serving.cancel()

            card = await conform(network, URL, on_result=on_result)
        assert card.results == tuple(results)
        assert [result.id for result in results] == [case.id for case in all_cases()]
        first, second, *others = results
        assert first.verdict is Verdict.PASSED
        assert second.verdict is Verdict.FAILED
        assert {result.verdict for result in others} <= {Verdict.NOT_RUN}
        assert all(second.id in result.seen for result in others)
        assert not card.passed

    on_virtual_time(main)


class Shut(NetworkServer):
    """Lets nobody in."""

    def refused(self, head: RequestHead) -> Reply | None:
        return refusal(401, "who are you?")


def test_a_server_that_refuses_all_clients_is_reported_once() -> None:
    card = card_of(
        lambda: right(serving=Shut), cases=("handshake.*", "properties.*", "http.read", "events.*")
    )
    told = {result.id: result for result in card.results}
    assert told["handshake.accept"].verdict is told["handshake.headers"].verdict is Verdict.FAILED
    assert told["http.read"].verdict is not Verdict.NOT_RUN  # it needs no WebSocket
    for result in card.results:
        if result.id.startswith(("properties.", "events.")):
            assert result.verdict is Verdict.NOT_RUN
            assert result.seen.startswith("the upgrade was answered with 401; --bearer, ")
            assert result.seen.endswith(", as in handshake.accept")


def test_without_a_case_of_handshakes_the_first_one_fails() -> None:
    card = card_of(lambda: right(serving=Shut), cases=("properties.*",))
    verdicts = [result.verdict for result in card.results]
    assert verdicts[0] is Verdict.FAILED
    assert set(verdicts[1:]) == {Verdict.NOT_RUN}


async def _until_cancelled(
    network: MemoryNetwork, *, task_status: trio.TaskStatus[trio.CancelScope] = trio.TASK_STATUS_IGNORED
) -> None:
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            await nursery.start(right().run, network, HERE)
            task_status.started(scope)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_card() -> None:
    one, other = card_of(seed=5), card_of(seed=5)
    assert one == attrs.evolve(other)
    assert [case.id for case in all_cases()] == [result.id for result in one.results]
