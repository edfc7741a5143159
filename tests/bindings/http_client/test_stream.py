"""What is said of a request whose connection ends, and of its repetition."""

from __future__ import annotations

from typing import Any

import pytest

from lmos_actors import OutcomeUnknown
from lmos_actors.errors import ConnectFailed
from tests.bindings.web_things import cut, lamp, say, talk


async def test_what_may_have_begun_is_not_unavailable_when_it_cannot_be_repeated(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with lamp() as (site, _, thing):
        site.on("POST /reset", say(None, "204 No Content"), talk(cut))
        await thing.invoke("reset")

        async def refuse(*_: Any) -> Any:
            raise ConnectFailed("http://lamp", "nothing is listening there")

        monkeypatch.setattr(site.network, "connect", refuse)
        with pytest.raises(OutcomeUnknown):
            await thing.invoke("reset")
        assert site.lines() == ["POST /reset"] * 2
