"""The shelf of a directory against a plain dict, the store beside it; and input that nobody thought of."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import pytest
import trio
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from trio.testing import MockClock

from lmos_actors import ActionFailed, open_node
from lmos_actors.directory import DirectoryOptions, ThingDirectory, directory_spec
from lmos_actors.directory._changes import Change, EventLog
from lmos_actors.directory._entries import InvalidDescription, Moment, instant
from lmos_actors.directory._merge_patch import difference, merged, same
from lmos_actors.directory._records import EVENTS, THINGS, Records, stored_state
from lmos_actors.directory._registrations import Missing, Registrations
from lmos_actors.persistence import DeleteRange, MemoryStore, records_of
from lmos_actors.protocol.td import check
from tests.matrix import examples

from .web import td

# ---- records


def test_what_a_failed_write_has_left_out_is_not_counted_on() -> None:
    options, at = DirectoryOptions(), Moment(wall=1_000_000.0, tick=0.0)
    shelf, records, store = Registrations(options), Records(0), MemoryStore()
    store.open()
    first = shelf.put("urn:1", td("urn:1"), at)
    store.commit([records.writes_of([first], 1)], "process")
    shelf.settle([first])
    lost = records.writes_of([shelf.put("urn:2", td("urn:2"), at)], 1_000)
    assert DeleteRange(EVENTS, stop=f"{1_000:016x}") in lost
    shelf.forget()
    records.forget(shelf.order)
    changed = shelf.put("urn:1", td("urn:1", title="New"), at)
    writes = records.writes_of([changed], 1_000)
    assert DeleteRange(EVENTS, stop=f"{1_000:016x}") in writes, "again"
    store.commit([writes[:-1]], "process")
    kept = stored_state(records_of(store, THINGS), records_of(store, EVENTS), at)
    assert (kept.last, kept.order) == (2, 1), "the list has the same ids since the first event"


# ---- RFC 7396

PATCHES: list[tuple[Any, Any, Any]] = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}), ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}), ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}), ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}), (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]), ({"a": "foo"}, None, None), ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}), ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]  # fmt: skip
"""Appendix A of the RFC: a value, a patch, what becomes of it."""


def test_patches_do_what_the_rfc_shows() -> None:
    for target, patch, result in PATCHES:
        before = json.dumps([target, patch])
        assert merged(target, patch) == result
        assert json.dumps([target, patch]) == before, "nothing is changed in place"


scalars = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-2, 2) | st.text("ab", max_size=2)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.sampled_from("abc"), values, max_size=3)


def without_nulls(value: Any) -> Any:
    """Give it without members that are null, which no patch can say; arrays are taken as they are."""
    if not isinstance(value, dict):
        return value
    return {name: without_nulls(each) for name, each in value.items() if each is not None}


@given(objects, objects)
def test_a_difference_leads_from_one_to_the_other(before: Any, after: Any) -> None:
    before, after = without_nulls(before), without_nulls(after)
    patch = difference(before, after)
    assert same(merged(before, patch), after)
    assert (patch == {}) == same(before, after)


# ---- the shelf

IDS = ["urn:a", "urn:b", "urn:B", "urn:é", "urn:\U0001f600"]
ids = st.sampled_from(IDS)
titles = st.sampled_from(["one", "two"])
ends = st.sampled_from([None, {"ttl": 5}, {"ttl": 20.5}, "in 10"])


class ShelfAgainstDict(RuleBasedStateMachine):
    """Decides, settles and forgets as a directory does; a dict says what has to be there."""

    def __init__(self) -> None:
        super().__init__()
        self.options = DirectoryOptions(max_entries=4, max_events=6)
        self.tick, self.wall = 100.0, 1_000_000.0
        self.decided: dict[str, dict[str, Any]] = {}
        self.settled: dict[str, dict[str, Any]] = {}
        self.waiting: list[tuple[Change, dict[str, dict[str, Any]]]] = []
        self.told: list[tuple[str, str]] = []

    @initialize()
    def begin(self) -> None:
        self.store = MemoryStore()
        self.store.open()
        self.load()

    def load(self) -> None:
        kept = stored_state(records_of(self.store, THINGS), records_of(self.store, EVENTS), self.at)
        self.shelf = Registrations(self.options, kept.entries, last=kept.last, order=kept.order)
        self.log = EventLog("life", most=6, most_bytes=10**6)
        self.log.last = kept.last - len(kept.events)
        self.log.add(kept.events)
        self.records = Records(kept.order)

    @property
    def at(self) -> Moment:
        return Moment(wall=self.wall, tick=self.tick)

    # ---- what is decided

    def _registration(self, given: Any) -> dict[str, Any]:
        if given == "in 10":
            return {"registration": {"expires": instant(self.wall + 10)}}
        return {} if given is None else {"registration": given}

    def _ends(self, given: Any) -> dict[str, float]:
        if given is None:
            return {}
        if given == "in 10":
            return {"wall": self.wall + 10}
        return {"tick": self.tick + given["ttl"], "ttl": given["ttl"]}

    def _is_there(self, id: str) -> bool:
        return id in self.decided

    def _decide(self, change: Change) -> None:
        self.waiting.append((change, {id: dict(each) for id, each in self.decided.items()}))

    @rule(id=ids, title=titles, given=ends, text=st.booleans())
    def put(self, id: str, title: str, given: Any, text: bool) -> None:
        body: Any = td(id, title=title, **self._registration(given))
        try:
            change = self.shelf.put(id, json.dumps(body) if text else body, self.at)
        except InvalidDescription as full:
            refused = full
        else:
            refused = None
        if refused is not None:
            assert (refused.status, self._is_there(id)) == (507, False)
            assert len(self.decided) >= 4
            return
        before = self.decided.get(id)
        self.decided[id] = {"title": title, **self._ends(given)}
        kind = None if change.event is None else change.event.kind
        assert kind in (("thing_updated", None) if before else ("thing_created",))
        assert before is None or kind is not None or before["title"] == title
        self._decide(change)

    @rule(id=ids, title=titles)
    def patch(self, id: str, title: str) -> None:
        self._patch(id, {"title": title})

    @rule(id=ids)
    def renew(self, id: str) -> None:
        self._patch(id, {})

    def _patch(self, id: str, change: dict[str, Any]) -> None:
        try:
            made = self.shelf.patch(id, change, self.at)
        except Missing:
            assert not self._is_there(id)
            return
        entry = self.decided[id]
        assert (made.event is not None) == ("title" in change and change["title"] != entry["title"])
        entry.update(change)
        if "ttl" in entry:
            entry["tick"] = self.tick + entry["ttl"]
        self._decide(made)

    @rule(id=ids)
    def break_it(self, id: str) -> None:
        if not self._is_there(id):
            return
        with pytest.raises(InvalidDescription) as caught:
            self.shelf.patch(id, {"title": None}, self.at)
        assert caught.value.faults

    @rule(id=ids)
    def delete(self, id: str) -> None:
        try:
            change = self.shelf.delete(id, self.at)
        except Missing:
            assert not self._is_there(id)
            return
        del self.decided[id]
        self._decide(change)

    @rule(seconds=st.sampled_from([0.5, 4.0, 11.0]), step=st.sampled_from([0.0, 0.0, -3.0, 7.0]))
    def let_time_go_by(self, seconds: float, step: float) -> None:
        self.tick += seconds
        self.wall += seconds + step
        over = {
            id
            for id, each in self.decided.items()
            if each.get("tick", math.inf) <= self.tick
            or ("tick" not in each and each.get("wall", math.inf) <= self.wall)
        }
        purged = self.shelf.purge(self.at)
        assert sorted(change.id for change in purged) == sorted(over)
        for change in purged:
            del self.decided[change.id]
            self._decide(change)
        left = self.shelf.next_end(self.at)
        waits = any("tick" in each or "wall" in each for each in self.decided.values())
        assert (left is not None) or not waits

    # ---- what becomes of it

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        count = data.draw(st.integers(1, len(self.waiting)))
        lot, self.waiting = self.waiting[:count], self.waiting[count:]
        changes = [change for change, _ in lot]
        assert self.store.commit([self.records.writes_of(changes, self.log.oldest)], "process") == [None]
        self.shelf.settle(changes)
        self.log.add(change.event for change in changes if change.event is not None)
        self.settled = lot[-1][1]
        self.told += [(c.event.kind, c.event.id) for c in changes if c.event is not None]

    @precondition(lambda self: self.waiting)
    @rule()
    def fail(self) -> None:
        self.shelf.forget()
        self.records.forget(self.shelf.order)
        self.waiting.clear()
        self.decided = {id: dict(each) for id, each in self.settled.items()}
        # what was over meanwhile is found again
        self.let_time_go_by(0.0, 0.0)

    @rule()
    def crash(self) -> None:
        self.waiting.clear()
        order = self.shelf.order
        self.load()
        assert self.shelf.order == order
        self.decided = {id: dict(each) for id, each in self.settled.items()}
        for each in self.decided.values():
            if "tick" in each:  # what is left of it is told by the wall clock
                each["tick"] = math.nan
        for id, each in self.decided.items():
            entry = self.shelf._entries[id]
            if "tick" in each:
                assert entry.due is not None
                assert entry.due <= self.tick + each["ttl"]
                each["tick"] = entry.due
        self.settled = {id: dict(each) for id, each in self.decided.items()}
        self.let_time_go_by(0.0, 0.0)

    # ---- what always holds

    @invariant()
    def what_is_seen_is_what_is_settled(self) -> None:
        if not hasattr(self, "shelf"):
            return
        assert self.shelf.ids == sorted(self.settled)
        entries = self.shelf.page(0, None)
        assert [entry.data()["title"] for entry in entries] == [
            self.settled[id]["title"] for id in self.shelf.ids
        ]
        assert self.shelf.bytes == sum(2 * (entry.cut + len(entry.id) + 450) for entry in entries)
        for entry in entries:
            assert not [each for each in check(entry.data()) if each.severity == "error"]

    @invariant()
    def the_log_has_the_last_events(self) -> None:
        if not hasattr(self, "log"):
            return
        assert self.log.last == len(self.told)
        page = self.log.after(f"life-{self.log.oldest - 1}", "", diff=False, most=100)
        assert len(page.frames) == min(6, len(self.told))
        for frame, (kind, id) in zip(page.frames, self.told[-6:], strict=False):
            assert frame.startswith(f"event: {kind}\n")
            assert json.loads(frame.split("data: ")[1].split("\n")[0]) == {"id": id}


TestShelfAgainstDict = ShelfAgainstDict.TestCase
TestShelfAgainstDict.settings = settings(max_examples=examples(60), stateful_step_count=30, deadline=None)


def test_what_is_settled_does_not_hide_what_was_decided_since() -> None:
    at = Moment(wall=1_000_000.0, tick=100.0)
    shelf = Registrations(DirectoryOptions())
    first = shelf.put("urn:a", td("urn:a", title="one"), at)
    shelf.put("urn:a", td("urn:a", title="two"), at)
    shelf.settle([first])
    assert shelf.get("urn:a", at).data()["title"] == "one"
    assert shelf.patch("urn:a", {"title": "two"}, at).event is None
    deleted = shelf.delete("urn:a", at)
    again = shelf.put("urn:a", td("urn:a", title="three"), at)
    last = shelf.delete("urn:a", at)
    shelf.settle([deleted])
    with pytest.raises(Missing):
        shelf.patch("urn:a", {}, at)
    shelf.settle([again, last])
    assert shelf.ids == []


# ---- what nobody thought of

names = st.sampled_from(
    [
        "@context",
        "@type",
        "id",
        "title",
        "security",
        "securityDefinitions",
        "registration",
        "properties",
        "forms",
    ]
)
anything = st.recursive(
    scalars | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(names | st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)
parts = st.dictionaries(names | st.sampled_from(["ttl", "expires", "created"]), anything, max_size=4)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["put", "post", "patch", "text"]), anything, parts), max_size=6))
def test_nothing_that_json_can_say_ends_a_directory(asked: list[tuple[str, Any, Any]]) -> None:
    async def main() -> None:
        async with open_node() as node:
            ref = await node.start_child(directory_spec(DirectoryOptions()))
            await ref.invoke(ThingDirectory.put_thing, "urn:x:1", td())
            for way, whole, part in asked:
                body = {**td(), **part}
                try:
                    if way == "put":
                        await ref.invoke(ThingDirectory.put_thing, "urn:x:1", body)
                    elif way == "post":
                        await ref.invoke(ThingDirectory.create_anonymous_thing, {**body, "id": None})
                    elif way == "patch":
                        await ref.invoke(ThingDirectory.partially_update_thing, "urn:x:1", part)
                    else:
                        text = msgspec.json.encode(whole).decode()
                        await ref.invoke(ThingDirectory.partially_update_thing, "urn:x:1", text)
                except ActionFailed as error:
                    refused.append(error.output)
            page = await ref.invoke(ThingDirectory.list_things)
            for found in page.members:
                assert not [each for each in check(found) if each.severity == "error"]
            assert ref.statistics().restarts == 0

    refused: list[Any] = []
    trio.run(main, clock=MockClock(autojump_threshold=0))
    assert all(each["status"] in (400, 404) for each in refused)
