"""The page over HTTP: who is shown it, what it may load, and what it may not."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors import ConfigError, open_node
from lmos_actors.transport import MemoryNetwork
from tests.security.nodes.guarded import PLACE, Secrets, ask, guarded_node, rules

if TYPE_CHECKING:
    from pathlib import Path

FILES = ("/live/page.js", "/live/page.css")
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
MOST_BYTES = 300_000


@pytest.fixture
def secrets(tmp_path: Path) -> Secrets:
    return Secrets(tmp_path)


async def test_browsers_get_the_page_and_programs_what_they_got(autojump_clock: Any) -> None:
    async with guarded_node(None) as node:
        page = await ask(node, "/", accept=BROWSER)
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert page.headers["vary"] == "Accept, Authorization, Cookie"
        for accept in (
            {},
            {"accept": "*/*"},
            {"accept": "application/json"},
            {"accept": "application/td+json"},
        ):
            listed = await ask(node, "/", **accept)
            assert [each["title"] for each in listed.json] == ["Desk", "Vault"]
        found = re.findall(r'(?:src|href)="(live/[^"]+)"', page.body.decode())
        assert len(found) == 2
        for place in found:
            assert (await ask(node, f"/{place}")).status == 200


async def test_files_are_kept_by_their_tags(autojump_clock: Any) -> None:
    async with guarded_node(None) as node:
        size = 0
        for path in ("/", *FILES):
            first = await ask(node, path, accept=BROWSER)
            size += len(first.body)
            again = await ask(node, path, accept=BROWSER, if_none_match=first.headers["etag"])
            assert (again.status, again.body) == (304, b"")
            head = await ask(node, path, "HEAD", accept=BROWSER)
            assert (head.status, head.body) == (200, b"")
        assert size < MOST_BYTES


async def test_the_page_loads_from_its_node_alone(autojump_clock: Any) -> None:
    async with guarded_node(None) as node:
        for path in ("/", *FILES, "/live/session"):
            answer = await ask(node, path, accept=BROWSER)
            policy = dict(
                part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";")
            )
            assert policy["default-src"] == "'none'"
            assert {policy[f"{kind}-src"] for kind in ("script", "style", "connect")} == {"'self'"}
            assert {
                policy[kind] for kind in ("frame-ancestors", "base-uri", "form-action", "trusted-types")
            } == {"'none'"}
            assert answer.headers["x-frame-options"] == "DENY"
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["referrer-policy"] == "no-referrer"
        text = "".join([(await ask(node, path, accept=BROWSER)).body.decode() for path in ("/", *FILES)])
        assert not re.search(
            r"<script(?![^>]*src=)|<style| style=|\bon[a-z]+=\"|innerHTML|insertAdjacent|eval\(", text
        )
        assert set(re.findall(r"https?://[^\s'\"`]+", text)) == {"http://www.w3.org/2000/svg"}


async def test_the_page_and_nothing_else_is_shown_before_a_log_in(
    autojump_clock: Any, secrets: Secrets
) -> None:
    async with guarded_node(rules(secrets)) as node:
        for path in ("/", *FILES, "/live/session"):
            assert (await ask(node, path, accept=BROWSER)).status == 200
        said = (await ask(node, "/live/session")).json
        assert said == {"viewer": "", "looks": False, "schemes": ["basic", "bearer"]}
        for path in (
            "/",
            "/live",
            "/live/",
            "/live/other",
            "/live/page.js/",
            "/live/../agents/desk",
            "/live/%2e%2e/agents/desk",
        ):
            assert (await ask(node, path)).status == 401
        page = (await ask(node, "/", accept=BROWSER)).body
        assert not any(word in page for word in (b"desk", b"vault", b"alice", b"here"))


async def test_the_page_is_not_for_other_names_and_origins(autojump_clock: Any) -> None:
    async with guarded_node(None) as node:
        for path in ("/", *FILES, "/live/session"):
            assert (await ask(node, path, accept=BROWSER, host="evil.example")).status == 403
            assert (await ask(node, path, accept=BROWSER, origin="https://evil.example")).status == 403
            assert (await ask(node, path, accept=BROWSER, origin="http://here")).status == 200


async def test_other_methods_are_refused(autojump_clock: Any) -> None:
    async with guarded_node(None) as node:
        for path in FILES:
            answer = await ask(node, path, "POST")
            assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")
        assert (await ask(node, "/live/session", "PUT")).status == 405


async def test_without_a_page_browsers_get_the_list_of_agents(autojump_clock: Any) -> None:
    async with guarded_node(None, page=False) as node:
        assert b"Agents" in (await ask(node, "/", accept=BROWSER)).body
        assert (await ask(node, FILES[0])).status == 404
        assert (await ask(node, "/live/session")).status == 404


async def test_a_node_that_is_open_to_others_has_no_page(autojump_clock: Any, secrets: Secrets) -> None:
    options: dict[str, Any] = {"network": MemoryNetwork(), "insecure": True}
    async with open_node(listen=PLACE, **options) as node:
        assert b"live/page.js" not in (await ask(node, "/", accept=BROWSER)).body
    async with open_node(listen="ws://127.0.0.1:1", **options) as node:
        answer = await ask(node, "/", accept=BROWSER, url="ws://127.0.0.1:1")
        assert b"live/page.js" in answer.body
    with pytest.raises(ConfigError, match=r"listen at 127\.0\.0\.1, or use security="):
        async with open_node(listen=PLACE, page=True, **options):
            pass
    async with open_node(listen=PLACE, page=True, security=rules(secrets), **options) as node:
        assert b"live/page.js" in (await ask(node, "/", accept=BROWSER)).body


async def test_a_page_takes_an_address(autojump_clock: Any) -> None:
    with pytest.raises(ConfigError, match="goes with listen="):
        async with open_node(page=True):
            pass
