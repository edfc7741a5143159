"""Files of certificates that cannot be used, and certificates out of their time: said at the start."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
import trustme

from lmos_actors import ConfigError, open_node
from lmos_actors.security import client_tls, server_tls
from lmos_actors.transport import MemoryNetwork

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DAY = timedelta(days=1)
OUT_OF_TIME = {"old": "has expired", "early": "is not valid yet"}


@cache
def blobs() -> dict[str, bytes]:
    """Certificates and keys by the names of the files that they go into."""
    authority, now = trustme.CA(), datetime.now(UTC)
    mine, other = authority.issue_cert("here"), authority.issue_cert("here")
    old = authority.issue_cert("here", not_after=now - DAY)
    early = authority.issue_cert("here", not_before=now + DAY, not_after=now + 2 * DAY)
    return {
        "mine.pem": mine.cert_chain_pems[0].bytes(),
        "mine.key": mine.private_key_pem.bytes(),
        "other.key": other.private_key_pem.bytes(),
        "mixed.pem": mine.cert_chain_pems[0].bytes() + other.private_key_pem.bytes(),
        "old.pem": old.private_key_and_cert_chain_pem.bytes(),
        "early.pem": early.private_key_and_cert_chain_pem.bytes(),
        "junk.pem": b"nothing of the kind\n",
        "empty.pem": b"",
    }


@pytest.fixture
def at(tmp_path: Path) -> Callable[[str], str]:
    for name, blob in blobs().items():
        (tmp_path / name).write_bytes(blob)
    return lambda name: str(tmp_path / name)


BOTH = pytest.mark.parametrize(
    "load", [server_tls, lambda cert, key=None: client_tls(cert=cert, key=key)], ids=["server", "client"]
)


@BOTH
@pytest.mark.parametrize(
    ("cert", "key", "said"),
    [
        ("mine.pem", "other.key", "other.key: the key does not belong to the certificate in "),
        ("mixed.pem", None, "mixed.pem: the key does not belong to the certificate in it"),
        (
            "mine.pem",
            None,
            "mine.pem: holds no private key: name the file with the key",
        ),
        (
            "mine.key",
            "mine.pem",
            "mine.key: holds no certificate: swap the certificate and its key",
        ),
        ("junk.pem", "mine.key", "junk.pem: holds no certificate in PEM"),
        ("empty.pem", None, "empty.pem: holds no certificate in PEM"),
        ("mine.pem", "junk.pem", "junk.pem: holds no private key in PEM"),
        ("none.pem", None, "none.pem: cannot be read: No such file"),
        ("old.pem", None, "old.pem: the certificate has expired"),
        ("early.pem", None, "early.pem: the certificate is not valid yet"),
    ],
)
def test_certificate_errors_name_the_fix(
    at: Callable[[str], str], load: Any, cert: str, key: str | None, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        load(at(cert), None if key is None else at(key))


@BOTH
def test_one_that_is_good_is_taken(at: Callable[[str], str], load: Any) -> None:
    assert load(at("mine.pem"), at("mine.key")).verify_mode in (ssl.CERT_NONE, ssl.CERT_REQUIRED)


def just_1_2(tls: ssl.SSLContext) -> None:
    tls.maximum_version = ssl.TLSVersion.TLSv1_2


def just_1_3(tls: ssl.SSLContext) -> None:
    tls.minimum_version = ssl.TLSVersion.TLSv1_3


@pytest.mark.parametrize("kind", OUT_OF_TIME)
@pytest.mark.parametrize("asking", [False, True], ids=["asks nobody", "asks for certificates"])
@pytest.mark.parametrize("speak", [lambda _: None, just_1_2, just_1_3])
async def test_a_node_does_not_listen_with_a_certificate_out_of_its_time(
    at: Callable[[str], str], kind: str, asking: bool, speak: Callable[[ssl.SSLContext], None]
) -> None:
    """However the context was made: nobody who looks would connect."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(at(f"{kind}.pem"))
    if asking:
        tls.verify_mode = ssl.CERT_REQUIRED
    speak(tls)
    with pytest.raises(ConfigError, match=rf"open_node\(tls=...\): its certificate {OUT_OF_TIME[kind]}"):
        async with open_node(listen="wss://here", tls=tls, network=MemoryNetwork()):
            pass


@pytest.mark.parametrize("asking", [False, True], ids=["asks nobody", "asks for certificates"])
@pytest.mark.parametrize("speak", [lambda _: None, just_1_2, just_1_3])
async def test_a_node_listens_with_a_good_one(
    at: Callable[[str], str], asking: bool, speak: Callable[[ssl.SSLContext], None]
) -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(at("mine.pem"), at("mine.key"))
    if asking:
        tls.verify_mode = ssl.CERT_REQUIRED
    speak(tls)
    async with open_node(listen="wss://here", tls=tls, network=MemoryNetwork()) as node:
        assert node.urls == ("wss://here",)


async def test_a_context_without_a_certificate_is_not_judged(autojump_clock: Any) -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    async with open_node(listen="wss://here", tls=tls, network=MemoryNetwork()) as node:
        assert node.urls == ("wss://here",)
