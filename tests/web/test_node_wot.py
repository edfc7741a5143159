"""node-wot uses the weather agent over HTTP: it is not ours, has never heard of us, and is unmodified."""

from __future__ import annotations

import pytest
import trio

from agents.weather import UserFeedback, WeatherAgent
from tests.web.foreign import Client, Refused
from tests.web.serving import ANSWER, MODEL, QUESTION, going_on, subprotocol_at, units, weather


async def test_it_reads_writes_and_invokes(node_wot: Client) -> None:
    async with weather() as (ref, url):
        td = await node_wot.ask("consume", url=url)
        assert td["title"] == "WeatherAgent"
        assert await node_wot.ask("read", name="units") == "celsius"
        await node_wot.ask("write", name="units", value="fahrenheit")
        assert await ref.read(WeatherAgent.units) == "fahrenheit"
        assert await node_wot.ask("invoke", name="getWeather", input=QUESTION) == ANSWER
        assert await node_wot.ask("invoke", name="giveFeedback", input={"rating": 4}) is None
        await node_wot.ask("writeMany", values={"units": "celsius"})
        assert await node_wot.ask("readAll") == {"modelConfiguration": MODEL, "units": "celsius"}


async def test_what_is_wrong_comes_to_it_as_an_error(node_wot: Client) -> None:
    async with weather() as (ref, url):
        await node_wot.ask("consume", url=url)
        with pytest.raises(Refused, match=r"^Client error: Bad Request$"):
            await node_wot.ask("write", name="units", value="kelvin")
        with pytest.raises(Refused, match=r"^Client error: Bad Request$"):
            await node_wot.ask("invoke", name="giveFeedback", input={"rating": 9})
        with pytest.raises(Refused, match="did not get suitable form"):
            await node_wot.ask("write", name="modelConfiguration", value={})
        assert await ref.read(WeatherAgent.units) == "celsius"
        with pytest.raises(Refused, match=r"^Client error: Not Found$"):
            await node_wot.ask("consume", url=f"{url}s")


@pytest.mark.parametrize("subprotocol", ["longpoll", "sse"])
async def test_it_observes(node_wot: Client, subprotocol: str) -> None:
    async with weather() as (ref, url):
        td = await node_wot.ask("consume", url=url)
        index = subprotocol_at(td["properties"]["units"], subprotocol)
        await node_wot.ask("observe", name="units", form=index)
        values = units()
        async with going_on(lambda: ref.write(WeatherAgent.units, next(values))):
            heard = await node_wot.ask("heard", name="units", count=12)
        assert set(heard) == {"celsius", "fahrenheit"}
        await node_wot.ask("stop", name="units")


@pytest.mark.parametrize("subprotocol", ["longpoll", "sse"])
async def test_it_hears_events(node_wot: Client, subprotocol: str) -> None:
    async with weather() as (ref, url):
        td = await node_wot.ask("consume", url=url)
        index = subprotocol_at(td["events"]["userFeedbackReceived"], subprotocol)
        await node_wot.ask("subscribe", name="userFeedbackReceived", form=index)
        praise = UserFeedback(rating=5, comment="sunny")
        async with going_on(lambda: ref.invoke(WeatherAgent.give_feedback, praise)):
            heard = await node_wot.ask("heard", name="userFeedbackReceived", count=3)
        assert heard[:3] == [{"rating": praise.rating, "comment": praise.comment}] * 3
        await node_wot.ask("stop", name="userFeedbackReceived")


async def test_it_finds_the_agent_in_a_directory(node_wot: Client) -> None:
    async with weather(directory=True, register=True) as (_, url):
        root = url.removesuffix("agents/weather-agent")
        found: list[str] = []
        for _ in range(100):
            found = await node_wot.ask("explore", url=f"{root}.well-known/wot")
            if found:
                break
            await trio.sleep(0.05)
        assert found == [url]
