"""The extensions of a hub, without a socket: what each does, and what it keeps over a restart."""

from __future__ import annotations

import json
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from lmos_actors.protocol.relay import Hub, HubExtension, HubOptions, HubRefusal
from lmos_actors.protocol.relay.extensions import (
    History,
    HistoryOptions,
    Presence,
    Receipts,
    Semantic,
    Voting,
)
from tests.matrix import examples

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lmos_actors.protocol.relay import Fate, HubFrame

DAY = 86_400_000


class Kept:
    """A store of one extension, which may fail; while it is `slow`, writes wait for `settle`."""

    is_lasting = True

    def __init__(self) -> None:
        self.records: dict[str, bytes] = {}
        self.fails = False
        self.slow = False
        self.waiting: list[Callable[[], None]] = []

    def write(
        self,
        changes: Mapping[str, bytes | None],
        then: Callable[[], object] | None = None,
        failed: Callable[[], object] | None = None,
    ) -> None:
        def settled() -> None:
            if not self.fails:
                for key, value in changes.items():
                    self.records.pop(key, None) if value is None else self.records.update({key: value})
            call = failed if self.fails else then
            if call is not None:
                call()

        if self.slow:
            self.waiting.append(settled)
        else:
            settled()

    def settle(self) -> None:
        """Have all that waits kept, or lost if the store fails."""
        while self.waiting:
            self.waiting.pop(0)()


class World:
    """A hub with extensions, whose clock is set by hand."""

    def __init__(
        self, *extensions: Callable[[], HubExtension], stores: dict[str, Kept] | None = None
    ) -> None:
        self.now = 1_700_000_000_000
        self.ids = map("m-{}".format, count(1))
        self.made = extensions
        self.stores = {} if stores is None else stores
        self.start()

    def start(self) -> None:
        """Begin, as after a restart."""
        self.hub = Hub(
            HubOptions(rates=()),
            new_id=self.ids.__next__,
            now=lambda: self.now,
            extensions=[each() for each in self.made],
        )
        for each in self.hub.extensions:
            kept = self.stores.setdefault(each.name, Kept())
            each.start(self.hub, kept, sorted(kept.records.items()))
        self.peers: dict[str, Any] = {}

    def join(self, *names: str) -> None:
        for name in names:
            self.peers[name] = self.hub.connect(name, 0.0)
            self.heard(name)

    def leave(self, name: str) -> None:
        self.hub.disconnect(self.peers.pop(name), 0.0)

    def heard(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(frame) for frame in self.peers[name].frames(1 << 30)]

    def say(self, name: str, to: str | list[str] = "*", payload: Any = None, **members: Any) -> Fate:
        targets = [to] if isinstance(to, str) else to
        fate: Fate = self.peers[name].receive(json.dumps({"to": targets, "payload": payload, **members}), 0.0)
        return fate

    def ask(self, name: str, payload: Any, type: str = "command", **members: Any) -> Any:
        """Send a command; return the payload of its answer."""
        self.heard(name)
        self.say(name, "relay", payload, type=type, **members)
        (answer,) = self.heard(name)
        return answer["payload"]

    def pass_to(self, now: int) -> None:
        self.now = now
        self.hub.due()


def test_a_welcome_names_the_extensions() -> None:
    world = World(Receipts, Voting)
    connection = world.hub.connect("one", 0.0)
    (frame,) = connection.frames(1 << 20)
    payload = json.loads(frame)["payload"]
    assert payload["extensions"] == ["receipts", "voting"]
    assert payload["extension_versions"] == {"receipts": "1", "voting": "1"}


# ---- receipts


def test_a_receipt_has_the_id_and_who_got_it() -> None:
    world = World(Receipts)
    world.join("one", "two")
    fate = world.say("one", ["two", "gone", "two"], 1, receipt="r-1")
    (receipt,) = world.heard("one")
    assert (receipt["type"], receipt["ref"], receipt["from"]) == ("receipt", fate.id, "relay")
    assert receipt["payload"] == {"receipt": "r-1", "delivered": 1, "unknown": ["gone"]}
    (message,) = world.heard("two")
    assert message["id"] == fate.id
    world.say("one", payload=1)
    assert world.heard("one") == []
    world.say("one", "relay", type="ping", receipt="r-2")
    assert [each["type"] for each in world.heard("one")] == ["pong", "receipt"]


def test_a_command_whose_changes_could_not_be_kept_has_an_error_and_no_receipt() -> None:
    world = World(Receipts, Voting)
    world.join("one")
    world.say("one", payload="shall we?", type="proposal", quorum=5)
    world.stores["voting"].fails = True
    ref = world.say("one", payload="shall we?", type="proposal", quorum=5).id
    world.stores["voting"].fails = True
    world.say("one", "relay", {"approve": True}, type="vote", ref=ref, receipt="r-1")
    (error,) = world.heard("one")
    assert error["type"] == "error"
    assert (error["payload"]["code"], error["payload"]["receipt"]) == ("unavailable", "r-1")
    world.say("one", "relay", type="ping", receipt="r-2")  # nothing of it is to be kept
    assert [each["type"] for each in world.heard("one")] == ["pong", "receipt"]


ORDERS = [(Receipts, History), (History, Receipts), (Receipts, Semantic, History)]


@pytest.mark.parametrize("extensions", ORDERS)
@pytest.mark.parametrize("fails", [False, True])
def test_a_message_is_passed_on_at_once_and_its_receipt_comes_once_it_is_kept(
    extensions: tuple[Any, ...], fails: bool
) -> None:
    world = World(*extensions)
    world.join("one", "two")
    store = world.stores["history"]
    store.slow = True
    world.say("one", payload="hello", receipt="r-1")
    (heard,), (passed,) = world.heard("two"), world.heard("one")
    content = {"receipt": "r-1", "delivered": 1, "unknown": []}
    assert (passed["type"], passed["ref"], passed["payload"]) == ("passed", heard["id"], content)
    store.fails = fails
    store.settle()
    (word,) = world.heard("one")
    if fails:
        assert (word["type"], word["payload"]["code"], word["payload"]["receipt"]) == (
            "error",
            "unavailable",
            "r-1",
        )
    else:
        assert (word["type"], word["ref"], word["payload"]) == ("receipt", heard["id"], content)


def test_what_is_not_to_be_kept_has_its_receipt_at_once() -> None:
    world = World(Receipts, History)
    world.join("one")
    world.stores["history"].slow = world.stores["history"].fails = True
    world.say("one", payload="hello", no_store=True, receipt="r-1")
    assert [each["type"] for each in world.heard("one")] == ["receipt"]


@pytest.mark.parametrize("receipt", [5, "x" * 257, ["r"]])
def test_a_receipt_is_a_short_text(receipt: Any) -> None:
    world = World(Receipts)
    world.join("one", "two")
    assert world.say("one", payload=1, receipt=receipt).code == "invalid_message"
    assert world.heard("two") == []


def test_an_error_repeats_the_receipt() -> None:
    world = World(Receipts)
    world.join("one")
    world.say("one", "relay", type="fly", receipt="r-1")
    (error,) = world.heard("one")
    assert (error["payload"]["code"], error["payload"]["receipt"]) == ("unknown_command", "r-1")


# ---- presence


def test_followers_hear_who_comes_and_goes() -> None:
    world = World(Presence)
    world.join("one", "two", "three")
    world.say("one", "relay", {"agents": ["two", "four"]}, type="subscribe")
    world.heard("one")
    world.join("four")
    world.peers["four"] = world.hub.connect("four", 0.0)  # takes over: neither
    world.leave("two")
    world.leave("three")
    found = [(each["type"], each["payload"]) for each in world.heard("one")]
    assert found == [("joined", {"agent": "four"}), ("left", {"agent": "two"})]


# ---- history


def told(answer: Any) -> list[Any]:
    return [each["payload"] for each in answer["messages"]]


def test_history_is_of_what_the_asker_may_know() -> None:
    world = World(History)
    world.join("one", "two", "three")
    world.say("one", payload="to all")
    world.say("one", "two", "to two")
    world.say("three", "two", "from three")
    world.say("one", payload="secret", no_store=True)
    assert told(world.ask("one", {"command": "history"})) == ["to all", "to two"]
    assert told(world.ask("two", {"command": "history"})) == ["to all", "to two", "from three"]
    assert told(world.ask("three", {"command": "history"})) == ["to all", "from three"]
    world.start()
    world.join("three", "two")
    assert told(world.ask("three", {"command": "history"})) == ["to all", "from three"]
    assert told(world.ask("two", {"command": "search", "query": "TWO"})) == ["to two"]


def test_history_page_by_page() -> None:
    world = World(History)
    world.join("one", "two")
    ids = []
    for number in range(10):
        world.now += 1
        ids.append(world.say("one", payload=number).id)
    newest = world.ask("two", {"command": "history", "limit": 3}, ref="mine")
    assert (told(newest), newest["more"]) == ([7, 8, 9], True)
    later = world.ask("two", {"command": "history", "since": world.now - 4})
    assert (told(later), later["more"]) == ([6, 7, 8, 9], False)
    first = world.ask("two", {"command": "history", "since": 0, "limit": 4})
    assert (told(first), first["more"]) == ([0, 1, 2, 3], True)
    rest = world.ask("two", {"command": "replay", "since_message_id": first["messages"][-1]["id"]})
    assert (told(rest), rest["more"]) == ([4, 5, 6, 7, 8, 9], False)
    assert [each["id"] for each in rest["messages"]] == ids[4:]
    world.say("two", "relay", {"command": "history"}, type="command", ref="mine")
    assert world.heard("two")[0]["ref"] == "mine"


def test_history_shows_what_is_kept_and_an_answer_waits_for_what_is_being_written() -> None:
    world = World(History, Semantic)
    world.join("one", "two")
    store = world.stores["history"]
    ids = [world.say("one", payload="0").id]
    store.slow = True
    world.say("one", payload="lost")
    world.heard("two")
    for payload, type in (({"command": "history"}, "command"), ("lost", "query")):
        world.say("two", "relay", payload, type=type)
    world.say("two", "relay", {"command": "replay", "since_message_id": "m-99"}, type="command")
    assert world.heard("two") == []
    store.fails = True
    store.settle()
    history, found, error = world.heard("two")
    assert (told(history["payload"]), found["payload"]["messages"]) == (["0"], [])
    assert (error["type"], error["payload"]["code"]) == ("error", "invalid_message")
    store.fails = False
    world.say("one", payload="1")
    world.say("two", "relay", {"command": "history"}, type="command")
    store.settle()
    heard = world.heard("two")
    assert told(heard[-1]["payload"]) == ["0", "1"]
    assert told(world.ask("two", {"command": "replay", "since_message_id": ids[0]})) == ["1"]
    world.start()
    world.join("two")
    assert told(world.ask("two", {"command": "history"})) == ["0", "1"]


def test_agents_are_found_by_what_is_kept() -> None:
    world = World(Semantic)
    world.join("one", "two")
    store = world.stores["semantic"]
    world.say("two", payload="I cook", type="discovery")
    store.slow = True
    world.say("two", payload="I sail", type="discovery")
    store.fails = True
    world.say("one", "relay", "sail", type="query")
    assert world.heard("one")[-1]["type"] == "discovery"
    store.settle()
    assert world.heard("one")[-1]["payload"]["agents"] == []
    store.slow = store.fails = False
    assert [each["agent"] for each in world.ask("one", "cook", type="query")["agents"]] == ["two"]
    world.say("two", payload="I sail", type="discovery")
    assert world.ask("one", "cook", type="query")["agents"] == []
    assert len(store.records) == 1


def test_a_hub_that_keeps_nothing_says_so() -> None:
    world = World(History)
    world.join("one")
    assert "kept" not in world.ask("one", {"command": "history"})
    world.stores["history"].is_lasting = False
    assert world.ask("one", {"command": "history"})["kept"] is False


def test_history_is_bounded_by_number_bytes_and_age() -> None:
    for options in (HistoryOptions(messages=2), HistoryOptions(bytes=400), HistoryOptions(seconds=0.02)):
        stores: dict[str, Kept] = {}
        world = World(lambda options=options: History(options), stores=stores)  # type: ignore[misc]
        world.join("one", "two")
        for number in range(20):
            world.now += 10
            world.say("one", payload=str(number) + "x" * 50)
        found = told(world.ask("two", {"command": "history"}))
        assert found
        assert len(found) <= 3
        assert found[-1] == "19" + "x" * 50
        assert len(stores["history"].records) == len(found)
        assert told(world.ask("two", {"command": "search", "query": "0" + "x" * 50})) == []


@pytest.mark.parametrize("member", ["payload", "no_store", "x"])
@pytest.mark.parametrize("type", ["data", "discovery"])
@pytest.mark.parametrize("number", ["9" * 5_000, "-1e99999"])
def test_a_number_that_cannot_be_read_passes_has_one_fate_and_spoils_no_restart(
    member: str, type: str, number: str
) -> None:
    world = World(Receipts, lambda: History(HistoryOptions(messages=2)), Semantic, Voting)
    world.join("one", "two")
    members = {"to": '["*"]', "payload": "1", "type": json.dumps(type), "receipt": '"r"', member: number}
    data = "{" + ",".join(f'"{name}":{value}' for name, value in members.items()) + "}"
    assert world.peers["one"].receive(data, 0.0).outcome == "passed"
    assert [each["type"] for each in world.heard("one")] == ["receipt"]
    (passed,) = world.peers["two"].frames(1 << 30)
    assert f'"{member}":{number}'.encode() in passed
    world.start()
    world.join("one", "two")
    for text in "abc":  # what is too old is forgotten
        world.say("one", payload=text)
    found = world.ask("two", {"command": "history"})
    assert [each["payload"] for each in found["messages"]] == ["b", "c"]
    counts = world.hub.statistics()
    assert counts.frames == counts.passed + counts.commands + counts.refused
    assert not counts.refused


def test_an_answer_fits_a_frame() -> None:
    world = World(History)
    world.join("one", "two")
    for _ in range(10):
        world.say("one", payload="x" * 20_000)
    answer = world.ask("two", {"command": "history"})
    assert (len(answer["messages"]), answer["more"]) == (2, True)
    world.say("one", payload="y" * 60_000)
    answer = world.ask("two", {"command": "history"})
    assert (told(answer), answer["more"]) == (["y" * 60_000], True)


WRONG = [
    {"command": "history", "limit": 0},
    {"command": "history", "limit": "5"},
    {"command": "history", "since": "yesterday"},
    {"command": "replay"},
    {"command": "replay", "since_message_id": "nonsense"},
    {"command": "search", "query": 5},
]


@pytest.mark.parametrize("payload", WRONG)
def test_a_wrong_question_is_refused(payload: Any) -> None:
    world = World(History)
    world.join("one")
    assert world.ask("one", payload)["code"] == "invalid_message"
    assert world.ask("one", {"command": "fly"})["code"] == "unknown_command"
    assert world.ask("one", {"command": "search", "query": '"; DROP TABLE texts; -- * ^ NEAR('}) == {
        "command": "search",
        "messages": [],
        "more": False,
    }


# ---- semantic


def test_a_query_finds_agents_and_messages() -> None:
    world = World(History, Semantic)
    world.join("one", "two", "three")
    world.say("two", payload={"skills": ["weather", "forecast"]}, type="discovery")
    world.say("three", payload={"skills": ["cooking"]}, type="discovery")
    world.say("two", payload="the weather in Berlin is fine")
    world.say("two", "three", "weather between us")
    found = world.ask("one", "what about the WEATHER?", type="query")
    assert [each["agent"] for each in found["agents"]] == ["two"]
    payloads = [each["message"]["payload"] for each in found["messages"]]
    assert "the weather in Berlin is fine" in payloads
    assert "weather between us" not in payloads
    scores = [each["score"] for each in found["messages"]]
    assert scores == sorted(scores, reverse=True)
    world.say("two", payload={"skills": ["nothing"]}, type="discovery")
    world.start()
    world.join("one")
    assert (
        world.ask("one", {"query": "weather cooking", "limit": 5}, type="query")["agents"][0]["agent"]
        == "three"
    )
    assert world.ask("one", {"q": 1}, type="query")["code"] == "invalid_message"


def test_keywords_go_to_those_who_have_asked_for_one() -> None:
    world = World(Semantic)
    world.join("one", "two", "three", "four")
    asked = {"command": "semantic_subscribe", "keywords": ["Weather", "rain"]}
    assert world.ask("two", asked) == {"command": "semantic_subscribe", "keywords": ["rain", "weather"]}
    world.ask("three", {"command": "semantic_subscribe", "keywords": ["cooking"]})
    assert world.say("one", payload=1, keywords=["WEATHER", "sun"]).delivered == 1
    assert [each["payload"] for each in world.heard("two")] == [1]
    assert world.say("one", payload=2, keywords="weather").delivered == 3  # no array of texts: a member
    assert world.say("one", payload=3).delivered == 3
    world.ask("two", {"command": "semantic_subscribe", "keywords": []})
    assert world.say("one", payload=4, keywords=["weather"]).delivered == 0
    many = {"command": "semantic_subscribe", "keywords": [str(number) for number in range(65)]}
    assert world.ask("two", many)["code"] == "invalid_message"


# ---- votes


def proposed(world: World, name: str = "one", **members: Any) -> str:
    fate = world.say(name, payload="shall we?", type="proposal", **members)
    assert fate.outcome == "passed", fate
    return fate.id


def vote(world: World, name: str, id: str, approve: Any = True, to: str = "relay") -> Fate:
    return world.say(name, to, {"approve": approve}, type="vote", ref=id)


def results(world: World, name: str) -> list[Any]:
    return [each for each in world.heard(name) if each["type"] == "vote_result"]


def test_a_proposal_passes_with_more_than_half_of_the_active() -> None:
    world = World(Voting)
    world.join("one", "two", "three", "four")
    id = proposed(world)
    vote(world, "two", id)
    vote(world, "three", id, to="one")  # to the proposer
    assert results(world, "four") == []
    vote(world, "two", id)  # once more is no more
    assert results(world, "four") == []
    vote(world, "four", id, approve=False)
    vote(world, "one", id)
    for name in ("one", "two", "three", "four"):
        (result,) = results(world, name)
        assert (result["ref"], result["id"], result["from"]) == (id, f"{id}-result", "relay")
        assert result["payload"] == {
            "status": "passed",
            "votes": {"approve": 3, "reject": 1},
            "quorum": 4,
        }
    late = vote(world, "four", id)
    assert late.code == "not_allowed"
    assert world.heard("four")[-1]["payload"]["message"] == "this vote has ended: passed"


def test_a_second_vote_replaces_the_first() -> None:
    world = World(Voting)
    world.join("one", "two", "three")
    id = proposed(world)
    vote(world, "two", id)
    vote(world, "two", id, approve=False)
    vote(world, "three", id)
    assert results(world, "one") == []
    vote(world, "one", id, approve=False)
    assert results(world, "one")[0]["payload"]["votes"] == {"approve": 1, "reject": 2}


@pytest.mark.parametrize(
    ("approvals", "rejections", "status"), [(1, 1, "expired"), (2, 2, "rejected"), (0, 0, "expired")]
)
def test_a_deadline_ends_a_vote(approvals: int, rejections: int, status: str) -> None:
    world = World(Voting)
    names = ["one", "two", "three", "four", "five"]
    world.join(*names)
    id = proposed(world, deadline=world.now + 1_000)
    for name in names[:approvals]:
        vote(world, name, id)
    for name in names[approvals : approvals + rejections]:
        vote(world, name, id, approve=False)
    assert world.hub.due_at() == world.now + 1_000
    world.pass_to(world.now + 999)
    assert results(world, "five") == []
    world.pass_to(world.now + 1)
    assert vote(world, "five", id).code == "not_allowed"
    (result,) = results(world, "one")
    assert result["payload"]["status"] == status
    assert world.hub.due_at() is None


def test_weights_and_quorum() -> None:
    world = World(lambda: Voting({"one": 3}))
    world.join("one", "two", "three")  # 5 in all
    id = proposed(world, "two", quorum=1)  # it can only be raised
    world.say("one", "relay", {"approve": True, "weight": 100}, type="vote", ref=id)
    assert results(world, "two")[0]["payload"] == {
        "status": "passed",
        "votes": {"approve": 3, "reject": 0},
        "quorum": 5,
    }
    id = proposed(world, quorum=8)
    for name in ("one", "two"):
        vote(world, name, id)
    assert results(world, "two") == []
    vote(world, "three", id)
    assert results(world, "two")[0]["payload"]["quorum"] == 8


def test_who_was_active_in_seven_days_counts() -> None:
    world = World(Voting)
    world.join("one", "two", "three")
    world.leave("three")
    world.now += 4 * DAY
    world.say("one", payload="still here")
    assert _quorum_of(world) == 3
    world.start()
    world.join("one")
    assert _quorum_of(world) == 3
    world.now += 3 * DAY
    world.say("one", payload="still here")
    assert _quorum_of(world) == 1


def _quorum_of(world: World) -> int:
    id = proposed(world, quorum=None)
    voting: Any = world.hub.extensions[0]
    quorum: int = voting._open.pop(id).quorum
    voting._due_is_known = False
    return quorum


WRONG_PROPOSALS: list[dict[str, Any]] = [
    {"deadline": "tomorrow"},
    {"deadline": 5},
    {"deadline": 1_700_000_000_000 + 8 * DAY},
    {"deadline": True},
    {"quorum": 0},
    {"quorum": "many"},
    {"quorum": 1 << 60},
]


@pytest.mark.parametrize("members", WRONG_PROPOSALS)
def test_a_wrong_proposal_is_refused_before_others_see_it(members: dict[str, Any]) -> None:
    world = World(Voting)
    world.join("one", "two")
    assert world.say("one", payload=1, type="proposal", **members).code == "invalid_message"
    assert world.heard("two") == []


def test_votes_that_mean_nothing() -> None:
    world = World(Voting)
    world.join("one", "two")
    id = proposed(world)
    assert vote(world, "two", "nonsense").code == "not_allowed"
    assert vote(world, "two", id, approve=1).code == "invalid_message"
    assert vote(world, "two", id, approve=None, to="one").code == "invalid_message"
    assert vote(world, "two", "nonsense", to="one").outcome == "passed"  # a message like any other
    for _ in range(19):
        proposed(world)
    assert world.say("one", payload=1, type="proposal").code == "unavailable"
    assert proposed(world, "two")


def test_a_vote_goes_on_after_a_restart_and_ends_once() -> None:
    world = World(Voting)
    world.join("one", "two", "three")
    id = proposed(world, deadline=world.now + 10_000)
    vote(world, "two", id)
    world.now += 9_500
    world.start()  # in its last half second
    world.join("one", "two")
    world.pass_to(world.now + 1_000)
    assert results(world, "one") == []
    assert vote(world, "one", id).code == "not_allowed"  # late, though it has not ended
    world.join("three")  # comes back in time to hear it
    world.pass_to(world.now + 30_000)
    assert [each["payload"]["votes"] for each in results(world, "three")] == [{"approve": 1, "reject": 0}]
    world.start()
    world.join("one")
    world.pass_to(world.now + DAY)
    assert results(world, "one") == []
    assert vote(world, "one", id).code == "not_allowed"


def test_an_end_is_kept_before_it_is_announced() -> None:
    world = World(Voting)
    world.join("one")
    id = proposed(world)
    world.stores["voting"].fails = True
    vote(world, "one", id)
    assert results(world, "one") == []
    assert vote(world, "one", id).code == "not_allowed"
    world.stores["voting"].fails = False
    world.pass_to(world.now + 5_000)
    (result,) = results(world, "one")
    assert result["payload"]["status"] == "passed"
    # it was killed before it could note that it was announced: the same id again
    voting: Any = world.hub.extensions[0]
    ended = voting._ended[id]
    ended.announced = False
    world.stores["voting"].records[f"vote {id}"] = msgspec.json.encode(ended)
    world.start()
    world.join("one")
    world.pass_to(world.now + 30_000)
    assert [each["id"] for each in results(world, "one")] == [result["id"]]


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.booleans(), st.booleans()), max_size=30))
@settings(max_examples=examples(100), deadline=None)
def test_every_vote_ends_once_whatever_is_voted(votes: list[tuple[str, bool, bool]]) -> None:
    world = World(Voting)
    world.join(*"abcdef")
    id = proposed(world, "a", deadline=world.now + 1_000)
    heard: list[Any] = []
    for name, approve, restarts in votes:
        vote(world, name, id, approve)
        heard += results(world, "a")
        if restarts:
            world.start()
            world.join(*"abcdef")
    world.pass_to(world.now + 31_000)
    heard += results(world, "a")
    (result,) = heard
    tally = result["payload"]["votes"]
    assert (result["payload"]["status"] == "passed") == (tally["approve"] > 3)


# ---- one's own


class Shouting(HubExtension):
    """An extension as users write them."""

    name = "shouting"
    version = "2"

    def command(self, frame: HubFrame) -> bool:
        if frame.type != "shout":
            return False
        if not isinstance(frame.value("payload"), str):
            raise HubRefusal("invalid_message", "a text")
        self.hub.announce("shouted", frame.value("payload").upper(), frame.ref or None)
        return True


def test_an_extension_of_ones_own() -> None:
    world = World(Shouting, Receipts)
    world.join("one", "two")
    assert world.say("one", "relay", "hey", type="shout").outcome == "command"
    assert [each["payload"] for each in world.heard("two")] == ["HEY"]
    assert world.say("one", "relay", 5, type="shout").code == "invalid_message"
    counts = world.hub.statistics()
    assert (counts.commands, counts.refused, counts.frames) == (1, 1, 2)


# ---- anything at all

WORDS = st.sampled_from(
    [
        "proposal", "vote", "command", "query", "discovery", "history", "search", "replay", "subscribe",
        "ping", "semantic_subscribe", "approve", "limit", "since", "keywords", "agents", "*", "relay", "a",
        "b", "m-2", "deadline", "quorum", "receipt", "ref", "no_store", "\ud800", "x" * 300, "",
    ]
)  # fmt: skip
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
COMMANDS = st.fixed_dictionaries(
    {"command": WORDS}, optional=dict.fromkeys(("limit", "since", "query", "keywords"), VALUES)
)
FRAMES = st.fixed_dictionaries(
    {
        "to": st.lists(st.sampled_from(["*", "relay", "a", "b", "c"]), max_size=3),
        "payload": VALUES | COMMANDS,
    },
    optional={
        "type": WORDS | VALUES,
        "ref": WORDS | VALUES,
        "deadline": VALUES,
        "quorum": VALUES,
        "receipt": VALUES,
        "keywords": VALUES,
        "no_store": VALUES,
    },
)


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from("abc"), FRAMES), max_size=20))
@settings(max_examples=examples(300), deadline=None)
def test_whatever_agents_send_the_hub_goes_on_and_its_counts_add_up(said: list[tuple[str, Any]]) -> None:
    world = World(Receipts, Presence, History, Semantic, Voting)
    world.join("a", "b", "c")
    for name, frame in said:
        world.now += 50_000_000
        world.peers[name].receive(json.dumps(frame), 0.0)
        world.hub.due()
    counts = world.hub.statistics()
    assert counts.frames == len(said) == counts.passed + counts.commands + counts.refused
    for name in "abc":
        for heard in world.heard(name):
            assert heard["from"] in ("relay", *"abc")
    world.start()  # what was kept can be read again
    world.join("a")
    assert world.ask("a", {"command": "history"})["command"] == "history"
