"""`describe`. The docstring is the help."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

from .._app import Json, Switch  # noqa: TC001 - the application reads the types
from ..options._connection import ServerOptions

_ALONE = ServerOptions()


def describe(
    subject: str,
    /,
    *,
    against: Annotated[str | None, Parameter(metavar="CLASS")] = None,
    reader: Annotated[Literal["kotlin-wot"] | None, Parameter(name="--for")] = None,
    strict: Switch = False,
    base: Annotated[str | None, Parameter(metavar="URI")] = None,
    name: Annotated[str | None, Parameter(metavar="NAME")] = None,
    id_: Annotated[str | None, Parameter(name="--id", metavar="URI")] = None,
    server: ServerOptions = _ALONE,
    json: Json = False,
) -> int:
    """Print the description of an agent class, or check a description in a file or at a URL.

    lmos-actors describe agents/weather.py:WeatherAgent

    lmos-actors describe agents/weather.py:WeatherAgent --base wss://agents.example.org --name weather

    lmos-actors describe weather.td.json --strict

    lmos-actors describe weather.td.json --against agents/weather.py:WeatherAgent

    lmos-actors describe http://127.0.0.1:8080/agents/weather --against agents/weather.py:WeatherAgent

    lmos-actors describe agents/weather.py:WeatherAgent --for kotlin-wot

    A class is path/file.py:Class or package.module:Class.

    Exit codes: 1 there is a mistake, a part that --for cannot read, or a difference that breaks consumers \
of the class; 3 nothing is at the URL.

    Parameters
    ----------
    subject
        An agent class; a file: JSON, YAML or TOML; or the URL of an agent that is served.
    against
        Print every difference from the description of this class.
    reader
        Print everything that this implementation cannot read.
    strict
        Tolerate nothing: each violation of TD 1.1 or LMOS is an error, and each difference except in wording.
    base
        Where the agent is served, ws, wss, http or https; ws://127.0.0.1:8080 unless given.
    name
        The name of the agent there; that of the class unless given.
    id_
        The URI of the agent; one made of base and name unless given.
    """
    from .._describe import DescribeOptions, describe_subject

    options = DescribeOptions(
        base=base,
        name=name,
        id=id_,
        strict=strict,
        against=against,
        reader=reader,
        json=json,
        server=server,
    )
    return describe_subject(subject, options)
