"""The command `describe`. Its docstring is its help text."""

from __future__ import annotations

from ..options._describe import DescribeOptions

_USUAL = DescribeOptions()


def describe(subject: str, /, *, options: DescribeOptions = _USUAL) -> int:
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
        An agent class; a file: JSON, YAML or TOML; or the URL of a served agent.
    """
    from .._describe import describe_subject

    return describe_subject(subject, options)
