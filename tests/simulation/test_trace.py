"""The log of a run."""

from __future__ import annotations

import hashlib
import io
import json
import math
import sys
from typing import TYPE_CHECKING, Any

import pytest
import trio
from hypothesis import given, strategies as st

from lmos_actors._core import LogInstrument, encode_plain, plain
from lmos_actors.simulation import Difference, TraceLog, first_difference

if TYPE_CHECKING:
    from collections.abc import Callable


def begun(**options: object) -> TraceLog:
    log = TraceLog(**options)  # type: ignore[arg-type]
    log.begin(seed=1, now=lambda: 2.5)
    return log


def test_the_first_line_says_what_a_repetition_depends_on() -> None:
    head = json.loads(begun().lines()[0])
    assert head["schema"] == "lmos-actors/trace/v1"
    assert head["seed"] == 1
    assert head["python"] == f"CPython {sys.version.split()[0]}"
    assert head["packages"]["trio"] == trio.__version__
    assert "libc" in head


def test_one_line_a_record_members_in_order() -> None:
    log = begun()
    log.record("delivered", "root/weather", {"to": "x", "action": "forecast"})
    log.record("started", "root", {})
    assert log.lines()[1:] == [
        '{"n":1,"t":2.500000,"kind":"delivered","agent":"root/weather","action":"forecast","to":"x"}',
        '{"n":2,"t":2.500000,"kind":"started","agent":"root"}',
    ]
    assert len(log) == 2


class Opaque:
    pass


class Hopeless:
    def __repr__(self) -> str:
        raise ValueError("no")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Opaque(), f"<{__name__}.Opaque object>"),
        (Hopeless(), "<Hopeless>"),
        (KeyError("x"), "KeyError('x')"),
        ({3, 1, 2}, [1, 2, 3]),
        ({"b", "a"}, ["a", "b"]),
        ({(1, 2): 3}, "{(1, 2): 3}"),
        ("\ud800", "'\\ud800'"),
        ((1, None, True), [1, None, True]),
        (b"\xff", "/w=="),
    ],
)
def test_what_json_cannot_say_is_described(value: object, text: object) -> None:
    log = begun()
    log.record("event", "a", {"value": value, "other": 1})
    line = json.loads(log.lines()[1])
    assert (line["value"], line["other"]) == (text, 1)
    assert plain(value) == text


def test_fields_cannot_hide_the_records_own_members() -> None:
    log = begun()
    log.record("event", "a", {"n": 7, "kind": "other"})
    line = json.loads(log.lines()[1])
    assert (line["n"], line["kind"], line["n_"], line["kind_"]) == (1, "event", 7, "other")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)


@given(
    st.text(st.characters()), st.dictionaries(st.text(st.characters(), max_size=5), json_values, max_size=4)
)
def test_every_line_is_json(agent: str, fields: dict[str, object]) -> None:
    log = begun()
    log.record("event", agent, fields)
    assert json.loads(log.lines()[1])["n"] == 1


@pytest.mark.parametrize("reorder", [dict, lambda d: dict(reversed(d.items()))])
def test_the_order_of_fields_does_not_matter(
    reorder: Callable[[dict[str, object]], dict[str, object]],
) -> None:
    one, other = begun(), begun()
    fields: dict[str, object] = {"a": {"x": 1, "y": 2}, "b": 2}
    one.record("event", "a", fields)
    other.record("event", "a", reorder(fields))
    assert one.digest() == other.digest()


def written_at_once(number: int, kind: str, agent: str, fields: dict[str, object]) -> str:
    """What a record comes to, whatever its kind: head and fields, each encoded when it is made."""
    name, body = encode_plain({"agent": agent}).decode(), encode_plain(fields).decode()
    more = f",{body[1:]}" if fields else "}"
    return f'{{"n":{number},"t":2.500000,"kind":"{kind}",{name[1:-1]}{more}'


odd_values = json_values | st.sampled_from(
    [1 << 70, math.nan, math.inf, "\ud800", b"x", object, {"a": object}]
)
KEYS = {
    "sent": ("id", "trace", "affordance", "verb", "from", "input"),
    "delivered": ("id", "affordance"),
    "answered": ("id", "affordance", "value"),
    "dropped": ("id",),
}
frequent = st.sampled_from([*KEYS]).flatmap(
    lambda kind: st.tuples(
        st.just(kind),
        st.text() | st.just("\ud800"),
        st.fixed_dictionaries(dict.fromkeys(KEYS[kind], odd_values), optional={"error": odd_values})
        | st.dictionaries(st.sampled_from([*KEYS["sent"], "value", "output"]), odd_values),
    )
)


@given(st.lists(frequent, max_size=8))
def test_frequent_kinds_are_written_as_all_others(records: list[tuple[Any, str, dict[str, object]]]) -> None:
    log = begun()
    for kind, agent, fields in records:
        log.record(kind, agent, fields)
    wanted = [written_at_once(number, *record) for number, record in enumerate(records, start=1)]
    assert log.lines()[1:] == wanted


def test_a_value_is_written_as_it_was_then() -> None:
    log, value = begun(), ["then"]
    sent: dict[str, object] = {"id": 1, "trace": 1, "affordance": "a", "verb": "tell", "from": "b"}
    log.record("sent", "a", {**sent, "input": value})
    log.record("answered", "a", {"id": 1, "affordance": "a", "value": value})
    value.append("later")
    assert [
        json.loads(line)[name] for line, name in zip(log.lines()[1:], ("input", "value"), strict=True)
    ] == [
        ["then"],
        ["then"],
    ]


@pytest.mark.parametrize("keep", [None, 0, 1, 255, 256, 257, 600])
def test_the_last_lines_are_kept(keep: int | None) -> None:
    log = begun(keep=keep)
    fill(log, 600)
    log.end()
    numbers = [json.loads(line).get("n") for line in log.lines()]
    assert numbers == [None, *range(1, 601), None][602 - keep if keep is not None else 0 :]


def fill(log: TraceLog, count: int) -> None:
    for n in range(count):
        log.record("event", "a", {"x": n})


def test_written_through_and_kept_within_bounds() -> None:
    file = io.StringIO()
    log, whole = begun(to=file, keep=10), begun()
    fill(log, 1000)
    fill(whole, 1000)
    assert len(log._waiting) < 300
    assert log.lines() == whole.lines()[-10:]
    assert file.getvalue().splitlines() == whole.lines()
    records = "".join(file.getvalue().splitlines(keepends=True)[1:])
    assert log.digest() == whole.digest() == hashlib.sha256(records.encode()).hexdigest()


def test_the_digest_may_be_asked_at_any_time() -> None:
    one, other = begun(), begun()
    for n in range(50):
        fill(one, 7)
        fill(other, 7)
        assert n % 5 or one.digest()
    assert one.digest() == other.digest()
    fill(one, 1)
    assert one.digest() != other.digest()


def test_a_log_holds_one_run() -> None:
    with pytest.raises(RuntimeError, match="one run"):
        begun().begin(seed=2, now=lambda: 0.0)


def test_in_real_time_a_log_begins_by_itself() -> None:
    log = TraceLog()

    async def main() -> None:
        log.record("started", "root", {})

    trio.run(main)
    head, first = map(json.loads, log.lines())
    assert head["seed"] is None
    assert first["kind"] == "started"


def test_first_difference() -> None:
    one, other = begun(), begun()
    fill(one, 5)
    fill(other, 5)
    assert first_difference(one, other) is None
    one.record("event", "a", {"x": 1})
    found = first_difference(one, other)
    assert found == Difference(7, one.lines()[6], None)
    assert "(the log has ended)" in str(found)
    other.record("event", "a", {"x": 2})
    found = first_difference(one, other)
    assert found is not None
    assert (found.line, found.first, found.second) == (7, one.lines()[6], other.lines()[6])
    with_ends = [line + "\n" for line in one.lines()]
    assert first_difference(one, with_ends) is None


def test_the_logging_instrument_gives_plain_data() -> None:
    import structlog.testing

    with structlog.testing.capture_logs() as logs:
        instrument = LogInstrument()
        instrument.record("event", "a", {"event": "asked", "agent": "b", "x": Opaque(), "big": 10**400})
        instrument.record("crashed", "a", {"error": KeyError("x")})
    assert [entry["log_level"] for entry in logs] == ["info", "error"]
    assert (logs[0]["event"], logs[0]["event_name"], logs[0]["agent"], logs[0]["agent_name"]) == (
        "event",
        "asked",
        "a",
        "b",
    )
    json.dumps(logs)
