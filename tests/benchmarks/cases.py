"""The cases: what is measured, on how much work, against which limit, and what is wanted of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tests.benchmarks import (
    bulk,
    chat,
    codec,
    descriptions,
    directory,
    durable,
    http,
    limits_clock,
    limits_commits,
    limits_dispatch,
    limits_redis,
    limits_sqlite,
    limits_story,
    limits_tasks,
    limits_wire,
    links,
    listening,
    memories,
    models,
    ours,
    relay,
    sessions,
    stories,
    thinking,
    wire,
    worlds,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Program = Callable[[int], float]


@dataclass(frozen=True)
class Case:
    """One measurement: `n` is the work of a round, `tiny` that of the test that it runs at all.

    With a `limit`, `target` is the least ratio of ours to it; without one it is an absolute figure, the
    least one or, where `less_is_better`, the greatest. None: the figure is only reported.
    """

    name: str
    what: str
    ours: Program
    n: int
    tiny: int
    target: float | None
    limit: Program | None = None
    unit: str = "/s"
    less_is_better: bool = False

    def met(self, limit: float | None, measured: float) -> bool:
        """Say whether the target, if there is one, has been reached."""
        if self.target is None:
            return True
        value = measured if limit is None else measured / limit
        return value <= self.target if self.less_is_better else value >= self.target


def _bare(program: object) -> Program:
    return partial(limits_dispatch.on_dispatcher, program)


def _real(program: object) -> Program:
    return partial(ours.on_node, program)  # type: ignore[arg-type]


def _simulated(program: object) -> Program:
    return partial(ours.on_simulated_node, program)  # type: ignore[arg-type]


def _story_cases() -> Iterator[Case]:
    """Messages of a story of gossip, delivered on virtual time."""
    for name, agents, n in (("1k", 1_000, 200_000), ("100k", 100_000, 300_000)):
        what, tell = f"deliveries, {agents:,} agents, logged", partial(limits_story.deliveries, agents)
        yield Case(f"deliveries-{name}", what, partial(stories.deliveries, agents), n, 300, 0.5, tell)
    for name, agents, n in (("1k", 1_000, 100_000), ("100k", 100_000, 150_000)):
        tell = partial(limits_story.deliveries, agents)
        for delivery in ("datagram", "stream"):
            what = f"deliveries over links, {delivery}, {agents:,} agents, logged"
            over = partial(links.deliveries, agents, delivery)
            yield Case(f"{delivery}s-{name}", what, over, n, 300, 0.25, tell)
    what = "deliveries over 960 connections of world: wire, 160 agents, logged"
    yield Case("wires", what, partial(links.deliveries, 160, "stream", world="wire"), 20_000, 50, None)
    what = "deliveries, 1,000 agents, no log"
    yield Case(
        "deliveries-unlogged",
        what,
        partial(stories.unlogged, 1_000),
        200_000,
        300,
        None,
        partial(limits_story.deliveries, 1_000),
    )


def _world_cases() -> Iterator[Case]:
    """Files that are run: what a population, a short scenario and a page of results cost."""
    for name, n in (("1k", 1_000), ("100k", 100_000)):
        what = f"from a file to {n:,} agents that run"
        yield Case(f"file-{name}", what, worlds.start, n, 20, None, unit=" s", less_is_better=True)
        what = f"bytes per agent of a population of {n:,}"
        unit = " bytes"
        yield Case(f"file-{name}-memory", what, worlds.memory, n, 20, None, unit=unit, less_is_better=True)
    for name, how, program in (
        ("scenarios", "in one process", worlds.short),
        ("scenarios-j1", "by the command", partial(worlds.short_by_command, 1)),
        ("scenarios-j2", "by the command, -j 2", partial(worlds.short_by_command, 2)),
    ):
        what = f"1,000 short scenarios, {how}"
        yield Case(name, what, program, 1_000, 3, None, unit=" s", less_is_better=True)
    what = "schedules of explore, for a second of processor time"
    yield Case("explore", what, worlds.explored, 1_000, 3, None)
    what = "HTML file of a run of 50,000 messages"
    yield Case("html-50k", what, worlds.page, 50_000, 30, None, unit=" ms", less_is_better=True)


def _codec_cases() -> Iterator[Case]:
    """LMOS messages, all types of the specification together and the most frequent ones alone."""
    groups = {"": codec.KINDS, "-invoke": ("invokeAction",), "-status": ("actionStatus",)}
    groups |= {"-reading": ("propertyReading",), "-event": ("event",), "-read": ("readProperty",)}
    for habits, way, target in (("spec", "fast", 0.77), ("kotlin-wot", "tolerant", 0.167)):
        for group, kinds in groups.items():
            what = f"{way} path, {kinds[0] if group else 'all types'}"
            bare = codec.bare_decoding(*kinds), codec.bare_encoding(*kinds)
            ours = codec.decode(habits, *kinds), codec.encode(habits, *kinds)
            for n, verb in enumerate(("decode", "encode")):
                name = f"codec-{verb}-{way}{group}"
                yield Case(name, f"{verb}, {what}", ours[n], 200_000, 60, target, bare[n])
    what, bare_one = "encode, fast path, invokeAction of a typed call", codec.bare_encoding("invokeAction")
    yield Case("codec-encode-typed", what, codec.encode_typed, 200_000, 60, 0.8, bare_one)


def _session_cases() -> Iterator[Case]:
    """A request and its answer through both ends of a connection."""
    messages = {"read": ("readProperty", "propertyReading"), "invoke": ("invokeAction", "actionStatus")}
    for verb, (request, answer) in messages.items():
        for habits in ("spec", "kotlin-wot"):
            what = f"{verb} and its answer through both sessions, {habits}"
            bare = sessions.bare_pairs(request, answer)
            yield Case(f"session-{verb}-{habits}", what, sessions.pairs(verb, habits), 20_000, 20, 0.05, bare)


def _directory_cases() -> Iterator[Case]:
    """A directory with 10,000 entries, on disk."""
    many, few = 10_000, 50
    for name, what, work, n, unit in (
        ("page", "pages of 100 of 10,000 descriptions, over HTTP", directory.pages, 500, "/s"),
        ("search", "a search by title of 10,000 descriptions", directory.searches, 5, " ms"),
        ("register", "registrations, with 10,000 there", directory.registrations, 2_000, "/s"),
        ("renew", "renewals, with 10,000 there", directory.renewals, 5_000, "/s"),
    ):
        less = unit == " ms"
        program = partial(directory.sized, work, many, few)
        yield Case(f"directory-{name}", what, program, n, 3, None, unit=unit, less_is_better=less)


def _durable_cases() -> Iterator[Case]:
    """Agents whose state is kept in a SQLite file, against the same rows in as many transactions."""
    rows, on_store = limits_sqlite.rows_written, durable.on_store
    for kind, power, n in ((durable.Account, "", 5_000), (durable.SyncedAccount, "-power", 1_000)):
        what = f"turns of a kept agent alone{', synced' * bool(power)}"
        bare = partial(rows, 1, synced=bool(power))
        yield Case(f"durable{power}", what, on_store(durable.alone, kind), n, 3, None, bare)
        what = f"turns of 1,000 kept agents at once{', synced' * bool(power)}"
        bare = partial(rows, 1_000, synced=bool(power))
        many = on_store(durable.together, kind, 1_000)
        yield Case(f"durable-1k{power}", what, many, 100_000, 20, 0.67, bare)
    what, bare = "the same, each asked by a task", partial(rows, 1_000)
    many = on_store(durable.apart, durable.Account, 1_000)
    yield Case("durable-1k-tasks", what, many, 100_000, 20, None, bare)
    what, apart = "turns of a kept agent alone, against a task", on_store(durable.apart, durable.Account, 1)
    yield Case("durable-task", what, apart, 5_000, 3, None, partial(limits_commits.turns, 1))
    what, bare = "turns of 1,000 kept agents, against tasks", partial(limits_commits.turns, 1_000)
    yield Case("durable-1k-task", what, many, 100_000, 20, None, bare)
    what, bare = "starts of 10,000 kept agents, against reading", limits_sqlite.rows_read
    yield Case("durable-start", what, on_store(durable.start_stored), 10_000, 20, None, bare)
    one_by_one = on_store(durable.start_one_by_one)
    yield Case("durable-start-each", "the same, one after another", one_by_one, 10_000, 20, None, bare)
    what, bare = "facts of a journal applied, against reading", limits_sqlite.rows_scanned
    yield Case("durable-replay", what, on_store(durable.replay), 100_000, 20, None, bare)
    what, memory = "bytes per idle kept agent", on_store(durable.memory)
    yield Case("durable-memory", what, memory, 20_000, 20, None, unit=" bytes", less_is_better=True)


def _memory_cases() -> Iterator[Case]:
    """What agents remember, in a SQLite file with its index, and without a store."""
    what, program = "texts remembered, one identity", memories.in_file(memories.remembered)
    yield Case("memories-remember", what, program, 1_000, 3, None)
    for name, what, program, n in (
        ("", "a question among 1,000 texts", memories.in_file(memories.recalled, 0), 1_000),
        ("-1k", "the same, with 1,000 other identities", memories.in_file(memories.recalled, 1_000), 1_000),
        ("-scan", "the same, without a store", memories.in_memory(memories.recalled, 0), 1_000),
    ):
        yield Case(f"memories-recall{name}", what, program, n, 3, None, unit=" ms", less_is_better=True)


def _redis_cases() -> Iterator[Case]:
    """Agents whose state is kept in a Redis server, against bare pipelines of the same values."""
    for name, what, program, agents, n, target in (
        ("redis", "turns of an agent kept in Redis, alone", durable.alone, 1, 5_000, None),
        ("redis-1k", "turns of 1,000 agents kept in Redis", durable.together, 1_000, 100_000, 0.5),
    ):
        args = (durable.Account,) if agents == 1 else (durable.Account, agents)
        bare = limits_redis.with_server(limits_redis.values_written, agents)
        yield Case(name, what, limits_redis.with_server(program, *args), n, 10, target, bare)


def _bulk_cases() -> Iterator[Case]:
    """Crowds: what the node does for others between the bytes of a caller and the answer."""
    for name, what, program, n in (
        ("come", "5,000 listeners come", bulk.listeners_come, 5_000),
        ("leave", "2,500 listeners leave", bulk.listeners_leave, 2_500),
        ("register", "2,500 devices register", bulk.registrations_come, 2_500),
    ):
        what = f"CPU until a caller is answered while {what}"
        yield Case(f"bulk-{name}", what, program, n, 5, 50, unit=" ms", less_is_better=True)


def _wire_cases() -> Iterator[Case]:
    """Agents in another process, over `lmosprotocol`; bare lines and WebSocket libraries beside them."""
    lines, plain, asyncio = limits_wire.lines, limits_wire.trio_websocket, limits_wire.websockets
    for name, what, program, verb, n, target, limit in (
        ("ask", "questions, against bare lines", wire.ask, "ask", 3_000, 0.55, lines),
        ("ask-trio", "questions, against trio-websocket", wire.ask, "ask", 3_000, None, plain),
        ("ask-websockets", "questions, against websockets", wire.ask, "ask", 3_000, None, asyncio),
        ("asks", "questions, 64 in flight, trio-websocket", wire.ask_together, "echo", 20_000, None, plain),
        ("tell", "tells, against trio-websocket, 64 in flight", wire.tell, "echo", 50_000, 5.0, plain),
        ("tell-websockets", "tells, against websockets", wire.tell, "echo", 50_000, None, asyncio),
    ):
        yield Case(f"wire-{name}", what, program, n, 70, target, partial(limit, verb))
    what, limit = "texts of 1 MB there and back, against websockets", partial(asyncio, "large")
    yield Case("wire-large", what, wire.large, 50, 1, None, limit, unit=" MB/s")
    yield Case("wire-stream", "a stream of bytes", wire.stream, 1_024, 1, None, unit=" MB/s")
    what = "growth by a stream of 1 GB"
    yield Case("wire-stream-memory", what, wire.stream_memory, 1_024, 1, 64, unit=" MB", less_is_better=True)
    yield from _stream_cases()
    what = "bytes per idle connection, 1,000 of them"
    yield Case("wire-memory", what, wire.idle_memory, 1_000, 5, 20_000, unit=" bytes", less_is_better=True)
    yield Case("wire-connections", "connections opened, each asks", wire.connections, 1_000, 5, None)


def _stream_cases() -> Iterator[Case]:
    """Streams into an agent, against the streams out of one."""
    what = "a stream of bytes into an agent, against one out of it"
    yield Case("wire-stream-in", what, wire.stream_in, 512, 1, None, wire.stream, unit=" MB/s")
    yield Case("wire-items-in", "items of a stream into an agent", wire.items_in, 50_000, 70, None)
    yield Case("items-in", "items of a stream into a near agent", wire.items_in_near, 200_000, 70, None)
    what, both = "growth by a stream of 1 GB there and back", wire.memory_both_ways
    yield Case("wire-both-memory", what, both, 1_024, 1, 64, unit=" MB", less_is_better=True)
    what = "a frame of 20 ms of speech there and back, median"
    yield Case("wire-voice", what, wire.voice_median, 2_000, 20, 20, unit=" ms", less_is_better=True)
    what = "the same, 99 of 100 frames"
    yield Case("wire-voice-99", what, wire.voice_slowest, 2_000, 20, 20, unit=" ms", less_is_better=True)


def _chat_cases() -> Iterator[Case]:
    """Chat agents over Omnia's protocol, and their sessions."""
    there = chat.there
    what = "chunks of one answer, against trio-websocket"
    yield Case("chat-frames", what, partial(there, chat.frames), 20_000, 20, None, chat.bare_frames)
    what = "chunks of 1,000 sessions at 20 a second each"
    yield Case("chat-1k", what, partial(there, chat.crowd), 1_000, 3, None)
    for name, pace, how in (("paced", "slowly", "at 20 a second"), ("at-once", "quickly", "at once")):
        what, ours_ = f"chunks a CPU second, 1,000 sessions {how}", partial(chat.for_a_second, "omnia", pace)
        bare = partial(chat.for_a_second, "chat-bare", pace)
        yield Case(f"chat-{name}", what, ours_, 1_000, 3, 0.5, bare)
    what, near = "to the first chunk over a connection, median; near", chat.first_chunk_near
    first = partial(there, chat.first_chunk)
    yield Case("chat-first", what, first, 200, 3, None, near, unit=" ms", less_is_better=True)
    what = "bytes per idle connection of a chat client"
    idle = partial(there, chat.idle_connections)
    yield Case("chat-connections", what, idle, 1_000, 5, None, unit=" bytes", less_is_better=True)
    what, sessions_ = "bytes per idle session in SQLite", chat.idle_sessions
    yield Case("chat-sessions", what, sessions_, 5_000, 10, None, unit=" bytes", less_is_better=True)
    what, late = "frames of a minute's call with a break that came back after 20 ms", chat.late_frames
    late_there = partial(there, late)
    yield Case("chat-call", what, late_there, 3_000, 30, None, unit=" frames", less_is_better=True)
    what, memory = "turns of 100 callers, SQLite against memory", partial(chat.turns, None)
    yield Case("chat-turns", what, partial(chat.turns, "sqlite"), 5_000, 20, None, memory)


_STARTS = tuple((sdk, f"lmos_actors.llm._{sdk}_format") for sdk in ("openai", "anthropic"))


def _model_cases() -> Iterator[Case]:
    """Language models, against the bare SDKs; requests at once; imports."""
    for sdk in ("openai", "anthropic"):
        what, first = f"to the first chunk, by that of the SDK of {sdk}", partial(models.first_chunks, sdk)
        yield Case(f"llm-first-{sdk}", what, first, 200, 3, None, unit=" times", less_is_better=True)
        ours_, bare = partial(models.ours, sdk), partial(models.bare, sdk)
        what, chunks = f"processor time a chunk, against the SDK of {sdk}", models.chunks
        yield Case(
            f"llm-chunks-{sdk}",
            what,
            partial(ours_, chunks),
            20_000,
            100,
            1.25,
            partial(bare, chunks),
            unit=" us",
            less_is_better=True,
        )
    yield Case("llm-1k", "chunks of 1,000 requests at once, scripted", models.crowd, 100_000, 1_000, None)
    what, memory = "bytes per request that is being answered", models.request_memory
    yield Case("llm-memory", what, memory, 1_000, 5, None, unit=" bytes", less_is_better=True)
    for name, module in (("contract", "lmos_actors.llm"), *_STARTS):
        what, code = f"to import {module}", f"import {module}"
        imported = partial(models.import_time, code)
        yield Case(f"llm-import-{name}", what, imported, 5, 1, None, unit=" ms", less_is_better=True)


def _thinking_cases() -> Iterator[Case]:
    """1,000 conversations with a scripted model, against chat agents that say the same by themselves."""
    what, limit = "chunks of 1,000 conversations with a model; with none", thinking.chunks_without_a_model
    yield Case("think-1k", what, thinking.chunks, 100_000, 20, None, limit)
    what, bytes_ = "bytes per conversation in its answer; with no model", thinking.bytes_without_a_model
    memory = thinking.bytes_each
    yield Case("think-bytes", what, memory, 2_000, 20, None, bytes_, unit=" bytes", less_is_better=True)
    yield Case("think-turns", "turns with two requests and a tool", thinking.rounds, 500, 5, None)


def _relay_cases() -> Iterator[Case]:
    """A hub of an AgentRelay with 1,000 agents, in a process of its own."""
    what = "deliveries of 100 broadcasts at once"
    yield Case("relay-fan", what, relay.deliveries, 1_000, 5, None, relay.bare_deliveries)
    what = "processor time of each of these deliveries"
    yield Case("relay-cost", what, relay.cost, 1_000, 5, 5, unit=" us", less_is_better=True)
    what = "processor time of a delivery of a single broadcast"
    yield Case("relay-cost-singly", what, relay.cost_singly, 1_000, 5, 12, unit=" us", less_is_better=True)
    what = "processor time of a delivery of a single broadcast, against a bare fan-out"
    cost, bare = relay.cost_singly, relay.bare_cost_singly
    yield Case("relay-singly", what, cost, 1_000, 5, None, bare, unit=" us", less_is_better=True)
    what, last = "until the last of all has a broadcast", relay.until_the_last
    bare = relay.bare_until_the_last
    yield Case("relay-last", what, last, 1_000, 5, None, bare, unit=" ms", less_is_better=True)
    what = "bytes per idle connection of an agent"
    yield Case("relay-connections", what, relay.idle, 1_000, 5, 18_000, unit=" bytes", less_is_better=True)


def _web_cases() -> Iterator[Case]:
    """Agents over HTTP, against bare Starlette behind the same front door; what descriptions cost."""
    for verb, what, program, limit in (
        ("read", "properties read over HTTP", http.read, http.read_starlette),
        ("invoke", "actions invoked over HTTP", http.invoke, http.invoke_starlette),
    ):
        yield Case(f"http-{verb}", f"{what}, against Starlette", program, 20_000, 32, 0.6, limit)
    yield Case("http-consume", "properties read by refs over HTTP", http.consumed, 2_000, 32, None)
    what = "descriptions made, against writing their JSON"
    yield Case("td-make", what, descriptions.made, 1_000, 2, None, descriptions.bare_made)
    what = "descriptions read and checked, against their schema alone"
    yield Case("td-check", what, descriptions.checked, 500, 2, None, descriptions.bare_checked)


CASES = {
    case.name: case
    for case in (
        Case(
            "tell",
            "tell to a def turn",
            _real(ours.tell),
            200_000,
            200,
            0.40,
            _bare(limits_dispatch.tell),
        ),
        Case(
            "ask",
            "ask of a def turn, idle agent",
            _real(ours.ask),
            200_000,
            600,
            0.20,
            _bare(limits_dispatch.ask),
        ),
        Case(
            "pool-tell",
            "tell through a pool of 8, against one agent",
            _real(ours.pool_tell),
            200_000,
            600,
            0.60,
            _real(ours.tell),
        ),
        Case(
            "pool-ask",
            "ask through a pool of 8, against one agent",
            _real(ours.pool_ask),
            200_000,
            600,
            0.60,
            _real(ours.ask),
        ),
        Case(
            "pool-least",
            "the same, the least loaded chosen",
            _real(partial(ours.pool_ask, by="least_loaded")),
            200_000,
            600,
            0.35,
            _real(ours.ask),
        ),
        Case(
            "pool-key",
            "the same, chosen by key",
            _real(partial(ours.pool_ask, by="key")),
            200_000,
            600,
            0.20,
            _real(ours.ask),
        ),
        Case(
            "ask-async",
            "ask of an async def action, within() on",
            _real(ours.ask_async),
            40_000,
            20,
            0.55,
            limits_tasks.ask,
        ),
        Case(
            "fan",
            "fan-out 1 -> 1,000 -> 1, replies",
            _real(ours.fan),
            200,
            2,
            0.55,
            _bare(limits_dispatch.fan),
        ),
        Case(
            "ring", "ring of 1,000, hops", _real(ours.ring), 300_000, 1200, 0.50, _bare(limits_dispatch.ring)
        ),
        Case(
            "spawn",
            "supervised spawn, ready to serve",
            _real(ours.spawn),
            100_000,
            20,
            0.12,
            _bare(limits_dispatch.spawn),
        ),
        Case(
            "start",
            "node.start, one after another",
            _real(ours.start),
            100_000,
            20,
            0.10,
            _bare(limits_dispatch.spawn),
        ),
        Case("stop", "stop, each answered", _real(ours.stop), 20_000, 5, 300_000),
        Case("stop-all", "stop of a supervisor, children a second", _real(ours.stop_all), 50_000, 5, 300_000),
        Case(
            "restart", "restarts of crashing agents, another served", _real(ours.restart), 50_000, 20, 50_000
        ),
        Case(
            "memory",
            "bytes per idle agent, one spec",
            _real(ours.memory),
            100_000,
            20,
            590,
            unit=" bytes",
            less_is_better=True,
        ),
        Case(
            "start-memory",
            "bytes per idle agent, each by node.start",
            _real(ours.memory_started),
            100_000,
            20,
            600,
            unit=" bytes",
            less_is_better=True,
        ),
        Case(
            "memory-specs",
            "bytes per idle agent, a spec each",
            _real(ours.memory_specs),
            100_000,
            20,
            900,
            unit=" bytes",
            less_is_better=True,
        ),
        Case(
            "timers",
            "timer events, agents' own, against MockClock",
            _simulated(ours.timers),
            200_000,
            2000,
            4.0,
            limits_clock.events,
        ),
        Case(
            "sleeps",
            "timer events, trio.sleep, against MockClock",
            ours.simulated_sleepers,
            40_000,
            2000,
            2.5,
            limits_clock.events,
        ),
        Case(
            "start-100k",
            "100,000 agents started in a simulation",
            _simulated(ours.many),
            100_000,
            20,
            1.0,
            unit=" s",
            less_is_better=True,
        ),
        Case(
            "start-100k-memory",
            "100,000 agents started in a simulation",
            _simulated(ours.many_memory),
            100_000,
            20,
            100,
            unit=" MB",
            less_is_better=True,
        ),
        Case(
            "topic",
            "topic, values to 1,000 subscribers",
            _real(listening.topic),
            2_000,
            3,
            0.18,
            listening.bare_topic,
        ),
        Case(
            "follow",
            "events to 1,000 followers, handled as turns",
            _real(listening.follow),
            500,
            2,
            0.25,
            _bare(listening.bare_follow),
        ),
        Case(
            "follow-memory",
            "bytes per following, beyond the agent's",
            _real(listening.follow_memory),
            100_000,
            20,
            650,
            unit=" bytes",
            less_is_better=True,
        ),
        Case(
            "idle",
            "passes of trio's run loop, 10,000 agents, 10 minutes",
            ours.idle_passes,
            10_000,
            20,
            0,
            unit=" passes",
            less_is_better=True,
        ),
        *_story_cases(),
        *_world_cases(),
        *_codec_cases(),
        *_session_cases(),
        *_wire_cases(),
        *_bulk_cases(),
        *_directory_cases(),
        *_durable_cases(),
        *_memory_cases(),
        *_redis_cases(),
        *_web_cases(),
        *_chat_cases(),
        *_model_cases(),
        *_thinking_cases(),
        *_relay_cases(),
        Case(
            "codec-decode-unknown",
            "decode, tolerant path, invokeAction with a member that nobody knows",
            codec.decode_unknown,
            200_000,
            60,
            0.167,
            codec.bare_decoding("invokeAction"),
        ),
        Case("codec-time-read", "times read", codec.parse, 200_000, 60, 0.1, codec.bare_parse),
        Case("codec-time-write", "times written", codec.write_time, 200_000, 60, 0.3, codec.bare_write_time),
        Case("codec-id", "ids made", codec.new_ids, 200_000, 60, 5.0, codec.bare_ids),
    )
}
