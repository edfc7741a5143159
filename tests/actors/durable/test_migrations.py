"""Stored facts of old versions: migrated step by step, or refused with an error that names what to do."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import attrs
import pytest

from lmos_actors import Agent, ChildSpec, StartFailed, action, open_node
from lmos_actors.errors import StateMismatch
from lmos_actors.persistence import MemoryStore, Put

TITLE = "bank:Account"


def stored(*facts: tuple[int, dict[str, Any]], version: int = 1, **fields: Any) -> MemoryStore:
    """Return a store with the state of `account`, and facts with their versions after it."""
    state = {"class": TITLE, "version": version, "at": 1.7e9, "fields": fields, "journal": True}
    writes = [Put("state", "account", json.dumps(state).encode())]
    for number, (of_version, fact) in enumerate(facts, 1):
        record = json.dumps({"version": of_version, "fact": fact}).encode()
        writes.append(Put("journal", f"account\x00{number:016x}", record))
    store = MemoryStore()
    store.open()
    store.commit([writes], "process")
    store.close()
    return store


# Version 1 counted in euros, and Refunded was Paid with an amount below 0. Version 2 counted in cents.
SAMPLE = stored(
    (1, {"is": "Paid", "amount": 5}),
    (1, {"is": "Paid", "amount": -2}),
    (2, {"is": "Paid", "amount": 25}),
    (3, {"is": "Charged", "cents": 7}),
    balance=10,
)


def state_in_cents(state: dict[str, Any]) -> dict[str, Any]:
    return {"balance": state["balance"] * 100}


def fact_in_cents(fact: dict[str, Any]) -> dict[str, Any]:
    return {**fact, "amount": fact["amount"] * 100}


def with_refunds(fact: dict[str, Any]) -> dict[str, Any]:
    amount = fact["amount"]
    return {"is": "Charged" if amount > 0 else "Refund", "cents": abs(amount)}


def unchanged(plain: dict[str, Any]) -> dict[str, Any]:
    return plain


def failing(fact: dict[str, Any]) -> dict[str, Any]:
    return {"cents": fact["amuont"]}


@attrs.frozen
class Charged:
    cents: int


@attrs.frozen
class Refunded:
    formerly: ClassVar = ("Refund",)
    cents: int


def account(**members: Any) -> type[Agent]:
    """Return version 3 of the account, with some members in the place of its own."""

    class Account(Agent, durable="journal", snapshot_every=100, formerly=(TITLE,)):
        state_version = members.get("state_version", 3)
        state_migrations: ClassVar = members.get("state_migrations", {1: state_in_cents, 2: unchanged})
        fact_migrations: ClassVar = members.get("fact_migrations", {1: fact_in_cents, 2: with_refunds})
        balance: int = 0

        def apply(self, fact: Charged | Refunded) -> None:
            if fact.cents == 25 and members.get("apply_fails"):
                raise KeyError("no such account")
            self.balance += fact.cents if isinstance(fact, Charged) else -fact.cents

        @action
        def refund(self, cents: int) -> int:
            self.record(Refunded(cents))
            return self.balance

        @action
        def get(self) -> int:
            return self.balance

    return Account


async def test_facts_of_old_versions_are_migrated_step_by_step(autojump_clock: object) -> None:
    for restart in (False, True):
        cls: Any = account()
        async with open_node(store=SAMPLE) as node:
            ref = await node.start_child(ChildSpec("account", cls))
            balance = 1000 + 500 - 200 + 25 + 7
            assert await ref.invoke(cls.get) == balance - restart
            assert await ref.invoke(cls.refund, 1) == balance - restart - 1


@pytest.mark.parametrize(
    ("store", "members", "why"),
    [
        (
            stored((1, {"is": "Paid", "amount": 5}), balance=1),
            {"fact_migrations": {1: failing, 2: unchanged}},
            r"fact 1 of its journal is of version 1 of Account, and the migration from that version raised "
            r"KeyError: 'amuont' at .*test_migrations\.py:\d+ in failing",
        ),
        (
            stored(balance=1),
            {"state_migrations": {1: failing, 2: unchanged}},
            r"it is of version 1 of .*Account, and the migration .* raised KeyError: .* in failing",
        ),
        (
            stored((1, {"is": "Paid", "amount": 5}), balance=1),
            {"fact_migrations": {1: lambda fact: None, 2: unchanged}},
            "fact 1 of its journal: the migration of Account from version 1 returned None, and no dict",
        ),
        (
            stored((1, {"is": "Paid", "amount": 5}), version=3, balance=1),
            {"state_migrations": {2: unchanged}, "fact_migrations": {2: with_refunds}},
            "fact 1 .* is of version 1 of Account, which has no migration from that version",
        ),
        (
            stored((4, {"is": "Charged", "cents": 5}), version=3, balance=1),
            {},
            "fact 1 of its journal was written by version 4 of Account, and this is version 3",
        ),
        (
            stored((3, {"is": "Charged", "cents": 5}), (3, {"is": "Charge", "cents": 5}), version=3),
            {},
            r"fact 2 of its journal is a Charge, and Account\.apply takes Charged, Refunded; if the class "
            r"was renamed, say formerly: ClassVar = \('Charge',\) in it",
        ),
        (
            stored((3, {"is": "Charged", "cents": "5"}), version=3),
            {},
            "fact 1 of its journal, a Charged: .*expected int, not str.*cents; raise state_version",
        ),
        (
            stored((3, {"is": "Charged", "cents": 25}), version=3),
            {"apply_fails": True},
            r"Account\.apply raised KeyError: 'no such account' at .*test_migrations\.py:\d+ in apply for "
            r"fact 1 of its journal, Charged\(cents=25\)",
        ),
    ],
)
async def test_what_cannot_be_migrated_names_fact_version_class_and_line(
    store: MemoryStore, members: dict[str, Any], why: str, autojump_clock: object
) -> None:
    async with open_node(store=store) as node:
        with pytest.raises(StartFailed, match=f"account could not start: .*'account' .*: {why}") as failed:
            await node.start_child(ChildSpec("account", account(**members)))
        assert isinstance(failed.value.__cause__, StateMismatch)


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ({"fact_migrations": {1: unchanged}}, "fact_migrations: the step from version 2 is missing"),
        ({"fact_migrations": {2: unchanged}}, "need the same steps, and one of them has none from version 1"),
        ({"fact_migrations": {}}, "where nothing has changed, a function returns its argument"),
        ({"fact_migrations": {3: unchanged}}, r"fact_migrations: 3 must be a version before state_version"),
        ({"fact_migrations": [unchanged]}, "fact_migrations must be a dict of functions"),
    ],
)
def test_migrations_of_facts_that_cannot_be(members: dict[str, Any], why: str) -> None:
    with pytest.raises(TypeError, match=f"Account.*{why}"):
        account(**members)


def test_a_class_without_a_journal_migrates_no_facts() -> None:
    with pytest.raises(TypeError, match="fact_migrations goes with durable='journal'"):

        class Bad(Agent, durable=True):
            state_version = 2
            fact_migrations: ClassVar = {1: unchanged}


@attrs.frozen
class Renamed:
    formerly: ClassVar = ("Charged",)
    cents: int


def test_former_names_of_facts_are_no_names_of_others() -> None:
    with pytest.raises(TypeError, match="two classes of its facts have one name: Charged, Renamed, Charged"):

        class Bad(Agent, durable="journal"):
            def apply(self, fact: Charged | Renamed) -> None: ...


async def test_a_journal_names_its_class_from_the_first_fact_on(autojump_clock: object) -> None:
    store, cls = MemoryStore(), account()

    class Other(Agent, durable="journal"):
        def apply(self, fact: Charged | Refunded) -> None: ...

    class Plain(Agent, durable=True, formerly=(f"{cls.__module__}:{cls.__qualname__}",)):
        state_version = 3
        balance: int = 0

        @action
        def get(self) -> int:
            return self.balance

    of_account: Any = cls
    async with open_node(store=store) as node:
        ref = await node.start_child(ChildSpec("account", of_account))
        await ref.invoke(of_account.refund, 3)
    async with open_node(store=store) as node:
        with pytest.raises(StartFailed, match=r"it is that of .*Account, and .*Other is to start there"):
            await node.start_child(ChildSpec("account", Other))
        with pytest.raises(StartFailed, match=r"it has a journal, and .*Plain keeps none; it needs durable="):
            await node.start_child(ChildSpec("account", Plain))
        ref = await node.start_child(ChildSpec("account", of_account))
        assert await ref.invoke(of_account.get) == -3


async def test_a_class_that_keeps_a_journal_from_now_on_takes_the_last_snapshot(
    autojump_clock: object,
) -> None:
    store = MemoryStore()

    class Before(Agent, durable=True):
        balance: int = 0

        @action
        def set(self, n: int) -> None:
            self.balance = n

    title = f"{Before.__module__}:{Before.__qualname__}"

    class Now(Agent, durable="journal", formerly=(title,)):
        balance: int = 0

        def apply(self, fact: Charged) -> None:
            self.balance += fact.cents

        @action
        def charge(self, n: int) -> int:
            self.record(Charged(n))
            return self.balance

    async with open_node(store=store) as node:
        ref = await node.start_child(ChildSpec("account", Before))
        await ref.invoke(Before.set, 40)
    for balance in (42, 44):
        async with open_node(store=store) as node:
            now = await node.start_child(ChildSpec("account", Now))
            assert await now.invoke(Now.charge, 2) == balance
