"""DNS-SD over multicast DNS: announcing and browsing on the local network (WoT Discovery, 6.3.1).

Guarantees:

- **No task blocks.** The calls of zeroconf block, so they run in worker threads with a separate limiter: a
  slow network takes no thread from other work. A cancelled `browse` abandons its thread, which checks `ended`
  and closes the sockets itself.
- **Announcements are untrusted.** Any host on the network may announce anything: names are made printable
  and cut, paths must be plain, the number is bounded (`MAX_SERVICES`), and addresses of this machine are
  ignored, as another host must not direct a client to its own loopback.
- **Names stay unique.** zeroconf's renaming is not used: it builds a wrong name for a service with a
  subtype.
- **Only real time.** A simulated node has no network, so both directions raise ForbiddenCall there.
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
"""Default time of browsing, in seconds."""

MAX_SERVICES: Final = 256
"""Limit of announcements that are read."""

_SCHEMES: Final = ("http", "https")

_limiter: trio.lowlevel.RunVar[trio.CapacityLimiter | None] = trio.lowlevel.RunVar("lmos_actors.mdns", None)


@attrs.frozen
class DiscoveredService:
    """Service found on the network: a name, and the URL of the description of a thing or a directory."""

    name: str
    url: str
    is_directory: bool = False


@attrs.frozen
class Announcement:
    """Announcement of this node: its name, port and addresses, and the path of its description."""

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
        raise ForbiddenCall("DNS-SD needs the real network, which virtual time does not have")


# ---- browsing


async def browse(
    seconds: float = SECONDS, *, real: bool = True, interfaces: Sequence[str] | None = None
) -> list[DiscoveredService]:
    """Return the services announced on the network within some seconds, sorted by name.

    `interfaces` are addresses of this machine, all by default. Raises ConfigError without the extra `mdns`
    or without multicast, ForbiddenCall on virtual time.
    """
    _check_real(real)
    zeroconf, ended = _zeroconf(), threading.Event()
    listening = partial(_browse_in_thread, zeroconf, seconds, interfaces, ended)
    try:
        found: list[DiscoveredService] = await _in_thread(listening, abandon=True)
    finally:
        ended.set()  # an abandoned thread checks it
    return found


def _browse_in_thread(
    zeroconf: Any, seconds: float, interfaces: Sequence[str] | None, ended: threading.Event
) -> list[DiscoveredService]:
    listener = _ServiceListener()
    zc = _open_zeroconf(zeroconf, interfaces)
    try:
        browser = zeroconf.ServiceBrowser(zc, [SERVICE, DIRECTORY], listener=listener)
        ended.wait(seconds)
        browser.cancel()
        found: list[DiscoveredService] = []
        ends = time.monotonic() + 3.0  # for resolving the addresses of all
        for kind, name in list(listener.names)[:MAX_SERVICES]:
            info = zeroconf.ServiceInfo(SERVICE, name)
            late = ended.is_set() or time.monotonic() > ends
            if info.load_from_cache(zc) or (not late and info.request(zc, 500)):
                service = service_of(info, is_directory=kind == DIRECTORY, local=interfaces is not None)
                found += [] if service is None else [service]
        found.sort(key=lambda each: (each.name, each.url, not each.is_directory))
        return list({(each.name, each.url): each for each in reversed(found)}.values())[::-1]
    finally:
        zc.close()


def _open_zeroconf(zeroconf: Any, interfaces: Sequence[str] | None) -> Zeroconf:
    try:
        opened: Zeroconf = (
            zeroconf.Zeroconf() if interfaces is None else zeroconf.Zeroconf(interfaces=list(interfaces))
        )
    except OSError as error:
        raise ConfigError(f"DNS-SD is not possible here: {error.strerror or error}") from error
    return opened


class _ServiceListener:
    """Listener of the browser, called in zeroconf's thread, with a limit on the number of names."""

    def __init__(self) -> None:
        self.names: dict[tuple[str, str], None] = {}

    def add_service(self, _: Any, kind: str, name: str) -> None:
        if len(self.names) < MAX_SERVICES:
            self.names[kind, name] = None

    def update_service(self, _: Any, kind: str, name: str) -> None:
        pass

    def remove_service(self, _: Any, kind: str, name: str) -> None:
        self.names.pop((kind, name), None)


def service_of(info: ServiceInfo, *, is_directory: bool, local: bool = False) -> DiscoveredService | None:
    """Return the service of an announcement, None for an unusable one.

    `local`: addresses of this machine are accepted, as the caller browses its own interfaces.
    """
    properties = {_text(key): _text(value) for key, value in (info.properties or {}).items()}
    path, scheme = properties.get("td") or WELL_KNOWN, properties.get("scheme") or "http"
    port = info.port
    if scheme not in _SCHEMES or not port or not 0 < port < 65536 or not _is_path(path):
        return None
    host = _host_of(info, scheme, local=local)
    if host is None:
        return None
    is_directory = is_directory or properties.get("type") == "Directory"
    label = info.name.removesuffix(f".{SERVICE}")
    name = "".join(letter if letter.isprintable() else "?" for letter in label[:63])
    return DiscoveredService(name, f"{scheme}://{host}:{port}{path}", is_directory)


def _text(data: bytes | None) -> str:
    return "" if data is None else data.decode("utf-8", "replace")


def _is_path(path: str) -> bool:
    return (
        path.startswith("/")
        and not path.startswith("//")
        and len(path) <= 1024
        and path.isascii()
        and path.isprintable()
        and not any(letter in path for letter in ' "#<>\\^`{|}')
    )


def _host_of(info: ServiceInfo, scheme: str, *, local: bool) -> str | None:
    """Return the host to connect to: an address, or for https the name that the certificate must match."""
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
    """Announcements of one node, until `close`."""

    def __init__(self, *, real: bool = True, interfaces: Sequence[str] | None = None) -> None:
        _check_real(real)
        self._zeroconf = _zeroconf()
        self._interfaces = interfaces
        self._opened: Zeroconf | None = None

    async def open(self, announcements: Sequence[Announcement]) -> None:
        """Announce the node; a name that is in use gets a number. Raises ConfigError without multicast."""
        await _in_thread(self._open, announcements)

    def _open(self, announcements: Sequence[Announcement]) -> None:
        zc = self._opened = _open_zeroconf(self._zeroconf, self._interfaces)
        try:
            for each in announcements:
                self._register(zc, each)
        except (self._zeroconf.Error, OSError) as error:
            raise ConfigError(f"DNS-SD is not possible here: {str(error) or type(error).__name__}") from error

    def _register(self, zc: Zeroconf, each: Announcement) -> None:
        for number in range(2, 10):
            try:
                zc.register_service(self._info(each))
                return
            except self._zeroconf.NonUniqueNameException:  # zeroconf's own renaming breaks subtypes
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
        """Withdraw the announcements (RFC 6762, 10.1)."""
        zc, self._opened = self._opened, None
        if zc is not None:
            with trio.CancelScope(shield=True):
                await _in_thread(zc.close)


def name_of(text: str) -> str:
    """Return a text as a name for an announcement: printable, and short enough for a suffix."""
    shown = "".join(letter for letter in text if letter.isprintable()).strip()
    # a DNS label has 63 bytes, and a number or a word may follow
    return shown.encode()[:45].decode(errors="ignore").strip() or "agents"


def addresses_of(hosts: Sequence[str]) -> tuple[str, ...]:
    """Return the addresses by which other machines reach a node that listens at these hosts.

    Raises ConfigError if there are none, as for a node that listens at loopback only.
    """
    found: dict[str, None] = {}
    for host in hosts:
        if host in ("0.0.0.0", "::"):
            found.update(dict.fromkeys(_own_addresses()))
            continue
        try:
            properties = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except OSError:
            continue
        found.update(dict.fromkeys(str(each[4][0]).partition("%")[0] for each in properties))
    reached = tuple(address for address in found if not is_here(address))
    if not reached:
        raise ConfigError(f"{', '.join(hosts)} cannot be reached from the network: listen at another address")
    return reached


def _own_addresses() -> list[str]:
    _zeroconf()
    import ifaddr  # comes with zeroconf

    each = [ip.ip for adapter in ifaddr.get_adapters() for ip in adapter.ips]
    return [ip if isinstance(ip, str) else ip[0] for ip in each]
