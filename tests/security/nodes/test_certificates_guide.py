"""The guide on certificates: its commands make some that Python accepts at its strictest, at both ends."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from lmos_actors import open_node
from lmos_actors.security import Security, client_tls, server_tls
from lmos_actors.transport import ConnectFailed, MemoryNetwork
from tests.docs.test_documents import blocks
from tests.security.nodes.guarded import Desk, tree
from tests.source import ROOT

if TYPE_CHECKING:
    from pathlib import Path


PAGE = (ROOT / "docs/guides/certificates.md").read_text(encoding="utf-8")
PLACE = "wss://weather.example"
WITHOUT = {
    "CA cert does not include key usage extension": (' -addext "keyUsage=critical,keyCertSign,cRLSign"', ""),
    "Missing Authority Key Identifier": (
        "authorityKeyIdentifier = keyid:always",
        "authorityKeyIdentifier = none",  # by itself a newer `openssl` would put it there
    ),
}


def make(folder: Path, page: str) -> None:
    """Write the files of the page, and run its commands of `openssl`."""
    for block in blocks(page):
        if block.title:
            (folder / block.title).write_text(block.body, encoding="utf-8")
    for block in blocks(page):
        if block.kind == "sh":
            for line in block.body.replace("\\\n", " ").splitlines():
                assert line.startswith("openssl ")
                subprocess.run(line, shell=True, cwd=folder, check=True, capture_output=True)


def strict(context: ssl.SSLContext) -> ssl.SSLContext:
    """Have it look at certificates as Python 3.13 does by itself."""
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


async def who_asks(folder: Path, network: Any) -> str | None:
    """Ask an agent who has asked, with all certificates looked at strictly."""
    tls = strict(server_tls(folder / "server.pem", folder / "server.key", client_ca=folder / "ca.pem"))
    mine = strict(client_tls(folder / "ca.pem", cert=folder / "alice.pem", key=folder / "alice.key"))
    security = Security.load(folder / "rules.yaml")
    async with (
        open_node(tree(), listen=PLACE, tls=tls, security=security, network=network),
        open_node(client_tls=mine, network=network) as client,
    ):
        desk = await client.consume(Desk, f"{PLACE}/agents/desk")
        return await desk.invoke(Desk.who)


@pytest.fixture(autouse=True)
def _openssl() -> None:
    assert shutil.which("openssl"), "the guide needs the command"


async def test_what_the_guide_makes_is_accepted_by_both_ends(autojump_clock: Any, tmp_path: Path) -> None:
    make(tmp_path, PAGE)
    assert await who_asks(tmp_path, MemoryNetwork()) == "alice"


@pytest.mark.parametrize("said", WITHOUT)
async def test_what_the_guide_says_of_missing_extensions(
    autojump_clock: Any, tmp_path: Path, said: str
) -> None:
    part, other = WITHOUT[said]
    assert said in PAGE
    assert part in PAGE
    make(tmp_path, PAGE.replace(part, other).replace("openssl verify", "openssl version #"))
    with pytest.raises(ConnectFailed, match=f"of the server is not accepted: {said}") as caught:
        await who_asks(tmp_path, MemoryNetwork())
    assert caught.value.certificate == "server"
