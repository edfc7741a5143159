"""Values marked secret never show, wherever a value of the same kind would: a canary is sent everywhere."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

import attrs
import msgspec
import pytest
import trio
from hypothesis import given, strategies as st

from lmos_actors import (
    ActionFailed,
    Agent,
    AgentDied,
    ChildSpec,
    Event,
    InvalidInput,
    LogInstrument,
    Progress,
    Property,
    Secret,
    StartFailed,
    SupervisorSpec,
    TraceLog,
    action,
    event,
    prop,
)
from lmos_actors.actors import conceal, shape_of
from lmos_actors.actors.values import Secrets, record_of, secrecy_of
from lmos_actors.simulation import VirtualClock
from lmos_actors.testing import open_test_node, settle
from tests.actors import crashing

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmos_actors import Node, Ref

CANARY = "canary-4711-bird"


class Login(msgspec.Struct, frozen=True):
    user: str
    token: Secret[str]


@dataclass(frozen=True)
class Card:
    owner: str
    pin: Secret[int]


@attrs.frozen
class Key:
    name: str
    raw: Secret[bytes]
    quiet: str = attrs.field(default="", repr=False)


class Pair(NamedTuple):
    left: str
    right: Secret[str]


class Form(TypedDict):
    user: str
    password: Secret[str]


class Vault(Agent):
    """Takes a secret by every door, and can fail at each."""

    token: Secret[str] = "nothing yet"
    password: Property[Secret[str]] = prop(default="none")
    login: Property[Login | None] = prop(default=None)
    opened: Event[Secret[str]] = event()
    entered: Event[Login] = event()

    def _keep(self, key: str, how: str) -> str:
        self.token = key
        if how == "fail":
            raise ActionFailed(f"no such key: {key}")
        if how == "crash":
            raise ValueError(f"no such key: {key}")
        return key

    @action
    def turn(self, key: Secret[str], how: str = "") -> Secret[str]:
        return self._keep(key, how)

    @action
    async def run(self, key: Secret[str], how: str = "") -> Secret[str]:
        await trio.lowlevel.checkpoint()
        return self._keep(key, how)

    @action
    async def slow(self, progress: Progress[Secret[str]], key: Secret[str]) -> Login:
        progress.report(key)
        await trio.sleep(10)
        return Login("ada", key)

    @action
    async def items(self, key: Secret[str], how: str = "") -> AsyncIterator[Secret[str]]:
        yield key
        self._keep(key, how)

    @action
    def record(self, login: Login, how: str = "") -> Login:
        self._keep(login.token, how)
        return login

    @action
    def tell_all(self, key: Secret[str]) -> None:
        self.opened.emit(key)
        self.entered.emit(Login("ada", key))

    @action
    def later(self, key: Secret[str]) -> None:
        self.after(1, self.on_time, key)

    def on_time(self, key: Secret[str]) -> None:
        self._keep(key, "crash")

    @action
    def exact(self, number: Secret[int]) -> int:
        return number

    @action
    def wrong(self, key: Secret[str]) -> Secret[int]:
        return key  # type: ignore[return-value]


class Follower(Agent):
    def started(self) -> None:
        self.follow(self.find(Vault), Vault.opened, self.on_opened)

    def on_opened(self, key: str) -> None:
        raise KeyError(key)


class Sender(Agent):
    """Its turns send the secret on."""

    @action
    def pass_on(self, key: Secret[str], how: str) -> None:
        self.send(self.find(Vault), Vault.turn, key, how)
        self.send(self.find(Vault), Vault.run, key, how)


async def every_verb(node: Node, vault: Ref[Vault]) -> None:
    """Use all verbs with the canary, some of them so that the agent dies of it."""
    await vault.invoke(Vault.turn, CANARY)
    await vault.invoke(Vault.run, key=CANARY)
    await vault.invoke(Vault.record, Login("ada", CANARY))
    await vault.write(Vault.password, CANARY)
    await vault.write(Vault.login, Login("ada", CANARY))
    await vault.write_many(Vault.password.to(CANARY))
    await vault.read(Vault.password)
    await vault.read_all()
    await vault.tell(Vault.turn, CANARY)
    await vault.tell(Vault.run, CANARY)
    async with vault.stream(Vault.items, CANARY) as items:
        assert [item async for item in items] == [CANARY]
    async with vault.begin(Vault.slow, CANARY) as call:
        await call.result()
    async with vault.subscribe(Vault.opened) as feed:
        await vault.invoke(Vault.tell_all, CANARY)
        assert await feed.receive() == CANARY
    for how in ("fail", "crash"):
        for handle in (Vault.turn, Vault.run, Vault.record):
            given: Any = Login("ada", CANARY) if handle is Vault.record else CANARY
            with pytest.raises((ActionFailed, AgentDied)) as caught:
                await vault.invoke(handle, given, how)
            assert how == "fail" or CANARY not in str(caught.value)
            await vault.ready()
            await vault.tell(handle, given, how)
            await vault.tell(handle, given, "")
            await settle()
            await vault.ready()
    async with vault.stream(Vault.items, CANARY, "crash") as items:
        assert await anext(items) == CANARY
        with pytest.raises(AgentDied):
            await anext(items)
    await vault.ready()
    await vault.invoke(Vault.later, CANARY)
    await trio.sleep(2)
    with pytest.raises(AgentDied):
        await vault.invoke(Vault.wrong, CANARY)
    await vault.ready()
    await (await node.start(Sender)).tell(Sender.pass_on, CANARY, "crash")
    await settle()
    await trio.sleep(1)


TREE = SupervisorSpec("root", (ChildSpec("vault", Vault),), max_restarts=1000)


def surfaces(node: Node) -> list[str]:
    """All texts of a node in which a value may stand."""
    return [
        *(str(report) for report in node.crash_reports),
        *(repr(report) for report in node.crash_reports),
        *(repr(report.data()) for report in node.crash_reports),
        *(repr(letter) for letter in node.dead_letters),
        node.dump(),
        node.tree(),
        *(repr(ref) for ref in node.agents()),
    ]


@pytest.mark.parametrize("traced", [False, True])
async def test_no_surface_shows_a_secret(traced: bool, virtual_clock) -> None:
    log = TraceLog()
    async with open_test_node(TREE, instrument=log if traced else None) as node:
        vault = node.find(Vault)
        await every_verb(node, vault)
        texts = surfaces(node)
        assert len(node.crash_reports) >= 7
        counts = vault.statistics()
        out = counts.handled + counts.cancelled + counts.dropped + counts.dead_lettered
        assert counts.accepted == out + counts.waiting + counts.running
    assert len(log) > 50 or not traced
    assert [text for text in (*texts, *log.lines()) if CANARY in text] == []
    assert any(HIDDEN in text for text in texts)


async def test_a_waiting_secret_lost_with_its_agent_is_hidden_in_the_dead_letter(virtual_clock) -> None:
    async with open_test_node(TREE) as node:
        vault = node.find(Vault)
        await vault.ready()
        vault.tell_nowait(Vault.turn, CANARY, "crash")
        vault.tell_nowait(Vault.turn, CANARY)
        vault.tell_nowait(Vault.record, Login("ada", CANARY))
        await settle()
        turn, record = node.dead_letters
    assert (turn.affordance, turn.message) == ("turn", "('***', '')")
    assert turn.reason == "ValueError: no such key: ***"
    assert record.message == "({'user': 'ada', 'token': '***'}, '')"


async def test_a_secret_sent_to_an_agent_that_is_not_there_yet_is_hidden(virtual_clock) -> None:
    class Early(Agent):
        def started(self) -> None:
            self.send(self.find(Vault, "late"), Vault.turn, CANARY)
            self.send(self.find(Vault, "late"), Vault.record, {"user": "ada", "token": CANARY})  # type: ignore[arg-type]

    tree = SupervisorSpec("root", (ChildSpec("early", Early), ChildSpec("late", Vault)))
    async with open_test_node(tree) as node:
        assert [letter.message for letter in node.dead_letters] == ["('***',)"] * 2


async def test_a_follower_of_a_secret_event_dies_without_telling_it(virtual_clock) -> None:
    async with open_test_node(SupervisorSpec("root", (ChildSpec("vault", Vault),), max_restarts=9)) as node:
        await node.start(Follower)
        await node.find(Vault).invoke(Vault.tell_all, CANARY)
        await settle()
        (report,) = node.crash_reports
        assert report.data()["message"]["arguments"] == {"key": "***"}
        assert report.data()["reason"] == "KeyError: '***'"
        assert CANARY not in str(report)


async def test_the_own_values_go_where_they_are_meant_to(virtual_clock) -> None:
    async with open_test_node(TREE) as node:
        vault = node.find(Vault)
        assert await vault.invoke(Vault.turn, CANARY) == CANARY
        await vault.write(Vault.password, CANARY)
        assert await vault.read(Vault.password) == CANARY
        assert (await vault.invoke(Vault.record, Login("ada", CANARY))).token == CANARY


# ---- refusals


class Ring(msgspec.Struct):
    keys: Secret[dict[str, int]]


class Picky(msgspec.Struct, frozen=True):
    token: Secret[str]

    def __post_init__(self) -> None:
        raise ValueError(f"bad token {self.token}")


@pytest.mark.parametrize(
    ("tp", "value"),
    [
        (Secret[int], CANARY),
        (Secret[dict[str, int]], {CANARY: "x"}),
        (list[Secret[int]], [CANARY]),
        (Secret[Form], {"user": 1, CANARY: 2}),
        (Form, {"user": "ada", "password": {CANARY: 1}}),
        (Login, {"user": "ada", "token": [CANARY]}),
        (Card, {"owner": "ada", "pin": CANARY}),
        (Pair, ["ada", {CANARY: 1}]),
        (Ring, {"keys": {CANARY: "x"}}),
        (Picky, {"token": CANARY}),
        (tuple[Login, ...], [{"user": "ada", "token": {CANARY: 0}}]),
    ],
)
def test_a_refusal_does_not_quote_a_secret(tp: Any, value: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        shape_of(tp).take(value)
    assert CANARY not in str(caught.value)
    assert caught.value.__context__ is None or CANARY not in str(caught.value.__context__)


def test_a_refusal_of_what_is_not_secret_says_as_much_as_ever() -> None:
    with pytest.raises(InvalidInput, match=r"Expected `str`, got `int` - at \$\.user"):
        shape_of(Login).take({"user": 1, "token": CANARY})


async def test_refused_arguments_are_not_quoted(virtual_clock) -> None:
    async with open_test_node(TREE) as node:
        with pytest.raises(InvalidInput, match=r"secret - at \$\.number") as caught:
            await node.find(Vault).invoke(Vault.exact, CANARY)  # type: ignore[arg-type]
    assert CANARY not in str(caught.value)


async def test_a_factory_that_refuses_a_secret_does_not_tell_it(virtual_clock) -> None:
    class Locked(Agent):
        token: Secret[str]

        def __attrs_post_init__(self) -> None:
            raise ValueError(f"too weak: {self.token}")

    async with open_test_node() as node:
        with pytest.raises(StartFailed, match=r"locked could not start: too weak: \*\*\*$"):
            await node.start(Locked, token=CANARY)
        assert CANARY not in str(node.crash_reports[0])
        assert node.crash_reports[0].data()["state"] == {"token": "***"}


# ---- how types say it

HOW_SECRET: list[tuple[Any, int]] = [
    (int, 0),
    (Secret[str], 3),
    (Secret[str] | None, 3),
    (list[Secret[str]], 3),
    (dict[str, Secret[str]], 3),
    (Form, 3),
    (Login, 1),
    (list[Login], 1),
    (Card, 1),
    (Key, 1),
    (Pair, 1),
    ("Elsewhere", 2),
]


@pytest.mark.parametrize(("tp", "secrecy"), HOW_SECRET)
def test_a_type_says_how_secret_its_values_are(tp: Any, secrecy: int) -> None:
    assert secrecy_of(tp) == secrecy


def test_fields_are_read_through_bases_aliases_and_text() -> None:
    alias = Secret[str]

    class Base(Agent):
        one: Secret[str] = ""

    class Sub(Base):
        two: alias = ""
        three: int = 0
        four: str = attrs.field(default="", repr=False)
        five: Unknown = None  # type: ignore[name-defined]  # noqa: F821

    assert Sub.__contract__.hidden == {"one": 3, "two": 3, "four": 3, "five": 2}
    assert Sub.__contract__.guarded


def test_a_class_without_secrets_is_not_searched() -> None:
    class Open(Agent):
        name: str = ""

        @action
        def greet(self, name: str) -> str:
            return name

    assert not Open.__contract__.guarded
    assert Open.__contract__.table["greet"].secrecies is None


def test_an_agent_is_no_record() -> None:
    assert record_of(Vault) is None


# ---- what is shown instead

LIMIT = 512
HIDDEN = "***"
"""Characters of one value in a report."""


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (Login("ada", CANARY), "Login(user='ada', token=***)"),
        (Card("ada", 999_999), "Card(owner='ada', pin=***)"),
        (Key("k", CANARY.encode(), CANARY), "Key(name='k', raw=***, quiet=***)"),
        (Pair("l", CANARY), "Pair(left='l', right=***)"),
        ({"a": [Login("ada", CANARY)]}, "{'a': [Login(user='ada', token=***)]}"),
    ],
)
def test_the_secret_fields_of_a_value_are_hidden(value: Any, shown: str) -> None:
    secrets = Secrets()
    secrets.look(value)
    assert secrets.clean(f"a {CANARY}", LIMIT) == ("a ***" if CANARY in repr(value) else f"a {CANARY}")
    assert crashing.shown(value) == shown
    assert CANARY not in repr(conceal(value, 1))


FORMS: list[Callable[[str], str]] = [str, repr, ascii, lambda s: msgspec.json.encode(s).decode()]


@pytest.mark.slow  # its lines: test_hiding.py
@given(
    secret=st.text(st.characters(exclude_categories=["Cs"]), min_size=4, max_size=40),
    before=st.text(max_size=LIMIT + 10),
    after=st.text(max_size=40),
    form=st.sampled_from(FORMS),
)
def test_a_secret_is_found_in_any_text(
    secret: str, before: str, after: str, form: Callable[[str], str]
) -> None:
    secrets = Secrets()
    secrets.look(secret, 3)
    cleaned = secrets.clean(before + form(secret) + after, LIMIT)
    assert len(cleaned) <= LIMIT + 3
    assert secret not in cleaned or secret in before + HIDDEN + after


@given(cut=st.integers(min_value=0, max_value=30), many=st.integers(min_value=0, max_value=60))
def test_no_part_of_a_secret_is_left_at_the_edge(cut: int, many: int) -> None:
    secret = "abcdefghijklmnopqrstuvwxyz"
    secrets = Secrets()
    secrets.look(secret, 3)
    cleaned = secrets.clean(secret * many + "-" * (LIMIT - cut) + secret + secret, LIMIT)
    assert "abcd" not in cleaned
    assert len(cleaned) <= LIMIT + 3


def test_a_very_long_secret_is_hidden_with_all_that_follows() -> None:
    secrets = Secrets()
    secrets.look("x" * 100_000 + "tail", 3)
    assert secrets.clean("see " + "x" * 100_000 + "tail", LIMIT) == "see ***"


def test_where_more_is_to_be_looked_for_than_can_be_nothing_is_shown() -> None:
    secrets = Secrets()
    secrets.look([f"secret {n}" for n in range(1000)], 3)
    assert secrets.clean("secret 999", LIMIT) == HIDDEN


@pytest.mark.parametrize("value", [4711, CANARY.encode(), {"k": [CANARY]}, Login("a", CANARY), 12.75])
def test_a_secret_of_any_kind_is_found(value: Any) -> None:
    secrets = Secrets()
    secrets.look(value, 3)
    text = f"{4711 if value == 4711 else 12.75 if value == 12.75 else CANARY} was refused"
    assert secrets.clean(text, LIMIT) == "*** was refused"


def test_the_log_of_records_shows_none(capsys: pytest.CaptureFixture[str]) -> None:
    async def main() -> None:
        async with open_test_node(TREE, instrument=LogInstrument()) as node:
            await every_verb(node, node.find(Vault))

    trio.run(main, clock=VirtualClock())
    shown = capsys.readouterr()
    assert "crashed" in shown.out
    assert CANARY not in shown.out + shown.err
