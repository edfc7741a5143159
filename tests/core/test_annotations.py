"""Every way of writing an agent, with annotations that are values, texts, or made when asked for.

Each way is a module, written to a folder and imported, with `from __future__ import annotations` and without.
"""

from __future__ import annotations

import gc
import importlib
import re
import sys
import textwrap
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors import Agent, ConfigError, Property, StartFailed, describe, open_node, prop
from lmos_actors.facades.chat import tool_of
from lmos_actors.persistence import MemoryStore
from lmos_actors.protocol.td import dump
from lmos_actors.supervision import ChildSpec, hint_of, pointer_of
from lmos_actors.system import import_target
from lmos_actors.testing import fake

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import ModuleType

HEAD = """
import datetime
from collections.abc import AsyncIterator, Callable
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, Literal, Optional, TypeVar, Union
import attrs
import lmos_actors as la
import msgspec
from lmos_actors import Agent, Event, Progress, Property, Ref, action, event, prop
from lmos_actors.supervision import ChildSpec
"""
FUTURE = "from __future__ import annotations\n"
LAZY = sys.version_info >= (3, 14)
"""Whether this Python makes annotations when they are asked for."""

HOW = [pytest.param(FUTURE, id="texts"), pytest.param("", id="values")]


class Files:
    """Modules of a folder that is on the import path."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: list[str] = []

    def module(self, text: str, how: str = "", name: str = "shop_of_ways") -> ModuleType:
        """Write a module, import it, and return it."""
        (self.folder / f"{name}.py").write_text(how + HEAD + textwrap.dedent(text), encoding="utf-8")
        self.names.append(name)
        importlib.invalidate_caches()
        return importlib.import_module(name)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Files]:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    made = Files(tmp_path)
    yield made
    for name in made.names:
        sys.modules.pop(name, None)


def shown(cls: type) -> dict[str, Any]:
    """Return what a description says of a class: inputs and outputs by affordance."""
    td = dump(describe(cls))  # type: ignore[type-var]
    found = {name: made["type"] for name, made in td.get("properties", {}).items()}
    for name, each in td.get("actions", {}).items():
        inputs, output = each.get("input", {}), each.get("output", {})
        found[name] = (sorted(inputs.get("properties", {})), output.get("type"))
    return found


@pytest.mark.parametrize("how", HOW)
def test_a_class_whose_types_are_known_is_not_read_again_when_it_is_used(files: Files, how: str) -> None:
    module = files.module(
        """
        asked = []
        def number():
            asked.append(1)
            return int
        class Shop(Agent):
            left: "Property[number()]" = prop(default=1)
        """,
        how,
    )
    read = len(module.asked)
    assert shown(module.Shop) == {"left": "integer"}
    assert len(module.asked) == read > 0


# ---- what is known when the class is made, or later

WORKS = {
    "plain": """
        class Shop(Agent):
            open: Property[bool] = prop(default=True)
            sold: Event[int] = event()
            count: int = 0
            @action
            def sell(self, what: str, much: Optional[int] = None) -> int: return 1
    """,
    "in quotes": """
        class Shop(Agent):
            open: "Property[bool]" = prop(default=True)
            sold: Event["int"] = event()
            count: "int" = 0
            @action
            def sell(self, what: "str", much: "int | None" = None) -> "int": return 1
    """,
    "by the module": """
        class Shop(la.Agent):
            open: la.Property[bool] = la.prop(default=True)
            sold: la.Event[int] = la.event()
            @la.action
            def sell(self, what: str, much: Union[int, None] = None) -> int: return 1
    """,
    "by other names": """
        P, Number = Property, int
        class Shop(Agent):
            open: P[bool] = prop(default=True)
            @action
            def sell(self, what: str, much: Number = 1) -> Number: return 1
    """,
    "in a function": """
        def made():
            Number = int
            class Shop(Agent):
                open: Property[bool] = prop(default=True)
                last: "Number | None" = None
                @action
                def sell(self, what: str, much: Number = 1) -> Number: return 1
            return Shop
        Shop = made()
    """,
    "in the body of another class": """
        class Outer:
            Number = int
            class Shop(Agent):
                class Word(msgspec.Struct, frozen=True):
                    text: str
                open: Property[bool] = prop(default=True)
                @action
                def sell(self, what: str, much: int = 1) -> int: return 1
                def word(self, one: Word) -> Word: return one
        Shop = Outer.Shop
    """,
    "generic": """
        T = TypeVar("T")
        class Base(Agent, Generic[T]):
            open: Property[bool] = prop(default=True)
            last: T | None = None
            @action
            def sell(self, what: str, much: int = 1) -> int: return 1
        class Shop(Base[int]): pass
    """,
    "a field named as its type": """
        class Shop(Agent):
            open: Property[bool] = prop(default=True)
            date: "date | None" = None
            def list(self) -> list[int]: return []
            @action
            def sell(self, what: str, much: int = 1) -> int: return 1
            def all(self) -> "list[int]": return []
    """,
    "with every kind of record": """
        from dataclasses import dataclass
        from typing import NamedTuple, TypedDict
        @attrs.frozen
        class A:
            one: Annotated[int, msgspec.Meta(ge=1)]
            two: "tuple[int, ...]" = ()
        @dataclass(frozen=True)
        class D:
            a: A | None
        class N(NamedTuple):
            d: D
            word: Literal["x", "y"]
        class T(TypedDict, total=False):
            n: N
        V = TypeVar("V")
        class G(msgspec.Struct, Generic[V], frozen=True):
            value: V
        class Shop(Agent):
            open: Property[bool] = prop(default=True)
            first: "A | None" = None
            @action
            def sell(self, what: tuple[A, D, N, T, G[A]], much: G[D | None]) -> int: return 1
    """,
    "inherited from a function": """
        def made():
            Switch = bool
            class Base(Agent):
                open: "Property[Switch]" = prop(default=True)
                @action
                def sell(self, what: "str", much: "int" = 1) -> "int": return 1
            return Base
        class Shop(made()): pass
    """,
}
WORKS_312 = {
    "with type parameters": """
        class Base[T](Agent):
            open: Property[bool] = prop(default=True)
            last: T | None = None
            @action
            def sell(self, what: str, much: int = 1) -> int: return 1
            def keep[S](self, one: T, two: S) -> S: return two
        class Shop(Base[int]): pass
    """,
    "with type parameters, in a function": """
        def made():
            class Shop[T](Agent):
                open: Property[bool] = prop(default=True)
                last: T | None = None
                @action
                def sell(self, what: str, much: "Number" = 1) -> int: return 1
            return Shop
        Number = int
        Shop = made()
    """,
    "with an alias": """
        type Number = Later
        class Shop(Agent):
            open: Property[bool] = prop(default=True)
            @action
            def sell(self, what: str, much: Number = 1) -> Number: return 1
        Later = int
    """,
}
WORKS = {**WORKS, **(WORKS_312 if sys.version_info >= (3, 12) else {})}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("way", WORKS)
def test_a_way_of_writing(files: Files, way: str, how: str) -> None:
    if way == "a field named as its type" and not how and not LAZY:
        pytest.skip("the class body itself raises there")
    shop = files.module(WORKS[way], how).Shop
    assert shown(shop) == {"open": "boolean", "sell": (["much", "what"], "integer")}


LATER = """
    class Shop(Agent):
        best: Property[Ware] = prop(factory=lambda: Ware("tea"))
        sold: Event[tuple[Ware, ...]] = event()
        stock: dict[str, Ware] = attrs.field(factory=dict)
        @action
        def sell(self, ware: Ware, many: Optional[Number] = None) -> Ware: return ware
        @action
        async def show(self, progress: Progress[Ware], of: AsyncIterator[Ware]) -> AsyncIterator[Ware]:
            async for ware in of:
                yield ware
    before = Shop.best.name, Shop.sold.name, Shop.sell.name
    class Ware(msgspec.Struct, frozen=True):
        name: str
        kind: Kind | None = None
    class Kind(msgspec.Struct, frozen=True):
        name: Name
    Name = str
    Number = int
"""


def quoted(text: str) -> str:
    """Put the names that come later in quotes, as people do who do not use `from __future__`."""
    for name in ("Ware | None", "Kind | None", "Optional[Number]", "dict[str, Ware]", "tuple[Ware, ...]"):
        text = text.replace(f": {name} ", f': "{name}" ').replace(f"[{name}]", f'["{name}"]')
    for name in ("Property[Ware]", "Name\n"):
        text = text.replace(f": {name}", f': "{name.strip()}"' + name[len(name.strip()) :])
    text = text.replace("ware: Ware,", 'ware: "Ware",').replace("-> Ware:", '-> "Ware":')
    text = text.replace("Progress[Ware]", 'Progress["Ware"]')
    return text.replace("AsyncIterator[Ware]", 'AsyncIterator["Ware"]')


LATERS = [pytest.param(FUTURE + "#", id="texts"), pytest.param("quoted", id="quotes")]
LATERS += [pytest.param("", id="values")] if LAZY else []


@pytest.mark.parametrize("how", LATERS)
async def test_names_that_are_defined_later_in_the_file(files: Files, how: str) -> None:
    module = files.module(quoted(LATER), "") if how == "quoted" else files.module(LATER, how + "\n")
    assert module.before == ("best", "sold", "sell")
    assert shown(module.Shop)["sell"] == (["many", "ware"], "object")
    async with open_node() as node:
        shop = await node.start(module.Shop)
        assert await shop.invoke(module.Shop.sell, module.Ware("tea")) == module.Ware("tea")
        with pytest.raises(TypeError, match="Ware"):
            module.Shop(best=3)


MUTUAL = """
    class Account(Agent, durable=True):
        owner: str = ""
        teller: Ref[Teller] | None = None
        @action
        def meet(self) -> str:
            self.teller = None
            self.after(1e6, self.close, durable=True, why=Reason("age"))
            return self.owner
        def close(self, why: Reason) -> None: ...
    class Teller(Agent, durable="journal"):
        accounts: tuple[Ref[Account], ...] = ()
        seen: int = 0
        @action
        def see(self) -> int:
            self.record(Seen(2))
            return self.seen
        def apply(self, fact: Seen) -> None:
            self.seen += fact.times
    @attrs.frozen
    class Seen:
        times: Times
    @attrs.frozen
    class Reason:
        text: str
    Times = int
"""
QUOTED_MUTUAL = MUTUAL
for name in ("Ref[Teller] | None", "Reason", "tuple[Ref[Account], ...]", "Seen", "Times"):
    QUOTED_MUTUAL = QUOTED_MUTUAL.replace(f": {name} ", f': "{name}" ').replace(f": {name})", f': "{name}")')
    QUOTED_MUTUAL = QUOTED_MUTUAL.replace(f": {name}\n", f': "{name}"\n')


@pytest.mark.parametrize("how", LATERS)
async def test_durable_classes_name_each_other_and_what_comes_later(files: Files, how: str) -> None:
    module = files.module(QUOTED_MUTUAL, "") if how == "quoted" else files.module(MUTUAL, how + "\n")
    store = MemoryStore()
    for seen in (2, 4):
        async with open_node(store=store) as node:
            account = await node.start_child(ChildSpec("account", partial(module.Account, owner="Ada")))
            teller = await node.start_child(ChildSpec("teller", module.Teller))
            assert await account.invoke(module.Account.meet) == "Ada"
            assert await teller.invoke(module.Teller.see) == seen
    pointed = {name: pointer_of(hint_of(module.Account, name)) for name in ("teller", "owner")}
    assert pointed["teller"].cls is module.Teller
    assert pointed["owner"] is None


FOR_CHECKERS = """
    if TYPE_CHECKING:
        from elsewhere import Clock, Teller
    class Shop(Agent):
        clock: Clock | None = None
        ticks: dict[str, Clock] = attrs.field(factory=dict)
        @action
        def sell(self) -> int: return self.add(1)
        def add(self, one: int, clock: Clock | None = None) -> int: return one
    class Account(Agent, durable=True):
        teller: Ref[Teller] | None = None
        more: tuple[Ref[Teller], ...] = ()
        @action
        def close(self) -> int: return 1
"""


@pytest.mark.parametrize("how", [FUTURE, *([""] if LAZY else [])])
async def test_names_for_type_checkers_alone_stand_where_no_value_is_checked(files: Files, how: str) -> None:
    module = files.module(FOR_CHECKERS, how)
    store = MemoryStore()
    for _ in range(2):
        async with open_node(store=store) as node:
            shop = await node.start(module.Shop)
            assert await shop.invoke(module.Shop.sell) == 1
            spec = ChildSpec("account", partial(module.Account, teller=shop, more=(shop,)))
            account = await node.start_child(spec)
            assert await account.invoke(module.Account.close) == 1


REFUSED = {
    "of a property": (
        "best: Property[Clock] = prop(default=None)",
        "Shop.best ({file}:16): cannot read its type 'Clock': name 'Clock' is not defined; import it",
    ),
    "of an event": (
        "rang: Event[list[Clock]] = event()",
        "Shop.rang ({file}:16): cannot read its type 'Clock'",
    ),
    "of a parameter": (
        "@action\n        def ring(self, clock: Clock | None = None) -> None: ...",
        "Shop.ring ({file}:16): cannot read its type 'Clock'",
    ),
    "of a result": (
        "@action\n        async def ring(self) -> clocks.Clock: ...",
        "Shop.ring ({file}:16): cannot read its type 'clocks.Clock': name 'clocks' is not defined",
    ),
    "of a part": (
        "@action\n        def ring(self, hand: Hand) -> None: ...",
        "Shop.ring ({file}:16): cannot read its type 'Hand': name 'Clock' is not defined",
    ),
}


@pytest.mark.parametrize("how", [FUTURE, *([""] if LAZY else [])])
@pytest.mark.parametrize("where", REFUSED)
async def test_where_values_are_checked_names_are_imported(files: Files, where: str, how: str) -> None:
    line, refusal = REFUSED[where]
    text = f"""
    if TYPE_CHECKING:
        from elsewhere import Clock
    class Shop(Agent):
        {line}
    class Hand(msgspec.Struct, frozen=True):
        of: Clock
    """
    module = files.module(text, how or "\n")
    expected = refusal.format(file=files.folder / "shop_of_ways.py")
    with pytest.raises(TypeError, match=re.escape(expected)):
        describe(module.Shop)
    async with open_node() as node:
        with pytest.raises(StartFailed, match=re.escape(expected)):
            await node.start(module.Shop)


@pytest.mark.parametrize("how", [FUTURE, *([""] if LAZY else [])])
def test_kept_state_needs_its_types(files: Files, how: str) -> None:
    text = """
    if TYPE_CHECKING:
        from elsewhere import Clock
    class Shop(Agent, durable=True):
        clock: Clock | None = None
    """
    module = files.module(text, how or "\n")
    with pytest.raises(TypeError, match=r"Shop\.clock \(.*:16\): cannot read its type 'Clock'"):
        describe(module.Shop)


# ---- what is known when the class is made is checked there, with the same words

WRONG = {
    "a property that can be changed": (
        "all: Property[{}] = prop(factory=list)",
        "list[int]",
        "must be immutable",
    ),
    "no schema": ("@action\n    def sell(self, at: {}) -> None: ...", "type", "Shop.sell"),
    "a default of another type": (
        '@action\n    def sell(self, at: {} = "1") -> None: ...',
        "int",
        "is not of its",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
async def test_a_mistake_is_told_in_the_same_words_early_and_late(files: Files, wrong: str) -> None:
    line, kind, refusal = WRONG[wrong]
    early = FUTURE + HEAD + f"class Shop(Agent):\n    {line.format(kind)}\n"
    late = FUTURE + HEAD + f"class Shop(Agent):\n    {line.format('Later')}\nLater = {kind}\n"
    (files.folder / "early.py").write_text(early, encoding="utf-8")
    (files.folder / "late.py").write_text(late, encoding="utf-8")
    with pytest.raises(ConfigError) as at_once:
        import_target("early.py:Shop", files.folder)
    with pytest.raises(ConfigError) as at_use:
        import_target("late.py:Shop", files.folder)
    for name in ("early", "late"):
        sys.modules.pop(name, None)
    assert refusal in str(at_once.value)
    assert str(at_use.value).replace("late", "early") == str(at_once.value)


def test_what_is_known_is_checked_when_the_class_is_made() -> None:
    with pytest.raises(TypeError, match="must be immutable"):

        class Shop(Agent):
            later: Property[NotYet] = prop(default=None)  # type: ignore[name-defined]  # noqa: F821
            all: Property[list[int]] = prop(factory=list)


# ---- where names are found


def test_the_names_of_a_function_are_kept_and_not_its_frame(files: Files) -> None:
    text = """
    class Large: pass
    def made():
        large, Number = Large(), int
        class Shop(Agent):
            @action
            def sell(self, much: Number, ware: "Ware") -> int: return 1
        return Shop, weakref.ref(large)
    import weakref
    Shop, large = made()
    Ware = str
    """
    module = files.module(text, FUTURE)
    gc.collect()
    assert module.large() is None
    assert shown(module.Shop) == {"sell": (["much", "ware"], "integer")}


@pytest.mark.parametrize("how", HOW)
def test_code_that_is_executed_in_a_dict_of_its_own_as_a_notebook_does(how: str) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    cells = (
        HEAD,
        "class Shop(Agent):\n    @action\n    def sell(self, ware: 'Ware') -> 'int': return 1",
        "Ware = str",
    )
    for cell in cells:
        exec(compile(how + cell, "<cell>", "exec", dont_inherit=True), names)
    assert shown(names["Shop"]) == {"sell": (["ware"], "integer")}


def test_modules_that_import_each_other(files: Files) -> None:
    bank = """
    import tellers_of_ways
    class Account(Agent, durable=True):
        teller: "Ref[tellers_of_ways.Teller] | None" = None
    class Slip(msgspec.Struct, frozen=True):
        n: int
    """
    tellers = """
    import bank_of_ways
    class Teller(Agent):
        @action
        def see(self, it: "bank_of_ways.Slip") -> int: return 1
    """
    (files.folder / "tellers_of_ways.py").write_text(HEAD + textwrap.dedent(tellers), encoding="utf-8")
    module = files.module(bank, "", "bank_of_ways")
    files.names.append("tellers_of_ways")
    assert shown(module.tellers_of_ways.Teller) == {"see": (["it"], "integer")}
    assert pointer_of(hint_of(module.Account, "teller")).cls is module.tellers_of_ways.Teller


# ---- agents that think

THINKING = """
    from lmos_actors.thinking import ThinkingAgent
    def made():
        class Desk(ThinkingAgent):
            \"\"\"You help.\"\"\"
            tools = [look_up]
            answer = Trip
            instructions = "Help."
            mine: int = 3
        return Desk
    def look_up(city: Word, {more}) -> int: return 1
    class Trip(msgspec.Struct):
        to: Word
    Desk = made()
    Word = str
"""


@pytest.mark.parametrize("how", HOW)
def test_a_thinking_agent_whose_tools_name_later_types(files: Files, how: str) -> None:
    text = THINKING.format(more="") if how or LAZY else THINKING.replace("Word", '"Word"', 2).format(more="")
    module = files.module(text.replace('"Word" =', "Word ="), how)
    agent = module.Desk()
    assert (agent.tools, agent.mine, agent.instructions) == ((module.look_up,), 3, "Help.")
    assert tool_of(module.look_up).schema["properties"] == {"city": {"type": "string"}}


async def test_a_tool_whose_type_stays_unknown_is_refused_at_the_start(files: Files) -> None:
    module = files.module(THINKING.format(more="at: Clock"), FUTURE)
    refusal = r"Desk\.tools: the type 'Clock' of 'at' of the tool 'look_up' cannot be read: .*\); import it"
    async with open_node() as node:
        with pytest.raises(StartFailed, match=refusal):
            await node.start(module.Desk)


@pytest.mark.parametrize("how", [FUTURE, *([""] if LAZY else [])])
async def test_a_fake_answers_by_a_function_whose_types_are_for_checkers_alone(
    files: Files, how: str
) -> None:
    text = """
    if TYPE_CHECKING:
        from elsewhere import Clock
    class Shop(Agent):
        @action
        def sell(self, ware: str) -> int: return 1
    def sold(ware: Clock) -> Clock: return 3
    """
    module = files.module(text, how)
    async with open_node() as node:
        shop = await node.start(fake(module.Shop, sell=module.sold))
        assert await shop.invoke(module.Shop.sell, "tea") == 3
