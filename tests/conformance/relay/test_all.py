"""The kit for relays under test: a right hub passes everything, a wrong one fails what is meant for it."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any
from zlib import crc32

import attrs
import pytest
import trio

from lmos_actors.conformance import (
    Card,
    Level,
    RelayConformOptions,
    Unreachable,
    Verdict,
    all_relay_cases,
    conform,
)
from lmos_actors.conformance.card import DEVIATIONS, RELAY_LEVELS
from lmos_actors.conformance.scripted import SendText
from lmos_actors.errors import ConfigError
from lmos_actors.transport import MemoryNetwork, endpoint_of
from tests.conformance.breaking import ids, on_virtual_time, told
from tests.conformance.relay_faults import FAULTS, NO_FAULTS
from tests.conformance.relay_hub import RAWK, REFERENCE, SEED_DAY, HubPeer, HubServer
from tests.matrix import few_or_all, slow
from tests.source import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = "ws://kit.example:80/arc"
ALL = {case.id for case in all_relay_cases()}
UNSAFE = {case.id for case in all_relay_cases() if case.unsafe}
EXTENSIONS = {case.id for case in all_relay_cases() if case.needs in ("receipts", "presence", "history",
                                                                     "semantic", "voting")}  # fmt: skip
REGISTRATION = {case.id for case in all_relay_cases() if case.needs == "registration"}


def matching(patterns: str) -> set[str]:
    """Return the ids that patterns name."""
    found = {id for id in ALL for pattern in patterns.split() if fnmatchcase(id, pattern)}
    for pattern in patterns.split():
        assert any(fnmatchcase(id, pattern) for id in ALL), pattern
    return found


def judged(
    make: Callable[[], HubServer],
    *,
    level: Level = Level.SPEC,
    allow_unsafe: bool = True,
    on_run: Callable[[HubServer], object] | None = None,
    **options: Any,
) -> Card:
    """Let a hub be judged, and return its card."""

    given = RelayConformOptions(level=level, allow_unsafe=allow_unsafe, **options)

    async def main() -> Card | Exception:
        network = MemoryNetwork()
        async with trio.open_nursery() as nursery:
            server = make()
            await nursery.start(server.run, network, endpoint_of(HERE))
            try:
                found: Card | Exception = await conform(network, HERE, given)
            except (Unreachable, ConfigError) as error:
                found = error
            if on_run is not None:
                on_run(server)
            nursery.cancel_scope.cancel()
        return found

    found = on_virtual_time(main)
    if isinstance(found, Exception):  # by itself, not in a group
        raise found
    assert isinstance(found, Card)
    return found


def card_of(*faults: str, **how: Any) -> Card:
    """Let a hub with some faults be judged, and return its card."""
    return judged(partial(HubServer, *faults), **how)


# ---- right and wrong


# a right hub has the same lines at each level; those of the levels are in the cards of recorded relays below
@pytest.mark.parametrize("level", slow(RELAY_LEVELS, RELAY_LEVELS[1:]), ids=lambda level: level.value)
def test_a_right_hub_passes_everything_at_every_level(level: Level) -> None:
    card = card_of(level=level)
    assert ids(card, Verdict.PASSED) == ALL, told(card)
    assert (card.subject, card.role, card.spoken) == (HERE, "server", "AgentRelay")


@pytest.mark.slow  # its lines: the test above, with another seed
def test_it_passes_whatever_the_seed() -> None:
    for seed in few_or_all((1,), (1, 2, 3)):
        card = card_of(seed=seed)
        assert ids(card, Verdict.PASSED) == ALL, told(card)


@pytest.mark.slow  # its lines: the test above, test_case.py
def test_without_permission_what_may_end_it_is_not_run() -> None:
    card = card_of(allow_unsafe=False)
    assert ids(card, Verdict.NOT_RUN) == UNSAFE
    assert ids(card, Verdict.PASSED) == ALL - UNSAFE, told(card)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_caught_by_its_cases_and_no_others(fault: str) -> None:
    patterns = FAULTS[fault].removesuffix("...")
    meant, turn = matching(patterns), crc32(fault.encode())
    share = few_or_all(60, 1)  # of the other cases, one in so many
    card = card_of(
        fault,
        cases=tuple(
            case.id
            for number, case in enumerate(all_relay_cases())
            if case.id in meant or (number + turn) % share == 0
        ),
    )
    failed = ids(card, Verdict.FAILED)
    if patterns == FAULTS[fault]:
        assert failed == meant, told(card)
    else:
        assert failed >= meant, told(card)


def test_every_case_catches_a_fault_of_its_own() -> None:
    caught = {id for patterns in FAULTS.values() for id in matching(patterns.removesuffix("..."))}
    assert caught == ALL


@pytest.mark.slow  # its lines: a right hub, above
@pytest.mark.parametrize("harmless", NO_FAULTS)
def test_what_a_right_hub_may_do(harmless: str) -> None:
    card = card_of(harmless)
    assert not ids(card, Verdict.FAILED, Verdict.TOLERATED, Verdict.NOT_RUN), told(card)


def test_agents_of_a_hub_without_extensions_and_limits() -> None:
    missing = EXTENSIONS | {"relayrate.limit"}
    card = card_of("no extensions", "no limits", cases=few_or_all((*missing, "relaysend.*"), ()))
    assert ids(card, Verdict.NOT_OFFERED) == missing


# ---- the relays that were recorded

LATER = "relayend.to-* relayend.nesting relayend.register-null"
BREAKS, HABIT, BENDS = "failed failed passed", "failed tolerated passed", "failed tolerated tolerated"

PREDICTED: dict[str, tuple[tuple[str, ...], Level, dict[str, str]]] = {
    # at spec, at lenient, at its own level
    "reference": (
        REFERENCE,
        Level.REFERENCE,
        {
            "relayopen.other-subprotocol relayopen.no-token relayopen.bad-token": HABIT,
            "relayregister.made-up relayregister.taken relayregister.text": HABIT,
            "relayregister.relay": BREAKS,
            "relaysend.repeated relaysend.numbers relaysend.members": HABIT,
            "relayfrom.another relayfrom.relay": HABIT,
            "relayfollow.list relayfollow.once relayfollow.oneself relayfollow.wrong": HABIT,
            "relaycommand.ping relaycommand.unknown": HABIT,
            "relaybad.to-nobody relaybad.to-numbers relaybytes.too-long relayconnection.first-ends": HABIT,
            "relayconnection.second-stays": BREAKS,
            "relayhttp.health relayhttp.names": HABIT,
            "relayrate.limit": "not-offered not-offered not-offered",
            "relayend.null": "failed failed failed",
            LATER: "not-run not-run not-run",
        },
    ),
    "rawk": (
        RAWK,
        Level.RAWK,
        {
            "relayopen.other-subprotocol relayopen.no-token relayopen.bad-token": HABIT,
            "relayregister.made-up relayregister.taken relayregister.text": HABIT,
            "relayregister.relay": BREAKS,
            "relaysend.repeated relaysend.numbers": HABIT,
            "relayfrom.another relayfrom.relay": BREAKS,
            "relayfrom.id-and-ts": HABIT,
            "relayfollow.once relayfollow.oneself relayfollow.direct-to relayfollow.wrong": HABIT,
            "relaycommand.unknown": HABIT,
            "relaybad.to-nobody relaybad.to-numbers relaybytes.too-long relayconnection.first-ends": HABIT,
            "relayconnection.second-stays": BREAKS,
            "relayhttp.names": HABIT,
            "relayrate.limit": "not-offered not-offered not-offered",
            "relayend.null": "failed failed failed",
            LATER: "not-run not-run not-run",
        },
    ),
}


def predicted(name: str, which: int) -> dict[str, Verdict]:
    """Return the verdicts of a recorded relay at one of its levels."""
    found = dict.fromkeys(ALL, Verdict.PASSED) | dict.fromkeys(EXTENSIONS, Verdict.NOT_OFFERED)
    for patterns, verdicts in PREDICTED[name][2].items():
        verdict = Verdict(verdicts.split()[which].replace("-", " "))
        found |= dict.fromkeys(matching(patterns), verdict)
    return found


@pytest.mark.parametrize("which", slow(range(3), (0, 1)))  # at their own level they depart from most
@pytest.mark.parametrize("name", slow(PREDICTED, ("rawk",)))  # its lines: the other, and its broken clients
def test_a_recorded_relay_has_its_card(name: str, which: int) -> None:
    faults, own, _ = PREDICTED[name]
    card = card_of(*faults, level=(Level.SPEC, Level.LENIENT, own)[which])
    assert {each.id: each.verdict for each in card.results} == predicted(name, which), told(card)
    assert card.results[-1].seen == "the server is gone since relayend.null"


SEED = {
    # at spec, at lenient; its agents are known, as it registers none
    "relayopen.other-subprotocol relayopen.no-token relayopen.bad-token": BENDS,
    "relayregister.*": "not-offered not-offered",
    "relaysend.direct relaysend.several relaysend.oneself relaysend.repeated": "failed failed",
    "relaysend.numbers relayfrom.none relayfrom.id-and-ts": BENDS,
    "relayfollow.*": BENDS,
    "relaycommand.ping relaycommand.unknown": BENDS,
    "relaycommand.unheard": "failed failed",
    "relaybad.to-nobody relaybad.to-numbers relaybytes.too-long relayconnection.first-ends": BENDS,
    "relayconnection.second-stays": "failed failed",
    "relayhttp.health relayhttp.names": BENDS,
    "relayrate.limit": "not-offered not-offered",
    "relayend.null": "failed failed",
    LATER: "not-run not-run",
}
"""The card of the relay of the days when the protocol's text was written."""


@pytest.fixture
def known() -> dict[str, str]:
    """Return seven agents and their tokens."""
    return {f"agent-{number}": f"tok_of_agent_{number}" for number in range(7)}


class KnownAgents(HubServer):
    """A hub to which seven agents are known."""

    def __init__(self, *faults: str) -> None:
        super().__init__(*faults)
        self.hub.tokens |= {f"tok_of_agent_{number}": f"agent-{number}" for number in range(7)}


@pytest.mark.slow  # its lines: the recorded relays above, and the faults that it has
@pytest.mark.parametrize("which", range(2))
def test_the_relay_of_the_seed_has_its_card(which: int, known: dict[str, str]) -> None:
    level = (Level.SPEC, Level.LENIENT)[which]
    card = judged(partial(KnownAgents, *SEED_DAY), level=level, agents=known)
    found = dict.fromkeys(ALL, Verdict.PASSED) | dict.fromkeys(EXTENSIONS, Verdict.NOT_OFFERED)
    for patterns, verdicts in SEED.items():
        found |= dict.fromkeys(matching(patterns), Verdict(verdicts.split()[which].replace("-", " ")))
    assert {each.id: each.verdict for each in card.results} == found, told(card)
    assert card.spoken == "AgentRelay, by broadcasts alone"


ENDED = {
    "reference": (REFERENCE, "relayend.null relayend.to-object relayend.nesting relayend.register-null"),
    "rawk": (RAWK, "relayend.null relayend.to-object relayend.nesting"),
}


@pytest.mark.parametrize("name", ENDED)
def test_what_ends_a_recorded_relay(name: str) -> None:
    faults, patterns = ENDED[name]
    level = Level(name)
    for id in sorted(matching("relayend.*")):
        card = card_of(*faults, cases=(id,), level=level)
        assert (ids(card, Verdict.FAILED) == {id}) == (id in matching(patterns)), told(card)


@pytest.mark.slow  # its lines: the recorded relay's card, above
def test_what_a_recorded_relay_does_is_named_at_its_own_level() -> None:
    card = card_of(*RAWK, level=Level.RAWK)
    keys = {each.key for result in card.results for each in result.departures}
    habits = {key for key, row in DEVIATIONS.items() if Level.RAWK in row.habit_of}
    assert keys == habits


# ---- registration, known agents and invitations


@pytest.mark.slow  # its lines: the relay of the seed, above
def test_known_agents_stand_in_for_registration(known: dict[str, str]) -> None:
    asked = few_or_all(matching("relaysend.* relayfollow.* relayregister.*"), ALL)
    card = judged(partial(KnownAgents, "no registration"), agents=known, cases=tuple(asked))
    assert ids(card, Verdict.NOT_OFFERED) == asked & REGISTRATION
    assert ids(card, Verdict.PASSED) == asked - REGISTRATION, told(card)
    assert "tok_of_agent" not in str(card)


def test_with_few_known_agents_what_needs_more_is_not_run(known: dict[str, str]) -> None:
    few = dict(tuple(known.items())[:3])
    card = judged(partial(KnownAgents, "no registration"), agents=few)
    assert ids(card, Verdict.NOT_RUN) == matching(
        "relayfollow.* relayconnection.second-stays relaypresence.both relayrate.limit"
    ), told(card)
    assert not ids(card, Verdict.FAILED)


class ByInvitation(HubServer):
    """A hub on which agents register by an invitation, each good once."""

    def __init__(self, *faults: str) -> None:
        super().__init__(*faults)
        self.left = {f"invitation {number}" for number in range(9)}
        hub, register = self.hub, self.hub.register

        def invited(body: bytes) -> Any:
            word = json.loads(body).get("invitation")
            if word not in self.left:
                return hub._no("not_allowed", 403)
            self.left.remove(word)
            return register(body)

        hub.register = invited  # type: ignore[method-assign]


def test_agents_register_by_invitations() -> None:
    left: list[int] = []
    words = tuple(f"invitation {number}" for number in range(9))
    asked = few_or_all(matching("relaysend.* relayregister.*"), ALL)
    card = judged(
        ByInvitation,
        invitations=words,
        on_run=lambda server: left.append(len(server.left)),  # type: ignore[attr-defined]
        cases=tuple(asked),
    )
    assert ids(card, Verdict.NOT_OFFERED) == asked & REGISTRATION
    assert ids(card, Verdict.PASSED) == asked - REGISTRATION, told(card)
    assert left == [few_or_all(6, 2)]  # all cases need seven agents
    assert not any(word in str(card) for word in words)
    with pytest.raises(Unreachable, match=r"not registered \(403 not_allowed\).*--invitation"):
        judged(ByInvitation)


def test_where_agents_are_registered_may_be_elsewhere() -> None:
    class Elsewhere(HubServer):
        def on_http(self, head: Any, body: bytes) -> Any:
            if head.path == "/register":
                return super().on_http(attrs.evolve(head, target="/nowhere"), body)
            if head.path == "/elsewhere":
                return super().on_http(attrs.evolve(head, target="/register"), body)
            return super().on_http(head, body)

    asked = few_or_all(matching("relaysend.* relayregister.*"), ALL)
    card = judged(Elsewhere, register_url="http://kit.example:80/elsewhere", cases=tuple(asked))
    assert ids(card, Verdict.PASSED) == asked, told(card)
    with pytest.raises(Unreachable, match="--register-url"):
        judged(Elsewhere)


def test_bad_options() -> None:
    with pytest.raises(
        ConfigError, match=r"no case is called 'relaysend.brodcast'; 'relaysend.broadcast' is"
    ):
        RelayConformOptions(cases=("relaysend.brodcast",))
    with pytest.raises(ConfigError, match='"kotlin-wot" is a level for LMOS; relays are judged by spec'):
        RelayConformOptions(level=Level.KOTLIN_WOT)
    with pytest.raises(ConfigError, match="idle must be above 0"):
        RelayConformOptions(idle=0)


# ---- hubs that go away, that are not there, that hang, that flood


def test_a_hub_that_goes_away_is_not_tried_further() -> None:
    class Dies(HubServer):
        count = 0

        async def _serve(self, stream: trio.abc.Stream, peer: str) -> None:
            self.count += 1
            self.hub.is_gone = self.count > 60
            await super()._serve(stream, peer)

    card = judged(Dies)
    assert len(ids(card, Verdict.FAILED)) == 1
    last = card.results[-1]
    assert (last.verdict, last.seen.startswith("the server is gone since")) == (Verdict.NOT_RUN, True)


def test_where_there_is_no_hub() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        with pytest.raises(Unreachable):
            await conform(network, "ws://nobody:80/arc", RelayConformOptions())
        async with trio.open_nursery() as nursery:
            await nursery.start(HubServer().run, network, endpoint_of(HERE))
            with pytest.raises(Unreachable, match="404"):
                await conform(network, "ws://kit.example:80/elsewhere", RelayConformOptions())
            nursery.cancel_scope.cancel()

    on_virtual_time(main)


def test_a_hub_that_says_nothing_is_judged_to_the_end() -> None:
    class Mute(HubPeer):
        def send(self, frame: Any) -> None:
            pass

    card = judged(partial(OddServer, Mute))
    assert len(card.results) == len(ALL)
    assert ids(card, Verdict.FAILED) > matching("relaysend.* relaycommand.ping"), told(card)


def test_a_hub_that_never_answers_a_request_is_not_reached() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        listener = await network.listen(endpoint_of(HERE))
        with pytest.raises(Unreachable, match="2 s"):
            await conform(network, HERE, RelayConformOptions())
        await listener.aclose()

    on_virtual_time(main)


def test_a_hub_that_floods_is_judged_to_the_end() -> None:
    class Floods(HubPeer):
        def send(self, frame: Any) -> None:
            super().send(frame)
            if frame.get("from") != "flood":
                for _ in range(300):
                    super().send(
                        {"id": self.hub.new_id(), "from": "flood", "to": ["*"], "payload": "x" * 200}
                    )

    cases = ("relaysend.broadcast", "relaycommand.ping", "relaybad.json")
    card = judged(partial(OddServer, Floods), cases=cases)
    assert ids(card, Verdict.PASSED) == set(cases), told(card)


class OddServer(HubServer):
    """A hub whose connections are of a class."""

    def __init__(self, peer: type[HubPeer], *faults: str) -> None:
        super().__init__(*faults)
        self.peer_class = peer


@pytest.mark.slow
def test_no_hub_is_so_odd_that_the_kit_fails() -> None:
    """Frames whose members are of every type, in every case; what is odd is a failure of the hub."""
    odd = [None, 5, "text", [], [1], {}, {"code": []}, {"agents": 1}, True, -1.5, "x" * 5_000]

    def made(seed: int) -> Callable[[], HubServer]:
        random = Random(seed)

        class Odd(HubPeer):
            def send(self, frame: Any) -> None:
                frame = dict(frame)
                for name in frame:
                    if random.random() < 0.1:
                        frame[name] = random.choice(odd)
                payload = frame.get("payload")
                if isinstance(payload, dict) and random.random() < 0.5:
                    frame["payload"] = {name: random.choice(odd) for name in payload}
                text = json.dumps(random.choice(odd) if random.random() < 0.02 else frame)
                self.put(SendText("{oops" if random.random() < 0.01 else text))

        return partial(OddServer, Odd)

    for seed in range(few_or_all(4, 20)):
        try:
            card = judged(made(seed))
        except Unreachable:
            continue
        assert len(card.results) == len(ALL)


# ---- the documentation

COLUMNS = {"reference": REFERENCE, "rawk": RAWK, "seed's day": SEED_DAY}


@pytest.mark.slow  # its lines: the same models have their cards above
@pytest.mark.parametrize("column", COLUMNS)
def test_the_documented_cards_are_those_of_the_models(column: str, known: dict[str, str]) -> None:
    page = (ROOT / "docs" / "reference" / "conformance.md").read_text("utf-8")
    text = page.partition("### Cards of recorded relays")[2].partition("\n##")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if "|" in line
    ]
    place = rows[0].index(column)
    documented = {row[0].strip("`"): (row[1], row[place]) for row in rows[2:]}
    how: dict[str, Any] = {"agents": known} if column == "seed's day" else {}
    make, levels = partial(KnownAgents, *COLUMNS[column]), {"level": Level.LENIENT}
    found = {each.id: each for each in judged(make, **levels, **how).results}
    for id in matching("relayend.*"):
        found[id] = judged(make, cases=(id,), **levels, **how).results[0]
    for id in ALL - EXTENSIONS - {"relayrate.limit"} - (REGISTRATION if how else set()):
        keys, verdict = documented.get(id, ("", ""))
        assert (verdict or "passed") == found[id].verdict.value, id
        assert all(f"`{each.key}`" in keys for each in found[id].departures), id
