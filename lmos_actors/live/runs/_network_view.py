"""The view `network`: nodes, the links between them, and the messages on their way.

If a file has a network, the view shows its nodes, and the messages that its links carry: requests, answers,
heartbeats. Otherwise each agent counts as a node, and a message is on its way until its receiver begins to
handle it. Beyond MOST_NODES nodes, all nodes of one population are shown as one.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Final

from ._run_model import LinkNews

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .._merge_patch import State
    from ._board import RunHead
    from ._run_model import RunModel

MOST_NODES: Final = 60
MOST_LINKS: Final = 300
MOST_MESSAGES: Final = 300
OTHERS: Final = "others"


def network_of(head: RunHead, model: RunModel, speed: float | None) -> State:
    """Return the state of the view; `speed` is in seconds of the run per second of real time."""
    of_node = head.node_of if head.nodes is not None else _itself
    model.counts.update(model.tree.order, of_node)
    counts = model.counts
    sides = dict.fromkeys(_ends(model, of_node))
    ends = [end for end in sides if end not in counts.agents and end not in counts.populations]
    fold = _fold(model, ends)
    nodes = _nodes(model, ends, fold)
    down = Counter(fold(of_node(path)) for path in model.tree.down)
    broken = {fold(of_node(path)) for path, status in model.tree.down.items() if status != "stopped"}
    for name, node in nodes.items():
        if down[name]:
            node["down"] = down[name]
        if not model.nodes.get(name, True):
            node["status"] = "down"
        elif down[name] >= max(node["agents"], 1):
            node["status"] = "down" if name in broken else "stopped"
    links = _links(model, of_node, fold)
    messages = list(_messages(model, of_node, speed))
    for _, source, target, _, _, due in messages:
        between = links.get((fold(source), fold(target)))
        if between is not None and (due is None or due > model.time):
            between.held += 1
    shown = sorted(links.values(), key=lambda each: -each.sent)[:MOST_LINKS]
    state: State = {
        "of": "nodes" if head.nodes is not None else "agents",
        "nodes": nodes,
        "links": {f"{each.source}>{each.target}": _shown(each) for each in shown},
        "under_way": [_message(fold, *each) for each in messages[:MOST_MESSAGES]],
    }
    cut = len(messages) - MOST_MESSAGES
    return state if cut <= 0 else {**state, "cut": cut}


def _itself(path: str) -> str:
    return path


def _fold(model: RunModel, ends: list[str]) -> Callable[[str], str]:
    """Return a function that maps the name of a node to the name under which the node is shown."""
    counts = model.counts
    if len(counts.agents) + len(ends) <= MOST_NODES:
        return _itself
    names = [*counts.populations, *(end.partition("/")[0] for end in ends)]
    shown = frozenset(list(dict.fromkeys(names))[: MOST_NODES - 1])

    def fold(name: str) -> str:
        top = name.partition("/")[0]
        return top if top in shown else OTHERS

    return fold


def _nodes(model: RunModel, ends: list[str], fold: Callable[[str], str]) -> dict[str, State]:
    counts = model.counts
    if fold is _itself:
        own = {name: (agents, 1) for name, agents in counts.agents.items()}
    else:
        own = {name: (agents, members) for name, (agents, members) in counts.populations.items()}
    nodes: dict[str, State] = {}
    members: Counter[str] = Counter()
    for name, (agents, several) in [*own.items(), *((end, (0, 1)) for end in ends)]:
        node = nodes.setdefault(fold(name), {"status": "up", "agents": 0})
        node["agents"] += agents
        members[fold(name)] += several
    for name, several in members.items():
        if several > 1:
            nodes[name]["members"] = several
    return nodes


def _ends(model: RunModel, of_node: Callable[[str], str]) -> Iterator[str]:
    """Yield the nodes that send or receive messages, including the user."""
    if model.links:
        for source, target in model.links:
            yield from (source, target)
        return
    for source, target, _ in model.edges:
        if target:
            yield from (of_node(source or USER), of_node(target))


USER: Final = "user"


def _links(
    model: RunModel, of_node: Callable[[str], str], fold: Callable[[str], str]
) -> dict[tuple[str, str], LinkNews]:
    """Return the links to show; nodes that are shown as one share their links."""
    found: dict[tuple[str, str], LinkNews] = {}

    def between(source: str, target: str) -> LinkNews:
        key = fold(source), fold(target)
        return found.setdefault(key, LinkNews(*key))

    if model.links:
        for link in model.links.values():
            one = between(link.source, link.target)
            one.sent += link.sent
            one.lost += link.lost
            one.held += link.held
            one.cut += link.cut
            one.lines += link.lines
            one.loss = max(one.loss, link.loss)
            one.delay = link.delay if one.delay is None else max(one.delay, link.delay or 0.0)
        return found
    for (source, target, _), edge in model.edges.items():
        if target and of_node(source) != of_node(target):
            one = between(of_node(source or USER), of_node(target))
            one.sent += edge.sent
            one.lost += edge.failed
            one.lines += 1
    return found


def _shown(link: LinkNews) -> State:
    state: State = {
        "from": link.source,
        "to": link.target,
        "cut": link.cut >= link.lines,
        "sent": link.sent,
        "lost": link.lost,
        "under_way": link.held,
    }
    if 0 < link.cut < link.lines:
        state["cut_links"] = link.cut
    if link.loss:
        state["loss"] = round(link.loss, 6)
    if link.delay is not None:
        state["delay"] = round(link.delay, 6)
    return state


Message = tuple[str, str, str, str, float, "float | None"]
"""The number of a message, its source and target, what it is, when it was sent, and when it arrives."""


def _messages(model: RunModel, of_node: Callable[[str], str], speed: float | None) -> Iterator[Message]:
    """Yield the messages that are on their way or have just arrived, the latest first."""
    if model.links:
        since = model.time - (0.0 if speed is None else 0.5 * speed)
        for number, sent in reversed(model.on_way):
            if sent.due is None or sent.due >= since:
                yield str(number), sent.source, sent.target, sent.what, sent.sent, sent.due
        return
    for id, each in islice(reversed(model.tree.messages.items()), MOST_LOOKED_AT):
        if not each.begun:
            target = of_node(each.place.path)
            yield str(id), of_node(each.sender or USER), target, each.affordance, each.sent, None


MOST_LOOKED_AT: Final = 2_000


def _message(
    fold: Callable[[str], str], id: str, source: str, target: str, what: str, sent: float, due: float | None
) -> State:
    state: State = {"id": id, "from": fold(source), "to": fold(target), "what": what, "sent": sent}
    return state if due is None else {**state, "due": due}
