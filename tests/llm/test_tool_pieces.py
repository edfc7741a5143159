"""Tools that come in pieces, from endpoints that number them oddly: over bytes, and in random assemblies.

A row is what came, and what is asked for: the name and the arguments of each call, or why it is a failure.
"""

from __future__ import annotations

import json
from collections import Counter
from itertools import count, pairwise
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import trio
from hypothesis import given, note, settings, strategies as st

from lmos_actors import ActionFailed
from lmos_actors.llm import ToolRequest
from tests.llm.asking import items, model_of
from tests.llm.provider_server import Reply, anthropic_event
from tests.matrix import examples

if TYPE_CHECKING:
    from collections.abc import Callable

Calls = list[tuple[str, object]]


def piece(index: int | None = None, id: str = "", name: str = "", arguments: Any = None) -> dict[str, Any]:
    """One member of `tool_calls`, with those of its members that are said."""
    said: dict[str, Any] = {} if index is None else {"index": index}
    if id:
        said["id"] = id
    function = {"name": name} if name else {}
    if arguments is not None:
        function["arguments"] = arguments
    return {**said, "function": function}


def events(*pieces: dict[str, Any] | list[dict[str, Any]]) -> Reply:
    """An answer in the format of OpenAI: each event has these pieces, or this one."""
    told = [each if isinstance(each, list) else [each] for each in pieces]
    chunks: list[dict[str, Any]] = [{"index": 0, "delta": {"tool_calls": each}} for each in told]
    chunks.append({"index": 0, "delta": {}, "finish_reason": "tool_calls"})
    data = "".join(f"data: {json.dumps({'choices': [chunk]})}\n\n" for chunk in chunks)
    return Reply(raw=[data.encode()])


LOOK, SEE = ("look", {"n": 1}), ("see", {"n": 2})
ONE, TWO = '{"n": 1}', '{"n": 2}'
HALF, REST = '{"n":', " 1}"
OPENAI: dict[str, tuple[Reply, Calls | str]] = {
    "two ids on one index": (  # Ollama, Grok
        events(piece(0, "a", "look", ONE), piece(0, "b", "see", TWO)),
        [LOOK, SEE],
    ),
    "two ids on one index, in pieces": (
        events(
            piece(0, "a", "look"),
            piece(0, arguments=HALF),
            piece(0, arguments=REST),
            piece(0, "b", "see"),
            piece(0, arguments=TWO),
        ),
        [LOOK, SEE],
    ),
    "no index": (  # Gemini, Mistral
        events(piece(None, "a", "look", ONE), piece(None, "b", "see", TWO)),
        [LOOK, SEE],
    ),
    "an index that is null": (
        events({**piece(None, "a", "look", ONE), "index": None}, piece(None, "b", "see", TWO)),
        [LOOK, SEE],
    ),
    "no index, in pieces": (
        events(piece(None, "a", "look", HALF), piece(arguments=REST), piece(None, "b", "see", TWO)),
        [LOOK, SEE],
    ),
    "no index, the id in each piece": (
        events(
            piece(None, "a", "look"),
            piece(None, "b", "see"),
            piece(None, "a", arguments=ONE),
            piece(None, "b", arguments=TWO),
        ),
        [LOOK, SEE],
    ),
    "no id": (
        events(piece(0, name="look"), piece(1, name="see"), piece(1, arguments=TWO), piece(0, arguments=ONE)),
        [LOOK, SEE],
    ),
    "neither id nor index": (
        events(piece(name="look", arguments=ONE), piece(name="see")),
        [LOOK, ("see", {})],
    ),
    "neither id nor index, one call twice": (
        events(piece(name="look", arguments=ONE), piece(name="look", arguments=TWO)),
        [LOOK, ("look", {"n": 2})],
    ),
    "neither id nor index, by position": (
        events(
            [piece(name="look"), piece(name="see")],
            [piece(arguments=HALF), piece(arguments=TWO)],
            piece(arguments=REST),
        ),
        [LOOK, SEE],
    ),
    "no id, one index": (
        events(piece(0, name="look", arguments=ONE), piece(0, name="look", arguments=TWO)),
        [LOOK, ("look", {"n": 2})],
    ),
    "another index in the first piece": (  # SGLang
        events(
            piece(3, "a", "look"),
            piece(0, arguments=HALF),
            piece(0, arguments=REST),
            piece(5, "b", "see"),
            piece(1, arguments=TWO),
        ),
        [LOOK, SEE],
    ),
    "an index of another call in the first piece": (
        events(piece(1, "a", "look"), piece(0, arguments=ONE), piece(0, "b", "see"), piece(1, arguments=TWO)),
        [LOOK, SEE],
    ),
    "the name in each piece": (  # MiniMax behind NIM
        events(
            piece(0, "a", "look"),
            piece(0, name="look", arguments=HALF),
            piece(0, name="look", arguments=REST),
        ),
        [LOOK],
    ),
    "the name and the id in each piece": (  # vLLM with GLM
        events(
            piece(0, "a", "look"),
            piece(0, "a", "look", HALF),
            piece(0, "a", "look", REST),
            piece(0, "a", "look"),
        ),
        [LOOK],
    ),
    "a name in pieces": (events(piece(0, "a", "lo"), piece(0, name="ok"), piece(0, arguments=ONE)), [LOOK]),
    "a name that grows": (
        events(piece(0, "a", "lo"), piece(0, name="look"), piece(0, arguments=ONE)),
        [LOOK],
    ),
    "another id in later pieces": (  # Poolside
        events(
            piece(0, "a", "look"),
            piece(0, "x", arguments=HALF),
            piece(0, "y", arguments=REST),
            piece(1, "b", "see", TWO),
        ),
        [LOOK, SEE],
    ),
    "an id that comes late": (
        events(piece(0, name="look", arguments=HALF), piece(0, "a", arguments=REST)),
        [LOOK],
    ),
    "one id for two calls": (  # an id that is the name of the tool
        events(piece(0, "look", "look", ONE), piece(1, "look", "look", TWO)),
        [LOOK, ("look", {"n": 2})],
    ),
    "one id and one index for two calls": (
        events(piece(0, "x", "look", ONE), piece(0, "x", "see"), piece(0, "x", arguments=TWO)),
        [LOOK, SEE],
    ),
    "all of a call again at the end": (  # bridges from other formats
        events(piece(0, "a", "look"), piece(0, arguments=ONE), piece(1, "a", "look", ONE)),
        [LOOK],
    ),
    "all of the arguments again": (
        events(piece(0, "a", "look"), piece(0, arguments=ONE), piece(0, arguments=ONE)),
        [LOOK],
    ),
    "all arguments so far in each piece": (  # Baidu Qianfan, mimo
        events(
            piece(0, "a", "look", '{"n'),
            piece(0, arguments=HALF),
            *[piece(0, arguments=ONE)] * 2,
            piece(1, "b", "see", '{"n": 2'),
            piece(1, arguments=TWO),
        ),
        [LOOK, SEE],
    ),
    "all arguments so far, on one index": (
        events(
            piece(0, "a", "look", "{"),
            piece(0, arguments=ONE),
            piece(0, "b", "see", '{"'),
            piece(0, arguments=TWO),
        ),
        [LOOK, SEE],
    ),
    "arguments that may be all so far, or one in the other": (
        events(piece(0, "a", "look", HALF), piece(0, arguments=ONE)),
        [("look", HALF + ONE)],
    ),
    "arguments that are none": (
        events(piece(0, "a", "look", "null"), piece(1, "b", "see", "[]"), piece(2, "c", "look", " ")),
        [("look", {}), ("see", {}), ("look", {})],
    ),
    "arguments as JSON in JSON": (events(piece(0, "a", "look", json.dumps(ONE))), [LOOK]),
    "arguments that are no object": (events(piece(0, "a", "look", "[1]")), [("look", "[1]")]),
    "arguments as an object": (  # llama.cpp, Ollama
        events(piece(0, "a", "look", {"n": 1}), piece(1, "b", "see", {"n": 2})),
        [LOOK, SEE],
    ),
    "an empty object first": (
        events(
            piece(0, "a", "look", {}),
            piece(0, arguments=ONE),
            piece(1, "b", "see", "{}"),
            piece(1, arguments=TWO),
        ),
        [LOOK, SEE],
    ),
    "pieces that say nothing": (
        events(piece(0, "a", "look", ONE), piece(1), piece(2, "x"), {"index": 0, "function": None}),
        [LOOK],
    ),
    "several in one event": (events([piece(0, "a", "look", ONE), piece(1, "b", "see", TWO)]), [LOOK, SEE]),
    # ---- what cannot be told apart
    "two that could take it": (
        events(piece(0, "a", "look"), piece(0, "b", "see"), piece(0, arguments=ONE)),
        "may be of any of 2 calls",
    ),
    "two without an index that could take it": (
        events(piece(None, "a", "look"), piece(None, "b", "see"), piece(arguments=ONE)),
        "may be of any of 2 calls",
    ),
    "an index that no call has": (
        events(piece(0, "a", "look"), piece(0, arguments=HALF), piece(7, arguments=REST)),
        "may be of no call",
    ),
    "arguments of no call": (events(piece(0, arguments=ONE)), "may be of no call"),
    "once or twice": (events(piece(name="look"), piece(name="look", arguments=ONE)), "'look' once or twice"),
    "a call without a name": (events(piece(0, "a", arguments=ONE)), "a tool without a name"),
    "the name again, once or twice": (
        events(piece(0, "a", "look", HALF), piece(1, name="look", arguments=REST)),
        "asks for 'look' once or twice",
    ),
    "the name again, with what may begin another": (
        events(piece(None, "a", "look", '{"m": "'), piece(name="look", arguments=ONE)),
        "asks for 'look' once or twice",
    ),
    "a call with two names": (
        events(piece(0, "a", "look", HALF), piece(0, "a", "see", REST)),
        "one call has two names, 'look' and 'see'",
    ),
}


def start(index: int | None, **members: Any) -> bytes:
    numbered = {} if index is None else {"index": index}
    return anthropic_event("content_block_start", **numbered, content_block={"type": "tool_use", **members})


def more(index: int | None, text: str) -> bytes:
    numbered = {} if index is None else {"index": index}
    delta = {"type": "input_json_delta", "partial_json": text}
    return anthropic_event("content_block_delta", **numbered, delta=delta)


def stop(index: int) -> bytes:
    return anthropic_event("content_block_stop", index=index)


def blocks(*said: bytes) -> Reply:
    """An answer in the format of Anthropic."""
    head = anthropic_event("message_start", message={"model": "m"})
    return Reply(raw=[head, *said, anthropic_event("message_delta", delta={"stop_reason": "tool_use"})])


A, B = {"id": "a", "name": "look", "input": {}}, {"id": "b", "name": "see", "input": {}}
ANTHROPIC: dict[str, tuple[Reply, Calls | str]] = {
    "interleaved": (
        blocks(start(0, **A), start(1, **B), more(1, TWO), more(0, HALF), stop(1), more(0, REST), stop(0)),
        [LOOK, SEE],
    ),
    "never stopped": (blocks(start(0, **A), more(0, ONE), start(1, **B), more(1, TWO)), [LOOK, SEE]),
    "all of the input at the start": (
        blocks(start(0, **{**A, "input": {"n": 1}}), stop(0), start(1, **{**B, "input": TWO}), stop(1)),
        [LOOK, SEE],
    ),
    "the input at the start and again": (
        blocks(start(0, **{**A, "input": {"n": 1}}), more(0, '{"n":1}')),
        [LOOK],
    ),
    "all of the input so far in each piece": (
        blocks(start(0, **A), more(0, '{"n'), more(0, HALF), more(0, ONE), stop(0)),
        [LOOK],
    ),
    "no input": (blocks(start(0, id="a", name="look"), more(0, ONE)), [LOOK]),
    "no index": (blocks(start(None, **A), more(None, ONE), start(None, **B), more(None, TWO)), [LOOK, SEE]),
    "one index": (blocks(start(0, **A), more(0, ONE), stop(0), start(0, **B), more(0, TWO)), [LOOK, SEE]),
    "an index left out": (
        blocks(start(2, **A), more(2, ONE), stop(2), start(7, **B), more(7, TWO)),
        [LOOK, SEE],
    ),
    "no id": (blocks(start(0, name="look"), more(0, ONE), start(1, name="see"), more(1, TWO)), [LOOK, SEE]),
    "tools of the provider": (
        blocks(start(0, **B, type="server_tool_use"), more(0, TWO), stop(0), start(1, **A), more(1, ONE)),
        [LOOK],
    ),
    "another index in later pieces": (blocks(start(1, **A), more(0, ONE), stop(0)), [LOOK]),
    "two that could take it": (
        blocks(start(0, **A), start(1, **B), more(2, ONE)),
        "may be of any of 2 calls",
    ),
    "a call without a name": (blocks(start(0, id="a"), more(0, ONE)), "a tool without a name"),
}


@pytest.mark.parametrize(("provider", "rows"), [("openai", OPENAI), ("anthropic", ANTHROPIC)])
async def test_what_is_asked_for(provider: str, rows: dict[str, tuple[Reply, Calls | str]]) -> None:
    got: dict[str, Calls | str] = {}
    async with model_of(provider) as (server, model):
        for name, (reply, wanted) in rows.items():
            server.reply(reply)
            answer = await items(model)
            last, tools = answer[-1], [item for item in answer if isinstance(item, ToolRequest)]
            if isinstance(last, ActionFailed):
                assert (last.code, tools) == ("MODEL_MALFORMED", [])
                says = isinstance(wanted, str) and wanted in (last.detail or "")
                got[name] = wanted if says else f"{last.detail}"
            else:
                assert last.reason == "tools"
                assert len({tool.id for tool in tools}) == len(tools), "each has an id of its own"
                got[name] = [(tool.name, tool.unreadable or tool.arguments) for tool in tools]
    assert got == {name: wanted for name, (_, wanted) in rows.items()}


# ---- random assemblies, against what was meant

Meant = list[tuple[str, dict[str, Any], list[str]]]
values = st.text(max_size=8) | st.integers(-9, 99) | st.just({"{": ['}"', "\\"]})
spoken = st.tuples(st.sampled_from(["look", "see"]), st.dictionaries(st.sampled_from("nm"), values))


def calls(said: list[tuple[str, dict[str, Any]]], chance: Random) -> Meant:
    """The calls, each with arguments of its own, which are cut anywhere; or all so far are in each piece."""
    made: Meant = []
    for number, (name, members) in enumerate(said):
        text = json.dumps({**members, "of": number}, ensure_ascii=chance.random() < 0.5)
        cuts = [0, *sorted(chance.sample(range(1, len(text)), chance.randint(0, 4))), len(text)]
        texts = [text[a:b] for a, b in pairwise(cuts)]
        if chance.random() < 0.2:
            texts = [text[:b] for b in (1, *cuts[1:])]
        made.append((name, json.loads(text), ["", *texts] if chance.random() < 0.5 else texts))
    return made


def told(meant: Meant, chance: Random) -> list[tuple[int, str, str, bool]]:
    """All pieces in an order: the call of each, its name, its arguments, and whether it is the first."""
    order = [number for number, (_, _, texts) in enumerate(meant) for _ in texts]
    if chance.random() < 0.5:
        chance.shuffle(order)
    left, begun = [list(texts) for _, _, texts in meant], set[int]()
    out: list[tuple[int, str, str, bool]] = []
    for number in order:
        out.append((number, meant[number][0], left[number].pop(0), number not in begun))
        begun.add(number)
    return out


def known_by_something(meant: Meant, chance: Random) -> list[dict[str, Any]]:
    """Pieces of which each says whose it is, by its id or by its index: of the other it says anything."""
    by_index = chance.random() < 0.5
    by_id, name_again, one_index = (
        not by_index or chance.random() < 0.5,
        chance.random() < 0.5,
        chance.random() < 0.5,
    )
    indexes, fresh = chance.sample(range(9), len(meant)), count()
    pieces: list[dict[str, Any]] = []
    for number, name, text, first in told(meant, chance):
        said_id = f"id-{number}" if by_id or first else "" if name_again else f"new-{next(fresh)}"
        index = indexes[number] if by_index else 0 if one_index else None
        pieces.append(piece(index, said_id, name if first or name_again else "", text))
    return pieces


def known_by_anything(meant: Meant, chance: Random) -> list[dict[str, Any]]:
    """Pieces that leave out what they like, with an index for each call, or one for all.

    Where a call begins with neither, or without an id on the index of another, and they go on by turns, a
    piece may fit another's open text, and nothing tells. So each call begins with one of them, its id on a
    shared index.
    """
    one_index = chance.random() < 0.5
    pieces: list[dict[str, Any]] = []
    for number, name, text, first in told(meant, chance):
        says_id, says_index, says_name = (chance.random() < 0.6 for _ in range(3))
        says_id = says_id or (first and one_index)
        says_index = says_index or (first and not says_id)
        index = (0 if one_index else number) if says_index else None
        pieces.append(piece(index, f"id-{number}" * says_id, name if first or says_name else "", text))
    return pieces


async def assembled(
    make: Callable[[Meant, Random], list[dict[str, Any]]], check: Callable[[Any, Any], None]
) -> None:
    """Let a client put many answers together: `check` gets what was meant, and what came of it."""
    async with model_of("openai") as (server, model):

        @settings(max_examples=examples(4_800), deadline=None)
        @given(st.lists(spoken, min_size=1, max_size=4), st.integers(0, 2**32))
        def each(said: list[tuple[str, dict[str, Any]]], seed: int) -> None:
            chance = Random(seed)
            meant = calls(said, chance)
            pieces = make(meant, chance)
            server.reply(events(*pieces))
            got = trio.from_thread.run(items, model)
            note(f"{pieces}")
            check([(name, members) for name, members, _ in meant], got)

        await trio.to_thread.run_sync(each)


@pytest.mark.slow  # its lines: the rows
async def test_an_id_or_an_index_is_enough() -> None:
    def check(meant: Calls, got: list[Any]) -> None:
        assert got[-1].reason == "tools"
        told = [(tool.name, tool.arguments) for tool in got[:-1]]
        assert sorted(told, key=repr) == sorted(meant, key=repr)

    await assembled(known_by_something, check)


@pytest.mark.slow  # its lines: the rows
async def test_what_is_left_out_never_makes_a_call_with_other_arguments() -> None:
    seen = Counter[str]()

    def check(meant: Calls, got: list[Any]) -> None:
        if isinstance(got[-1], ActionFailed):
            assert got[-1].code == "MODEL_MALFORMED"
            seen["failures"] += 1
            return
        whole = [(tool.name, tool.arguments) for tool in got[:-1] if not tool.unreadable]
        assert [call for call in whole if call not in meant or whole.count(call) > 1] == []
        seen["answers"] += sorted(whole, key=repr) == sorted(meant, key=repr)

    await assembled(known_by_anything, check)
    assert seen["failures"] > 50, seen
    assert seen["answers"] > 100, seen
