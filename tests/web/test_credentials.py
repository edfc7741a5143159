"""Clients of others present the credentials that our descriptions ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from agents.weather import WeatherAgent
from lmos_actors.security import Access, Basic, Bearer, Security
from tests.web.foreign import Client, Refused
from tests.web.serving import ANSWER, QUESTION, going_on, weather

if TYPE_CHECKING:
    from pathlib import Path

BASIC = {"username": "alice", "password": "pass:word"}
BEARER = {"token": "a-token"}
schemes = pytest.mark.parametrize(
    ("scheme", "good", "bad"),
    [("basic", BASIC, {**BASIC, "password": "another"}), ("bearer", BEARER, {"token": "another"})],
    ids=["basic", "bearer"],
)


def demands(scheme: str, folder: Path) -> Security:
    """Let alice in, who may do all but write, which bob may; anyone may read descriptions."""
    (folder / "alice").write_text("pass:word" if scheme == "basic" else "a-token")
    (folder / "bob").write_text("something-else")
    kept = {name: f"file:{folder / name}" for name in ("alice", "bob")}
    made = Basic(kept) if scheme == "basic" else Bearer(kept)
    return Security(schemes=(made,), public_descriptions=True, access={"*": Access(write=("bob",))})


@schemes
async def test_node_wot(
    node_wot: Client, tmp_path: Path, scheme: str, good: dict[str, str], bad: dict[str, str]
) -> None:
    async with weather(security=demands(scheme, tmp_path)) as (ref, url):
        for credentials, told in ((None, "Cannot destructure"), (bad, "^Client error: Unauthorized$")):
            await node_wot.ask("consume", url=url, credentials=credentials)
            with pytest.raises(Refused, match=told):
                await node_wot.ask("read", name="units")
        await node_wot.ask("consume", url=url, credentials=good)
        assert await node_wot.ask("read", name="units") == "celsius"
        await ref.write(WeatherAgent.units, "fahrenheit")
        assert await node_wot.ask("invoke", name="getWeather", input=QUESTION) == ANSWER
        with pytest.raises(Refused, match=r"^Client error: Forbidden$"):
            await node_wot.ask("write", name="units", value="celsius")
        await node_wot.ask("observe", name="units")  # the first form; for one by its index it forgets them
        values = iter(("celsius", "fahrenheit") * 1000)
        async with going_on(lambda: ref.write(WeatherAgent.units, next(values))):
            assert set(await node_wot.ask("heard", name="units", count=3)) == {"celsius", "fahrenheit"}


@schemes
async def test_wotpy_is_admitted_with_its_credential_alone(
    wotpy: Client, tmp_path: Path, scheme: str, good: dict[str, str], bad: dict[str, str]
) -> None:
    async with weather(security=demands(scheme, tmp_path)) as (_, url):
        td = await described(url)
        (name,) = td["security"] if isinstance(td["security"], list) else [td["security"]]
        definition = td["securityDefinitions"][name]
        await wotpy.ask("consume", td=td, scheme=definition, credentials=bad)
        with pytest.raises(Refused, match="HTTP 401: Unauthorized"):
            await wotpy.ask("read", name="units")
        await wotpy.ask("consume", td=td, scheme=definition, credentials=good)
        assert await wotpy.ask("read", name="units") == "celsius"
        assert "Berlin" in await wotpy.ask("invoke", name="getWeather", input=QUESTION)
        await wotpy.ask("observe", name="units")


async def described(url: str) -> Any:
    """Fetch a description, as anybody may."""
    async with httpx2.AsyncClient() as client:
        return (await client.get(url)).json()
