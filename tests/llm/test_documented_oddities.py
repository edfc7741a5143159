"""Each oddity that the reference names has rows in the tests, and each row stands in the reference."""

from __future__ import annotations

import re

from tests.llm import test_fitting as trifles, test_reports as reports, test_tool_pieces as pieces
from tests.source import ROOT

PAGE = (ROOT / "docs/reference/models.md").read_text(encoding="utf-8")
TABLE = PAGE.partition("## What endpoints do differently\n")[2].partition("\n## ")[0]
DOCUMENTED = [row.split(" | ")[0] for row in re.findall(r"^\| (.*) \|$", TABLE, re.MULTILINE)[1:]]
FAMILIES = (
    *(
        "OpenAI",
        "Azure",
        "OpenRouter",
        "Gemini",
        "Mistral",
        "Ollama",
        "vLLM",
        "SGLang",
        "llama.cpp",
        "LiteLLM",
    ),
    *("Anthropic", "gateways with the format of Anthropic"),
)
TABLES = (
    *(pieces.OPENAI, pieces.ANTHROPIC, trifles.OPENAI, trifles.ANTHROPIC),
    *(reports.REFUSALS, reports.OPENAI, reports.ANTHROPIC),
)
REASONS = [reply.ends for rows in (*reports.REASONS.values(), reports.UNKNOWN) for reply, _ in rows]
TESTED = {*(name for table in TABLES for name in table), *(f"ends: {ends}" for ends in REASONS)}

# what each row of the reference begins with, and its rows in the tests
ROWS = {
    "two calls of tools on one": "two ids on one index; two ids on one index, in pieces; one index",
    "calls without an `index`": "no index; an index that is null; no index, in pieces; "
    "no index, the id in each piece; neither id nor index; neither id nor index, one call twice; "
    "neither id nor index, by position; several in one event",
    "calls without an id": "no id; no id, one index; an id that comes late",
    "one id for several calls": "one id for two calls; one id and one index for two calls",
    "another id in later pieces": "another id in later pieces",
    "another `index` in the first piece": "another index in the first piece; another index in later pieces; "
    "an index of another call in the first piece; an index left out",
    "the name, or the id, in each piece": "the name in each piece; the name and the id in each piece; "
    "a name in pieces; a name that grows",
    "all of a call, or of its arguments": "all of a call again at the end; all of the arguments again; "
    "the input at the start and again",
    "all arguments so far": "all arguments so far in each piece; all arguments so far, on one index; "
    "all of the input so far in each piece; arguments that may be all so far, or one in the other",
    "`arguments` as an object": "arguments as an object; an empty object first; arguments that are none; "
    "arguments as JSON in JSON; arguments that are no object; no input",
    "`input` whole in the start": "all of the input at the start; interleaved; never stopped; no index",
    "pieces of a call that say nothing": "pieces that say nothing",
    "pieces that could be of two calls": "two that could take it; two without an index that could take it; "
    "an index that no call has; arguments of no call; once or twice; a call without a name; "
    "the name again, once or twice; the name again, with what may begin another; a call with two names",
    "lines that end with CR": "comments, other fields, no space; data that is empty; CR LF; CR alone; "
    "lines that end in three ways; a BOM; a BOM and a blank line; data in several lines; "
    "data in several lines, with CR LF; no blank line between; no end of the last line; lines of JSON; "
    "more after DONE; CR alone and a BOM; several events without an end between",
    "one whole JSON answer": "a whole answer; a whole answer in many lines; a whole answer as an event; "
    "a whole answer, and the end of a stream; a whole answer with tools; a whole answer with thinking",
    "null where a member belongs": "null for all; nothing in it; a filter without a delta; "
    "usage that is none; "
    "a reason that is empty until the end; a reason, and then more; content that is nothing; "
    "usage that is odd; "
    "an error that is none; a head without a message",
    "numbers as texts": "numbers as texts; content that is a number; a call of numbers and texts; "
    "content that is one part; a call as it once was",
    "`content` as a list": "content in parts; reasoning in parts; thinking whole at the start",
    "halves of a surrogate pair": "halves of a character; half a character; halves in reasoning",
    "bytes that are no UTF-8": "bytes that are no UTF-8",
    "`[DONE]` behind": "the end of another format",
    "events and blocks that nobody knows": "events that nobody knows; no names of events; "
    "names and no types; "
    "tools of the provider",
    "a failure behind status 200": "vLLM, in place of a chunk; SGLang; Gemini, in a list; FastAPI; "
    "MiniMax, in an event; behind status 200; the shape of another format; overload; a wrong request; "
    "no key; "
    "a failure of its own",
    "`error` in a choice": "OpenRouter; OpenRouter, in a choice; OpenRouter, a call of Gemini",
    "`error: {…}` or a line": "llama.cpp, a field of its own; Ollama, a line of JSON",
    "codes as numbers and as texts": "LiteLLM, a number as text; OpenAI; Gemini, in a text",
    "a status that says something else": "llama.cpp, too long; OpenAI, an empty account; Gemini, no key; "
    "DeepSeek, an empty account; Moonshot, an empty account; DashScope, an empty account; OpenAI, no right",
    "numbers of their own": "MiniMax, the key; MiniMax, a rate; MiniMax, an empty account; "
    "MiniMax, a wrong request; MiniMax, a failure of its own; Z.ai, an empty account; Z.ai, a rate; "
    "Z.ai, a locked account; Z.ai, too long; Z.ai, in an event",
    "a name that says something else": "Mistral, overload",
    "words in `message`": "FastAPI, with places; Mistral, with places; OpenRouter, with another's; a text; "
    "no JSON; nested without end",
    "`retry-after-ms`": "",  # they are in `reports.WAITS`, by their seconds
    "reasons of ends that are failures": "DeepSeek; ends: error; ends: abort; ends: network_error; "
    "ends: malformed_function_call; ends: MALFORMED_FUNCTION_CALL",
    "other names of reasons": "ends: eos; ends: MAX_TOKENS; ends: model_length; ends: SAFETY; "
    "ends: sensitive; "
    "ends: length; ends: max_tokens; ends: content_filter; ends: refusal; ends: stop; ends: stop_sequence",
    "a reason that nobody knows": "ends: odd_one; ends: odd_one\ud83d",
}


def test_each_oddity_of_the_reference_has_rows_and_each_row_stands_there() -> None:
    assert len(DOCUMENTED) == len(ROWS)
    assert [
        (start, row) for start, row in zip(ROWS, DOCUMENTED, strict=True) if not row.startswith(start)
    ] == []
    named = {name for names in ROWS.values() for name in names.split("; ") if name}
    assert named - TESTED == set(), "there is no such row of a test"
    assert TESTED - named == set(), "the reference does not have it"
    assert [family for family in FAMILIES if family not in TABLE] == []
