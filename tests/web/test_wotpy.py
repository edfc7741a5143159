"""wotpy uses the weather agent over HTTP: another library that is not ours, and is unmodified.

What it cannot do by itself is left out: it takes 204 for an error, and sends no credentials with a write.
"""

from __future__ import annotations

import pytest

from agents.weather import UserFeedback, WeatherAgent
from tests.web.foreign import Client, Refused
from tests.web.serving import ANSWER, MODEL, QUESTION, going_on, units, weather


async def test_it_reads_writes_and_invokes(wotpy: Client) -> None:
    async with weather() as (ref, url):
        td = await wotpy.ask("consume", url=url)
        assert td["title"] == "WeatherAgent"
        assert await wotpy.ask("read", name="modelConfiguration") == MODEL
        await wotpy.ask("write", name="units", value="fahrenheit")
        assert await ref.read(WeatherAgent.units) == "fahrenheit"
        assert await wotpy.ask("invoke", name="getWeather", input=QUESTION) == ANSWER
        with pytest.raises(Refused, match="HTTP 400: Bad Request"):
            await wotpy.ask("write", name="units", value="kelvin")
        with pytest.raises(Refused, match="HTTP 405: Method Not Allowed"):
            await wotpy.ask("write", name="modelConfiguration", value=MODEL)
        with pytest.raises(Refused, match="HTTP 404: Not Found"):
            await wotpy.ask("consume", url=f"{url}s")


async def test_it_observes_and_hears_events(wotpy: Client) -> None:
    async with weather() as (ref, url):
        await wotpy.ask("consume", url=url)
        await wotpy.ask("observe", name="units")
        await wotpy.ask("subscribe", name="userFeedbackReceived")
        values = units()

        async def both() -> None:
            await ref.write(WeatherAgent.units, next(values))
            await ref.invoke(WeatherAgent.give_feedback, UserFeedback(rating=5))

        async with going_on(both):
            heard = await wotpy.ask("heard", name="units", count=12)
            praise = await wotpy.ask("heard", name="userFeedbackReceived", count=3)
        assert set(heard) == {"celsius", "fahrenheit"}
        assert praise[:3] == [{"rating": 5}] * 3
