"""`fault-proxy`. The docstring is the help."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Group, Parameter

from .._app import REACHED, JsonLines, Switch, decimal, whole

LINKS = Group("Links", sort_key=1.5)


def fault_proxy(
    *,
    to: Annotated[str, Parameter(metavar="HOST:PORT", group=REACHED)],
    listen: Annotated[str, Parameter(metavar="HOST:PORT", group=REACHED)] = "127.0.0.1:0",
    insecure: Annotated[Switch, Parameter(group=REACHED)] = False,
    latency: Annotated[str | None, Parameter(metavar="DELAY", group=LINKS)] = None,
    jitter: Annotated[str | None, Parameter(metavar="DELAY", group=LINKS)] = None,
    loss: Annotated[float, Parameter(converter=decimal, metavar="SHARE", group=LINKS)] = 0.0,
    corrupt: Annotated[float, Parameter(converter=decimal, metavar="SHARE", group=LINKS)] = 0.0,
    bandwidth: Annotated[str | None, Parameter(metavar="SIZE", group=LINKS)] = None,
    seed: Annotated[int, Parameter(converter=whole, metavar="N", group=LINKS)] = 1,
    json: JsonLines = False,
) -> int:
    """Be a bad network between clients and a server: a TCP proxy with the faults of simulated networks.

    lmos-actors fault-proxy --listen 127.0.0.1:9000 --to 127.0.0.1:8080 --latency 20ms

    lmos-actors fault-proxy --to 127.0.0.1:8080 --latency lognormal:25ms:250ms --loss 0.01 --bandwidth 1MiB

    While it runs, it reads faults from the standard input, one in each line:

    cut, cut one-way in, cut one-way out: nothing gets through, both ways, to the server or from it

    hang: connections are half open, nothing gets through, and nothing says so

    reset: all connections end in an instant

    latency DELAY, loss SHARE: everything takes longer, a further share is lost

    heal: all faults end

    All but reset and heal end by themselves with: for 5s

    A DELAY is a time, as 20ms, or a distribution: uniform:10ms:30ms, exponential:MEAN, \
normal:MEAN:DEVIATION, lognormal:MEDIAN:P99, empirical:10ms:12ms:90ms, empirical:@FILE.

    Ctrl-C or SIGTERM ends it, and all connections.

    Exit codes: 0 ended in order; 2 the usage is wrong, or a line that was not typed at a terminal; \
3 an address is taken.

    Parameters
    ----------
    to
        The server.
    listen
        Where clients connect; port 0 finds a free one.
    insecure
        Listen at an address that other machines reach, which reach the server then, too.
    latency
        How long everything takes, each way.
    jitter
        The same, added.
    loss
        The share that gets lost, from 0 to below 1: it comes later, as it is sent again.
    corrupt
        The share of writes in which one byte is changed.
    bandwidth
        How much of all connections gets through in a second, each way, as 64KiB or 1MiB.
    seed
        What chance follows from.
    """
    from .._fault_proxy import FaultProxyRequest, run_fault_proxy

    return run_fault_proxy(
        FaultProxyRequest(
            to=to,
            listen=listen,
            insecure=insecure,
            latency=latency,
            jitter=jitter,
            loss=loss,
            corrupt=corrupt,
            bandwidth=bandwidth,
            seed=seed,
            json=json,
        )
    )
