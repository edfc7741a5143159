"""Replays of language models: the answers are recorded, and what is asked anew is a miss that says why."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.scenario.project import Project
from tests.scenario.thinkers import (
    LOOK_UP,
    SHIPPED,
    agents,
    ask,
    fails,
    mistakes,
    passes,
    said,
    scripted,
    write_desk,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

STEPS = [ask(), said("It is on its way.")]
REPLAY = {"from": "replay", "speaks": "model", "log": "log.jsonl"}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    path = list(sys.path)
    made = Project(tmp_path_factory.mktemp("models"))
    write_desk(made)
    yield made
    sys.path[:] = path
    sys.modules.pop("thinking_desk", None)


@pytest.fixture(scope="module")
def recorded(project: Project) -> Project:
    other = {"when": {"contains": "Hello"}, "output": "Hi."}
    steps = [ask("Hello", id="hello"), *STEPS]
    result = passes(project, steps, agents(scripted(other, LOOK_UP, SHIPPED)))
    project.write("log.jsonl", "".join(f"{line}\n" for line in result.log))
    return project


@pytest.mark.parametrize("world", ["memory", "wire", "websocket"])
@pytest.mark.parametrize("how", [{}, {"speaks": "lmos", "use": "lmos_actors.llm:Model"}])
def test_a_model_answers_as_it_once_did(recorded: Project, world: str, how: dict[str, str]) -> None:
    steps = [ask("Hello", id="hello"), *STEPS]
    passes(recorded, steps, agents({**REPLAY, **how}), world=world)


def test_a_reworded_tool_is_named_with_both_texts(recorded: Project) -> None:
    doc = "Look an order up, by its number, in all shops of this country and of its neighbours; or say so."
    text = fails(recorded, STEPS, agents({**REPLAY, "unused": "allowed"}, doc=doc))
    assert 'a recorded invoke generate {"text": "Where is my order?"} from desk' in text
    assert "the nearest is at log.jsonl:" in text
    nearest = int(text.partition("log.jsonl:")[2].partition(":")[0])
    line = (recorded.root / "log.jsonl").read_text(encoding="utf-8").splitlines()[nearest - 1]
    assert "Where is my order?" in line
    assert '"tool"' not in line  # the first of the two requests of that turn
    asked = '"Look an order up, by its number, in all shops of this countr…"'
    recorded_text = '"Look an order up."'
    assert f"at $.tools[look_up].description recorded is {recorded_text}, and asked was {asked}" in text
    assert "--update-recordings" not in text  # no class is known that could be recorded
    of_class = {**REPLAY, "unused": "allowed", "use": "lmos_actors.llm:Model"}
    text = fails(recorded, STEPS, agents(of_class, doc=doc))
    assert re.search(r"; if that is wanted: lmos-actors run \S+story.yaml --update-recordings", text)


def test_what_was_said_otherwise_is_shown(recorded: Project) -> None:
    text = fails(recorded, [ask("Where is my parcel?")], agents({**REPLAY, "unused": "allowed"}))
    assert (
        'at $.messages[0].text recorded is "Where is my order?", and asked was "Where is my parcel?"' in text
    )


def test_a_turn_more_often_than_recorded_says_so(recorded: Project) -> None:
    steps = [ask("Hello", id="a"), ask("Hello", id="b")]
    assert "it was recorded once, and has been asked more often" in fails(
        recorded, steps, agents({**REPLAY, "unused": "allowed"})
    )


def test_a_replay_that_speaks_model_is_one(recorded: Project) -> None:
    cast: Any = agents({**REPLAY, "use": "thinking_desk.py:Orders"})
    assert "Orders is no language model" in mistakes(recorded, STEPS, cast)
