"""The command `fault-proxy`. Its docstring is its help text."""

from __future__ import annotations

from ..options._fault_proxy import FaultProxyOptions  # noqa: TC001 - the application reads the types


def fault_proxy(*, options: FaultProxyOptions) -> int:
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
    """
    from .._fault_proxy import run_fault_proxy

    return run_fault_proxy(options)
