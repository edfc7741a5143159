"""DNS-SD over multicast DNS: what is on this network says so, and is heard (WoT Discovery, 6.3.1).

zeroconf works in threads of its own and is asked in others: its calls block. What others announce is not
believed before it is checked.
"""

from __future__ import annotations

import socket
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from lmos_actors.errors import ConfigError, ForbiddenCall
from lmos_actors.transport import is_here

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from zeroconf import ServiceInfo, Zeroconf

SERVICE: Final = "_wot._tcp.local."
DIRECTORY: Final = "_directory._sub._wot._tcp.local."
WELL_KNOWN: Final = "/.well-known/wot"

SECONDS: Final = 3.0
"""For which others are listened to."""

RESOLVING: Final = 3.0
"""Seconds more in which it is asked where they are."""

MOST: Final = 256
"""Announcements that are looked at."""

LONGEST_NAME: Final = 45  # bytes, of 63: a number or a word may follow
NAMESAKES: Final = 9  # of which each gets a number

LONGEST_PATH: Final = 1024
_SCHEMES: Final = ("http", "https")

_limiter: trio.lowlevel.RunVar[trio.CapacityLimiter | None] = trio.lowlevel.RunVar("lmos_actors.mdns", None)


@attrs.frozen
class Announced:
    """Somebody on this network: a name, and the URL of the description of a thing or a directory."""

    name: str
    url: str
    is_directory: bool = False


@attrs.frozen
class Announcement:
    """What this node announces: where it is reached, and the path of its description."""

    name: str
    port: int
    addresses: tuple[str, ...]
    path: str = WELL_KNOWN
    is_directory: bool = False
    secure: bool = False


def _zeroconf() -> Any:
    try:
        import zeroconf
    except ImportError:
        raise ConfigError("DNS-SD needs the extra mdns: pip install 'lmos-actors[mdns]'") from None
    return zeroconf


async def _in_thread(fn: Callable[..., Any], *args: Any, abandon: bool = False) -> Any:
    limiter = _limiter.get()
    if limiter is None:
        limiter = trio.CapacityLimiter(4)
        _limiter.set(limiter)
    return await trio.to_thread.run_sync(fn, *args, limiter=limiter, abandon_on_cancel=abandon)


def _check_real(real: bool) -> None:
    if not real:
        raise ForbiddenCall("DNS-SD is about this network, which is not there on virtual time")


# ---- browsing


async def browse(
    seconds: float = SECONDS, *, real: bool = True, interfaces: Sequence[str] | None = None
) -> list[Announced]:
    """Listen for so many seconds to who is on this network; return what was announced, by name.

    `interfaces` are addresses of this machine, by default all. Raises ConfigError without the extra `mdns`
    and where there is no multicast, ForbiddenCall on virtual time.
    """
    _check_real(real)
    zeroconf, ended = _zeroconf(), threading.Event()
    listening = partial(_browsed, zeroconf, seconds, interfaces, ended)
    try:
        found: list[Announced] = await _in_thread(listening, abandon=True)
    finally:
        ended.set()  # a thread that was abandoned looks at it
    return found


def _browsed(
    zeroconf: Any, seconds: float, interfaces: Sequence[str] | None, ended: threading.Event
) -> list[Announced]:
    heard = _Heard()
    zc = _opened(zeroconf, interfaces)
    try:
        browser = zeroconf.ServiceBrowser(zc, [SERVICE, DIRECTORY], listener=heard)
        ended.wait(seconds)
        browser.cancel()
        found: list[Announced] = []
        ends = time.monotonic() + RESOLVING
        for kind, name in list(heard.names)[:MOST]:
            info = zeroconf.ServiceInfo(SERVICE, name)
            late = ended.is_set() or time.monotonic() > ends
            if info.load_from_cache(zc) or (not late and info.request(zc, 500)):
                taken = announced_by(info, is_directory=kind == DIRECTORY, local=interfaces is not None)
                found += [] if taken is None else [taken]
        found.sort(key=lambda each: (each.name, each.url, not each.is_directory))
        return list({(each.name, each.url): each for each in reversed(found)}.values())[::-1]
    finally:
        zc.close()


def _opened(zeroconf: Any, interfaces: Sequence[str] | None) -> Zeroconf:
    try:
        opened: Zeroconf = (
            zeroconf.Zeroconf() if interfaces is None else zeroconf.Zeroconf(interfaces=list(interfaces))
        )
    except OSError as error:
        raise ConfigError(f"DNS-SD is not possible here: {error.strerror or error}") from error
    return opened


class _Heard:
    """What the browser tells, in a thread of its own; bounded."""

    def __init__(self) -> None:
        self.names: dict[tuple[str, str], None] = {}

    def add_service(self, _: Any, kind: str, name: str) -> None:
        if len(self.names) < MOST:
            self.names[kind, name] = None

    def update_service(self, _: Any, kind: str, name: str) -> None:
        pass

    def remove_service(self, _: Any, kind: str, name: str) -> None:
        self.names.pop((kind, name), None)


def announced_by(info: ServiceInfo, *, is_directory: bool, local: bool = False) -> Announced | None:
    """Return what an announcement says, None for one that says nothing that could be used.

    `local`: addresses of this very machine are meant.
    """
    told = {_text(key): _text(value) for key, value in (info.properties or {}).items()}
    path, scheme = told.get("td") or WELL_KNOWN, told.get("scheme") or "http"
    port = info.port
    if scheme not in _SCHEMES or not port or not 0 < port < 65536 or not _is_path(path):
        return None
    host = _host_of(info, scheme, local=local)
    if host is None:
        return None
    is_directory = is_directory or told.get("type") == "Directory"
    label = info.name.removesuffix(f".{SERVICE}")
    name = "".join(letter if letter.isprintable() else "?" for letter in label[:63])
    return Announced(name, f"{scheme}://{host}:{port}{path}", is_directory)


def _text(data: bytes | None) -> str:
    return "" if data is None else data.decode("utf-8", "replace")


def _is_path(path: str) -> bool:
    return (
        path.startswith("/")
        and not path.startswith("//")
        and len(path) <= LONGEST_PATH
        and path.isascii()
        and path.isprintable()
        and not any(letter in path for letter in ' "#<>\\^`{|}')
    )


def _host_of(info: ServiceInfo, scheme: str, *, local: bool) -> str | None:
    """Return the address to connect to; where a certificate tells a name, that."""
    if scheme == "https" and info.server:
        name = info.server.removesuffix(".")
        if (
            name.isascii()
            and all(letter.isalnum() or letter in "-." for letter in name)
            and not is_here(name)
        ):
            return name
    for address in sorted(info.parsed_addresses(), key=lambda each: ":" in each):
        if local or not is_here(address):
            return f"[{address}]" if ":" in address else address
    return None


# ---- announcing


class Announcer:
    """What one node announces, until `close`."""

    def __init__(self, *, real: bool = True, interfaces: Sequence[str] | None = None) -> None:
        _check_real(real)
        self._zeroconf = _zeroconf()
        self._interfaces = interfaces
        self._opened: Zeroconf | None = None

    async def open(self, announcements: Sequence[Announcement]) -> None:
        """Announce. Names that are taken get a number. Raises ConfigError where that is not possible."""
        await _in_thread(self._open, announcements)

    def _open(self, announcements: Sequence[Announcement]) -> None:
        zc = self._opened = _opened(self._zeroconf, self._interfaces)
        try:
            for each in announcements:
                self._register(zc, each)
        except (self._zeroconf.Error, OSError) as error:
            raise ConfigError(f"DNS-SD is not possible here: {str(error) or type(error).__name__}") from error

    def _register(self, zc: Zeroconf, each: Announcement) -> None:
        for number in range(2, NAMESAKES + 1):
            try:
                zc.register_service(self._info(each))
                return
            except self._zeroconf.NonUniqueNameException:  # its own new names are wrong for a subtype
                each = attrs.evolve(each, name=f"{each.name.removesuffix(f' ({number - 1})')} ({number})")
        zc.register_service(self._info(each))

    def _info(self, each: Announcement) -> ServiceInfo:
        kind = "Directory" if each.is_directory else "Thing"
        info: ServiceInfo = self._zeroconf.ServiceInfo(
            DIRECTORY if each.is_directory else SERVICE,
            f"{each.name}.{SERVICE}",
            port=each.port,
            parsed_addresses=list(each.addresses),
            server=f"{socket.gethostname().partition('.')[0]}.local.",
            properties={"td": each.path, "type": kind, "scheme": "https" if each.secure else "http"},
        )
        return info

    async def close(self) -> None:
        """Say good-bye."""
        zc, self._opened = self._opened, None
        if zc is not None:
            with trio.CancelScope(shield=True):
                await _in_thread(zc.close)


def name_of(text: str) -> str:
    """Make a text a name that can be announced: printable, and not too long for what may follow it."""
    shown = "".join(letter for letter in text if letter.isprintable()).strip()
    return shown.encode()[:LONGEST_NAME].decode(errors="ignore").strip() or "agents"


def addresses_of(hosts: Sequence[str]) -> tuple[str, ...]:
    """Return the addresses by which others on this network reach what listens at these hosts.

    Raises ConfigError where there are none: what listens at loopback alone is for this machine.
    """
    found: dict[str, None] = {}
    for host in hosts:
        if host in ("0.0.0.0", "::"):
            found.update(dict.fromkeys(_own_addresses()))
            continue
        try:
            told = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except OSError:
            continue
        found.update(dict.fromkeys(str(each[4][0]).partition("%")[0] for each in told))
    reached = tuple(address for address in found if not is_here(address))
    if not reached:
        raise ConfigError(f"what listens at {', '.join(hosts)} cannot be reached by others on this network")
    return reached


def _own_addresses() -> list[str]:
    _zeroconf()
    import ifaddr  # comes with zeroconf

    each = [ip.ip for adapter in ifaddr.get_adapters() for ip in adapter.ips]
    return [ip if isinstance(ip, str) else ip[0] for ip in each]
