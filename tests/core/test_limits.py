"""Limits in the records of `open_node`: a number that is none is refused by the name of its field."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from lmos_actors.approvals import ApprovalOptions
from lmos_actors.bindings import HttpOptions
from lmos_actors.directory import DirectoryOptions
from lmos_actors.errors import ConfigError
from lmos_actors.facades import OmniaOptions, RelayOptions
from lmos_actors.live import PageOptions
from lmos_actors.mcp import McpOptions
from lmos_actors.node import NodeLimits
from lmos_actors.observe import MetricsOptions
from lmos_actors.protocol.lmos import SessionOptions
from lmos_actors.transport import ConnectionOptions, DoorOptions
from tests.rows import each_row

RECORDS: list[Any] = [
    ApprovalOptions, ConnectionOptions, DirectoryOptions, DoorOptions, HttpOptions, McpOptions,
    MetricsOptions, NodeLimits, OmniaOptions, PageOptions, RelayOptions, SessionOptions,
]  # fmt: skip
LIMITS = [
    (record, field.name)
    for record in RECORDS
    for field in attrs.fields(record)
    if type(field.default) in (int, float)
]


@each_row(("record", "name"), LIMITS)
def test_a_number_that_is_no_limit_is_refused(record: Any, name: str) -> None:
    for value in (-1, True, "1", float("nan")):
        with pytest.raises((ConfigError, ValueError)) as refused:
            record(**{name: value})
        assert name in str(refused.value)


def test_a_limit_may_be_left_out_only_where_that_means_something() -> None:
    assert RelayOptions(registrations_per_minute=None).registrations_per_minute is None
    with pytest.raises(ConfigError, match=r"RelayOptions\.connections: must be a whole number"):
        RelayOptions(connections=None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"ApprovalOptions\.waiting: must be at most 10000, not 10001"):
        ApprovalOptions(waiting=10_001)
