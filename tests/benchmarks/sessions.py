"""One request and its answer through both sessions of a connection, against coding them by msgspec alone."""

from __future__ import annotations

from time import perf_counter as clock
from typing import TYPE_CHECKING, Any

from lmos_actors._core import Entropy
from lmos_actors.protocol import lmos
from tests.benchmarks.codec import AT, QUESTION, THING, bare_decode, bare_encode, sample

if TYPE_CHECKING:
    from tests.benchmarks.cases import Program


def joined(habits: Any) -> tuple[lmos.ConsumerSession, lmos.ThingSession]:
    """Two ends of a connection that have got to know each other."""
    new_id = Entropy().new_id
    offered = habits == "spec"
    consumer = lmos.ConsumerSession(selected=offered, habits=habits, new_id=new_id)
    thing = lmos.ThingSession(offered=offered, new_id=new_id, memory=lmos.AnswerMemory())
    consumer.read(THING, "units")
    _meet(consumer, thing)
    return consumer, thing


def _meet(consumer: lmos.ConsumerSession, thing: lmos.ThingSession) -> None:
    for frame in consumer.frames():
        for asked in thing.receive(frame, 0.0):
            if isinstance(asked, lmos.IncomingRequest):
                if asked.verb.word == "read":
                    thing.answer(asked, "kelvin", AT)
                else:
                    thing.complete(asked, "sunny")
    for frame in thing.frames():
        consumer.receive(frame)


def pairs(verb: str, habits: Any) -> Program:
    """Requests answered a second, one after another."""

    def program(n: int) -> float:
        consumer, thing = joined(habits)
        began = clock()
        for _ in range(n):
            if verb == "read":
                consumer.read(THING, "units")
            else:
                consumer.invoke(THING, "getWeather", QUESTION)
            _meet(consumer, thing)
        rate = n / (clock() - began)
        counts = consumer.statistics()
        assert (counts.answered, counts.open, counts.strays) == (n + 1, 0, 0)
        return rate

    return program


def bare_pairs(request: str, answer: str) -> Program:
    """The same two messages written and read."""
    messages = [bare_decode(bare_encode(sample(kind))) for kind in (request, answer)]

    def program(n: int) -> float:
        one, other = messages
        began = clock()
        for _ in range(n):
            bare_decode(bare_encode(one))
            bare_decode(bare_encode(other))
        return n / (clock() - began)

    return program
