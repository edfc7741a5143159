"""The hub's end and the agent's, without a socket: every frame has one fate, and the counts add up."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from lmos_actors.protocol.relay import (
    RELAY,
    STEP,
    Hub,
    HubConnection,
    HubOptions,
    Outbox,
    RelayAnswer,
    RelayClient,
    RelayFault,
    RelayMessage,
    Welcomed,
)
from tests.matrix import examples


def hub(**options: Any) -> Hub:
    return Hub(
        HubOptions(**options), new_id=map("m-{}".format, count(1)).__next__, now=lambda: 1_700_000_000_000
    )


def opened(made: Hub, *names: str) -> list[HubConnection]:
    """Connect agents, and take their welcomes."""
    found = [made.connect(name, 0.0) for name in names]
    for each in found:
        each.frames(1 << 20)
    return found


def said(connection: HubConnection, frame: Any, at: float = 0.0) -> Any:
    data = frame if isinstance(frame, str | bytes) else json.dumps(frame)
    return connection.receive(data, at)


def heard(connection: HubConnection) -> list[dict[str, Any]]:
    return [json.loads(frame) for frame in connection.frames(1 << 30)]


def test_a_welcome_says_what_there_is() -> None:
    made = hub(name="here")
    connection = made.connect("agent-1", 0.0)
    (welcome,) = heard(connection)
    assert (welcome["from"], welcome["to"], welcome["type"]) == (RELAY, ["agent-1"], "welcome")
    assert welcome["payload"]["capabilities"] == ["broadcast", "direct", "subscribe"]
    assert welcome["payload"]["limits"]["max_message_size"] == 65_536
    assert RelayClient().receive(json.dumps(welcome).encode()) == Welcomed(
        "agent-1", "here", (), ("broadcast", "direct", "subscribe"), welcome["payload"]["limits"]
    )


def test_payload_and_private_members_pass_as_they_came() -> None:
    one, two = opened(hub(), "one", "two")
    passed = '"payload":{"n":12345678901234567890,"f":1.50,"e":"\\u00fc"},"x":[ 1 ],"type":{"a":1}'
    text = '{"to":["two"],' + passed + ',"ts":5}'
    fate = said(one, text)
    assert (fate.outcome, fate.delivered, fate.unknown) == ("passed", 1, ())
    (frame,) = two.frames(1 << 20)
    assert passed.encode() in frame
    assert json.loads(frame)["ts"] == 1_700_000_000_000
    assert list(json.loads(frame))[:2] == ["id", "from"]


def test_a_broadcast_is_one_text_for_all() -> None:
    one, two, three = opened(hub(), "one", "two", "three")
    assert said(one, {"to": ["*"], "payload": 1}).delivered == 2
    (first,), (second,) = two.frames(1 << 20), three.frames(1 << 20)
    assert first is second
    assert heard(one) == []


WRONG: list[tuple[Any, str]] = [
    ("{oops", "invalid_message"),
    ("null", "invalid_message"),
    ("[]", "invalid_message"),
    ('{"to":["two"],"payload":NaN}', "invalid_message"),
    ('{"to":["two"],"payload":"\\ud800"', "invalid_message"),
    ({"payload": 1}, "invalid_message"),
    ({"to": [], "payload": 1}, "invalid_message"),
    ({"to": "two", "payload": 1}, "invalid_message"),
    ({"to": ["two", 5], "payload": 1}, "invalid_message"),
    ({"to": ["x"] * 257, "payload": 1}, "invalid_message"),
    ({"to": ["two"]}, "invalid_message"),
    ({"to": ["two"], "payload": 1, "from": "three"}, "auth_mismatch"),
    ({"to": ["two"], "payload": 1, "from": 5}, "auth_mismatch"),
    ({"to": ["two"], "payload": 1, "from": "relay"}, "auth_mismatch"),
    ({"to": ["relay"], "type": "fly"}, "unknown_command"),
    ({"to": ["relay"]}, "unknown_command"),
    ({"to": ["relay"], "type": ["ping"]}, "unknown_command"),
    ({"to": ["relay"], "type": "subscribe", "payload": {"agents": "two"}}, "invalid_message"),
    ({"to": ["relay"], "type": "subscribe", "payload": {"agents": [5]}}, "invalid_message"),
    (
        {"to": ["relay"], "type": "subscribe", "payload": {"agents": [f"a{n}" for n in range(1_025)]}},
        "invalid_message",
    ),
    ('{"to":["two"],"payload":' + "[" * 100 + "]" * 100 + "}", "invalid_message"),
]


@pytest.mark.parametrize(("frame", "code"), WRONG, ids=[str(each[0])[:40] for each in WRONG])
def test_what_is_refused_with_an_error(frame: Any, code: str) -> None:
    one, two = opened(hub(), "one", "two")
    fate = said(one, frame)
    assert (fate.outcome, fate.code) == ("refused", code)
    (error,) = heard(one)
    assert (error["from"], error["type"], error["payload"]["code"]) == (RELAY, "error", code)
    assert error["payload"]["message"]
    assert heard(two) == []
    assert one.closing is None
    assert said(one, {"to": ["two"], "payload": "still here"}).delivered == 1


@pytest.mark.parametrize(
    ("data", "code"),
    [(b"\xc3\x28", 1007), ("x" * 65_537, 1009), (("ü" * 32_769), 1009)],
)
def test_what_closes_the_connection(data: Any, code: int) -> None:
    one, two = opened(hub(), "one", "two")
    assert said(one, data).outcome == "refused"
    assert one.closing is not None
    assert one.closing[0] == code
    assert said(one, {"to": ["two"], "payload": 1}).code == "closed"
    assert heard(two) == []


def test_brackets_in_texts_are_not_levels() -> None:
    one, _ = opened(hub(), "one", "two")
    assert said(one, {"to": ["two"], "payload": '[{"\\"' * 500}).outcome == "passed"


def test_commands_are_answered_and_heard_by_nobody_else() -> None:
    made = hub()
    one, two = opened(made, "one", "two")
    for type in ("ping", "list_subscriptions"):
        assert said(one, {"to": ["relay", "two", "*"], "type": type}).outcome == "command"
    said(one, {"to": ["relay"], "type": "subscribe", "payload": {"agents": ["two", "nobody", "two"]}})
    said(one, {"to": ["relay"], "type": "list_subscriptions"})
    said(one, {"to": ["relay"], "type": "unsubscribe", "payload": {"agents": ["two", "three"]}})
    answers = [(frame["type"], frame.get("payload")) for frame in heard(one)]
    assert answers == [
        ("pong", None),
        ("subscriptions", {"agents": []}),
        ("subscribed", {"agents": ["two", "nobody", "two"], "count": 3}),
        ("subscriptions", {"agents": ["two", "nobody"]}),
        ("unsubscribed", {"agents": ["two", "three"], "count": 1}),
    ]
    assert heard(two) == []
    assert made.statistics().commands == 5


def test_whom_an_agent_follows_counts_where_broadcasts_are_followed() -> None:
    made = hub(broadcasts="followed")
    one, two, three = opened(made, "one", "two", "three")
    said(three, {"to": ["relay"], "type": "subscribe", "payload": {"agents": ["one"]}})
    heard(three)
    for sender in (one, two):
        said(sender, {"to": ["*"], "payload": sender.agent})
    said(two, {"to": ["three"], "payload": "direct"})
    assert [frame["payload"] for frame in heard(three)] == ["one", "direct"]
    made.disconnect(three, 10.0)
    (again,) = [made.connect("three", 69.0)]
    heard(again)
    said(two, {"to": ["*"], "payload": "unheard"})
    assert heard(again) == []
    made.disconnect(again, 70.0)
    late = made.connect("three", 131.0)
    heard(late)
    said(two, {"to": ["*"], "payload": "heard"})
    assert [frame["payload"] for frame in heard(late)] == ["heard"]


def test_a_newer_connection_takes_over() -> None:
    made = hub()
    old, two = opened(made, "one", "two")
    (new,) = opened(made, "one")
    assert old.closing == (4009, "replaced")
    assert said(two, {"to": ["one"], "payload": 1}).delivered == 1
    assert (len(heard(new)), len(heard(old))) == (1, 0)
    made.disconnect(old, 1.0)
    assert said(two, {"to": ["one"], "payload": 2}).delivered == 1
    made.disconnect(new, 2.0)
    assert said(two, {"to": ["one"], "payload": 3}).unknown == ("one",)
    assert list(made.connected) == ["two"]


def test_rates_are_of_the_agent_and_errors_do_not_amplify() -> None:
    made = hub(rates=((60, 60.0),))
    one, two = opened(made, "one", "two")
    message = {"to": ["two"], "payload": 1}
    assert [said(one, message, 0.0).outcome for _ in range(100)].count("passed") == 60
    assert [frame["payload"]["code"] for frame in heard(one)] == ["rate_limit"]
    made.disconnect(one, 0.0)
    (again,) = [made.connect("one", 0.5)]
    heard(again)
    assert said(again, message, 0.5).outcome == "refused"  # the same agent
    assert said(again, message, 2.0).outcome == "passed"
    at = 2.0
    while again.closing is None:
        at += 0.1
        said(again, message, at)
    assert again.closing == (4029, "rate limit")
    assert 60 <= at < 65
    assert len(heard(again)) <= 66
    assert len(heard(two)) == 60 + 1 + made.statistics().passed - 61


def test_an_agent_that_does_not_read_loses_broadcasts_and_then_its_place() -> None:
    made = hub(outbox_bytes=10_000, outbox_most=30_000, rates=())
    one, slow = opened(made, "one", "slow")
    for number in range(100):
        said(one, {"to": ["*"], "payload": f"{number:0500}"})
    said(one, {"to": ["slow"], "payload": "direct"})
    assert slow.outbox.waiting_bytes <= 10_000
    frames = heard(slow)
    gap, direct = frames[0], frames[-1]
    assert (gap["type"], gap["from"]) == ("gap", RELAY)
    kept = [int(frame["payload"]) for frame in frames[1:-1]]
    assert kept == list(range(100 - len(kept), 100))
    assert gap["payload"] == {"lost": 100 - len(kept)}
    assert direct["payload"] == "direct"
    assert made.statistics().dropped == 100 - len(kept)
    for number in range(100):
        said(one, {"to": ["slow"], "payload": f"{number:0500}"})
    assert slow.outbox.is_too_full
    slow.frames(100)
    assert slow.closing is not None
    assert slow.closing[0] == 1013


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("put"), st.integers(1, 50), st.booleans()),
            st.tuples(st.just("take"), st.integers(1, 200), st.just(False)),
        )
    )
)
@pytest.mark.parametrize("unit", [1, 1_000])
def test_of_an_outbox_nothing_is_lost_but_what_is_counted(
    unit: int, steps: list[tuple[str, int, bool]]
) -> None:
    woken: list[int] = []
    charged: list[int] = []
    gap = b"gap %d"
    box = Outbox(100 * unit, 10_000 * unit, gap.__mod__, lambda: woken.append(1), charged.append, int)
    sent: dict[bytes, bool] = {}
    came: list[bytes] = []
    reported = 0
    is_empty = True
    for number, (what, size, is_broadcast) in enumerate([*steps, ("take", 1 << 20, False)]):
        if what == "put":
            data = b"%05d" % number + b"x" * (size * unit)
            sent[data] = is_broadcast
            before = len(woken)
            box.put(data, is_broadcast=is_broadcast)
            assert len(woken) > before or not is_empty
            is_empty = False
        else:
            frames = box.frames(size * unit)
            is_empty = is_empty or sum(map(len, frames)) < size * unit
            reported += sum(int(frame[4:]) for frame in frames if frame.startswith(b"gap"))
            came += [frame for frame in frames if not frame.startswith(b"gap")]
        assert sum(charged) == box.waiting_bytes // STEP * STEP
    assert came == sorted(came)
    missing = set(sent) - set(came)
    assert all(sent[each] for each in missing)
    assert box.dropped == reported == len(missing)
    assert box.waiting_bytes == 0


NAMES = ("a", "b", "c", "d")
FRAMES = st.one_of(
    st.fixed_dictionaries(
        {
            "to": st.lists(st.sampled_from((*NAMES, "*", "relay", "nobody")), max_size=4),
            "payload": st.one_of(st.none(), st.integers(), st.text(max_size=5)),
        },
        optional={"type": st.sampled_from(("ping", "thought", "subscribe")), "from": st.sampled_from(NAMES)},
    ),
    st.sampled_from(("{", "null", "[]", "5")),
)


@settings(max_examples=examples(200))
@given(
    st.lists(
        st.tuples(st.sampled_from(NAMES), FRAMES, st.sampled_from(("say", "leave", "come"))), max_size=30
    )
)
def test_every_frame_has_one_fate_and_the_sum_adds_up(steps: list[Any]) -> None:
    made = hub(rates=())
    clients = {name: RelayClient() for name in NAMES}
    there: dict[str, HubConnection] = {}
    messages = fates = welcomes = answers = 0

    def listen(name: str) -> None:
        nonlocal messages, welcomes, answers
        for frame in there[name].frames(1 << 30):
            event = clients[name].receive(frame)
            messages += isinstance(event, RelayMessage)
            welcomes += isinstance(event, Welcomed)
            answers += isinstance(event, RelayAnswer | RelayFault)

    opened_ = 0
    for name, frame, what in steps:
        if what == "leave" and name in there:
            listen(name)
            made.disconnect(there.pop(name), 0.0)
        elif name not in there:
            there[name] = made.connect(name, 0.0)
            opened_ += 1
        else:
            fates += 1
            said(there[name], frame)
    for name in there:
        listen(name)
    counts = made.statistics()
    assert counts.frames == fates == counts.passed + counts.commands + counts.refused
    assert messages == counts.deliveries
    assert answers == counts.commands + counts.refused
    assert welcomes == opened_
    assert all(client.unread == client.repeated == 0 for client in clients.values())


# ---- the agent's end


def test_an_agent_names_itself_once_it_knows_its_id() -> None:
    client = RelayClient()
    assert json.loads(client.message(["*"], 1)) == {"to": ["*"], "payload": 1}
    client.receive(b'{"from":"relay","to":["me"],"type":"welcome","payload":{}}')
    assert json.loads(client.message(["*"], 1, type="data", ref="m", members={"x": 1})) == {
        "from": "me", "to": ["*"], "type": "data", "ref": "m", "payload": 1, "x": 1,
    }  # fmt: skip
    assert json.loads(client.command("ping")) == {
        "from": "me",
        "to": ["relay"],
        "type": "ping",
        "payload": None,
    }
    shy = RelayClient("me", names_itself=False)
    assert "from" not in json.loads(shy.message(["you"], 1))
    with pytest.raises(ValueError, match="a message has targets"):
        client.message([], 1)
    with pytest.raises(ValueError, match="'ts' is no private member"):
        client.message(["you"], 1, members={"ts": 5})
    with pytest.raises(TypeError):
        client.message(["you"], object())


OF_RELAY = '{"from":"relay","to":["me"],"type":'

ODD: list[tuple[str, Any]] = [
    ("{", None),
    ("null", None),
    ("[]", None),
    ('{"from":5,"to":["me"],"payload":1}', None),
    ('{"from":"x","to":"me","payload":1}', None),
    ('{"type":"welcome","relay":"old","version":"1"}', Welcomed("me", "old")),
    (
        OF_RELAY + '"welcome","payload":{"extensions":["voting",{"name":"history"},5]}}',
        Welcomed("me", "", ("voting", "history")),
    ),
    ('{"error":"rate_limit","message":"slow down"}', RelayFault("rate_limit", "slow down")),
    (OF_RELAY + '"error","payload":{"error":"x","message":"y"}}', RelayFault("x", "y")),
    (OF_RELAY + '"pong"}', RelayAnswer("pong")),
    (OF_RELAY + '"gap","payload":{"lost":3}}', RelayAnswer("gap", {"lost": 3})),
    (
        '{"from":"evil","to":["me"],"type":"welcome","payload":{"relay":"mine"}}',
        RelayMessage("", "evil", ("me",), {"relay": "mine"}, "welcome"),
    ),
    (
        '{"id":"1","from":"x","to":["*",5],"payload":null,"type":7,"ref":null,"ts":true,"z":2}',
        RelayMessage("1", "x", ("*",), None, members={"z": 2}),
    ),
]


@pytest.mark.parametrize(("text", "event"), ODD, ids=[each[0][:50] for each in ODD])
def test_what_an_agent_makes_of_odd_frames(text: str, event: Any) -> None:
    client = RelayClient("me")
    assert client.receive(text.encode()) == event
    assert client.unread == (event is None)
    assert client.id == "me"


def test_a_message_is_heard_once() -> None:
    client = RelayClient("me")
    frame = b'{"id":"7","from":"x","to":["*"],"payload":1}'
    assert client.receive(frame) is not None
    assert client.receive(frame) is None
    assert (client.repeated, client.unread) == (1, 0)
    for number in range(2_000):
        client.receive(b'{"id":"n%d","from":"x","to":["*"],"payload":1}' % number)
    assert client.receive(frame) is not None  # so many ids are remembered
