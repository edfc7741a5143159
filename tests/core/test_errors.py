"""Exceptions of the package are themselves again when they have been pickled or copied."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from lmos_actors import Agent, AgentDied, ChildSpec, SupervisorSpec, action, errors as errors
from lmos_actors.actors import ExitReason
from lmos_actors.errors import hint_at, nearest
from lmos_actors.protocol.lmos import Problem
from lmos_actors.testing import open_test_node

CAUSE = ValueError("x")
MADE: list[errors.LmosActorsError] = [
    errors.NotFound("agent", "desk", where="the node", known=["desks"]),
    errors.InvalidInput("Expected `int`", "$.count"),
    errors.NotAllowed("read-only"),
    errors.ActionFailed({"code": 1}),
    errors.ActionCancelled(),
    errors.MailboxFull("desk", 3),
    errors.MailboxFull("desk", 3, circle=("a waits", "b waits")),
    errors.AgentUnavailable("desk", "stopping", retry_in=1.5),
    errors.AgentDied("ValueError: x", started=False, agent="desk"),
    errors.LinkedAgentDied("desk", 2, ExitReason("error", error=CAUSE)),
    errors.DeadlineExceeded("desk", 0.5),
    errors.OutcomeUnknown("desk"),
    errors.Unauthorized("who are you"),
    errors.Forbidden("not you"),
    errors.RateLimited(1.5),
    errors.LocalProtocolError("answered twice"),
    errors.RemoteProtocolError(
        Problem(type="about:blank", title="Teapot", status=418, detail="short and stout")
    ),
    errors.NameTaken("desk", "root"),
    errors.WrongState("desk", "running", "stop it first"),
    errors.StartFailed("desk", "no room"),
    errors.StopFailed("desk"),
    errors.RestartIntensityExceeded("root", 3, 5, (CAUSE,)),
    errors.ConnectFailed("ws://127.0.0.1:1/", "nothing is listening there"),
    errors.ConnectionLost("it was reset"),
    errors.ConfigError("no such key", "a.yaml:1:2"),
]


def members(error: BaseException) -> dict[str, str]:
    return {name: repr(value) for name, value in vars(error).items()}


@pytest.mark.parametrize("error", MADE, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("again", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
def test_an_error_that_travels_stays_what_it_is(error: Any, again: Any) -> None:
    found = again(error)
    assert type(found) is type(error)
    assert (str(found), found.args, members(found)) == (str(error), error.args, members(error))


async def test_the_death_of_an_agent_travels_without_the_agent(virtual_clock) -> None:
    class Frail(Agent):
        @action
        def crash(self) -> None:
            raise ValueError("x")

    async with open_test_node(SupervisorSpec("root", (ChildSpec("frail", Frail),))) as node:
        with pytest.raises(AgentDied) as caught:
            await node.find(Frail).invoke(Frail.crash)
        died = caught.value
        for found in (copy.copy(died), copy.deepcopy(died), pickle.loads(pickle.dumps(died))):
            assert (str(found), found.agent, found.reason) == (str(died), "frail", "ValueError: x")
            assert found.started


def test_a_word_is_near_to_what_is_one_of_its_parts_where_nothing_is_like_it() -> None:
    assert nearest("base_url", ["model", "url"]) == "url"
    assert nearest("port_number", ["port", "host"]) == "port"
    assert nearest("api_keys", ["keys", "api_key"]) == "api_key"
    assert nearest("curling_stones", ["url", ""]) is None


def test_words_that_are_too_long_to_compare_are_near_to_nothing() -> None:
    long = "a" * 101
    assert nearest(long[:100], [long[:99]]) == long[:99]
    assert nearest(long, [long[:100]]) is None
    assert nearest(long[:100], [long, "b"]) is None


def test_a_hint_names_the_nearest_word_in_the_quotes_of_its_text() -> None:
    assert hint_at("forcast", ["forecast", "alerts"]) == ", did you mean 'forecast'?"
    assert hint_at("forcast", ["forecast", "alerts"], '"') == ', did you mean "forecast"?'
    assert hint_at("forcast", ["alerts"]) == ""
