"""Limits of the node of a group: read from a file, and refused at their places."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors.assembly import NodeOptions
from lmos_actors.deployment.files import load_deployment, node_limits, with_limits
from lmos_actors.directory import DirectoryOptions
from lmos_actors.facades import OmniaOptions, RelayOptions
from lmos_actors.files import FileError
from lmos_actors.mcp import McpOptions
from lmos_actors.node import NodeLimits
from lmos_actors.observe import MetricsOptions
from lmos_actors.protocol.lmos import SessionOptions
from lmos_actors.transport import ConnectionOptions, DoorOptions

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from lmos_actors.deployment.model import Group

FILE = """\
lmos: deployment/v1
name: shop
agents:
  weather: {from: agent, use: "weather:Weather"}
groups:
  shop:
    agents: [weather]
    directory: true
    mcp: true
    metrics: true
    omnia: true
    limits:
"""


def group_with(folder: Path, limits: str, text: str = FILE) -> Group:
    path = folder / "shop.yaml"
    path.write_text(f"{text}      {limits}\n")
    return load_deployment(path, classes=False).deployment.groups["shop"]


@pytest.mark.parametrize(
    ("limits", "mistake"),
    [
        ("sesion: {max_open: 1}", '13:7: unknown key "sesion", did you mean "session"?'),
        ("session: {max_opne: 1}", '13:17: SessionOptions has no limit "max_opne", did you mean "max_open"?'),
        ("session: {offers: 1}", '13:17: SessionOptions has no limit "offers"'),
        ("session: {max_open: -1}", "13:27: max_open is a whole number of at least 0, not -1"),
        ("session: {max_open: many}", '13:27: expected a whole number or a number, saw the text "many"'),
        ("session: 5", "13:16: expected a mapping, saw the number 5"),
        ("connection: {total_bytes: 1.5}", "13:33: must be a whole number of at least 1, not 1.5"),
        ("connection: {needs_pongs: 1}", '13:20: ConnectionOptions has no limit "needs_pongs"'),
        ("connection: {answer_seconds: 1}", "13:36: must be at least 2, not 1"),
        ("door: {head_seconds: 0}", "13:28: must be a number of seconds above 0, not 0"),
        (
            "node: {dead_leters: 1}",
            '13:14: NodeLimits has no limit "dead_leters", did you mean "dead_letters"?',
        ),
        ("http: {runs: 0}", "13:20: must be a whole number of at least 1, not 0"),
        ("omnia: {texts_burst: 0}", "13:28: must be a whole number of at least 1, not 0"),
        ("mcp: {items: 0}", "13:20: must be a whole number of at least 1, not 0"),
        ("metrics: {classes: 0}", "13:26: must be an int of at least 1, not 0"),
        ("directory: {default_ttl: 20, max_ttl: 10}", "13:18: must be at most max_ttl, 10 s"),
        ("relay: {identities: 5}", '13:7: the group has no "relay"'),
    ],
)
def test_what_is_no_limit_is_refused_at_its_place(tmp_path: Path, limits: str, mistake: str) -> None:
    with pytest.raises(FileError) as refused:
        group_with(tmp_path, limits)
    found = [f"{each.line}:{each.column}: {each.message}" for each in refused.value.mistakes]
    assert [text.partition(" (known")[0] for text in found] == [mistake]


@pytest.mark.parametrize(
    ("limits", "given", "record"),
    [
        ("session: {max_open: 7, repeat_seconds: 5}", None, SessionOptions(max_open=7, repeat_seconds=5)),
        ("node: {crash_reports: 2}", NodeLimits(dead_letters=5), NodeLimits(crash_reports=2, dead_letters=5)),
        ("connection: {messages_per_second: 9}", None, ConnectionOptions(messages_per_second=9)),
        (
            "door: {max_half_open: 3}",
            DoorOptions(max_connections=40),
            DoorOptions(max_connections=40, max_half_open=3),
        ),
        ("omnia: {calls: 2}", OmniaOptions(only=True), OmniaOptions(only=True, calls=2)),
        ("mcp: {items: 4}", McpOptions(logs=True), McpOptions(logs=True, items=4)),
        ("directory: {max_page: 5}", DirectoryOptions(), DirectoryOptions(max_page=5)),
        ("metrics: {agents: 6}", True, MetricsOptions(agents=6)),
    ],
)
def test_a_limit_reaches_the_record_of_its_node(
    tmp_path: Path, limits: str, given: Any, record: object
) -> None:
    name = {"node": "limits"}.get(key := limits.partition(":")[0], key)
    read = node_limits(group_with(tmp_path, limits))
    found = with_limits({"listen": "ws://127.0.0.1:0", name: given}, read)
    assert getattr(NodeOptions(**found), name) == record


def test_a_hub_of_a_group_has_limits_too(tmp_path: Path) -> None:
    text = FILE.replace("omnia: true", "relay: {max_message: 1KiB}")
    read: Mapping[str, Any] = node_limits(group_with(tmp_path, "relay: {identities: 5}", text))
    given = RelayOptions(max_message=1024)
    assert with_limits({"relay": given}, read) == {"relay": RelayOptions(max_message=1024, identities=5)}
    assert with_limits({"relay": given}, {}) == {"relay": given}
