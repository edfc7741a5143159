"""Descriptions made and checked; the bare limits are the parsers, writers and validators below them."""

from __future__ import annotations

import json
from importlib.resources import files
from time import perf_counter as clock
from typing import TYPE_CHECKING

import jsonschema_rs
import msgspec

from agents.weather import WeatherAgent
from lmos_actors import describe
from lmos_actors.protocol.td import check, dump, dump_text, load, with_forms

if TYPE_CHECKING:
    from lmos_actors.protocol.td import Description

BASE = "ws://127.0.0.1:8080"


def _described() -> Description:
    made = describe(WeatherAgent, id="http://127.0.0.1:8080/agents/weather-agent")
    return with_forms(made, "weather-agent", [BASE])


def made(n: int) -> float:
    """Make the text of the weather agent's description, with its forms; gives how many a second."""
    began = clock()
    for _ in range(n):
        dump_text(_described())
    return n / (clock() - began)


def bare_made(n: int) -> float:
    """Write what is in it as JSON."""
    data = dump(_described())
    began = clock()
    for _ in range(n):
        msgspec.json.format(msgspec.json.encode(data), indent=2)
    return n / (clock() - began)


def checked(n: int) -> float:
    """Read it and find nothing wrong with it."""
    text = dump_text(_described()).encode()
    assert check(text) == ()
    began = clock()
    for _ in range(n):
        load(text)
        check(text)
    return n / (clock() - began)


def bare_checked(n: int) -> float:
    """Read it as JSON, and hold it against the schema of the W3C."""
    schema = files("lmos_actors.protocol.td").joinpath("td-json-schema-validation.json").read_text()
    validator = jsonschema_rs.Draft7Validator(json.loads(schema))
    text = dump_text(_described()).encode()
    began = clock()
    for _ in range(n):
        assert validator.is_valid(json.loads(text))
    return n / (clock() - began)
