"""A slow cable between two switches: a program that carries each frame from one tap to another after a delay.

    python slow_cable.py MILLISECONDS TAP TAP

It stands in for `tc netem`, which many kernels do not have. It prints a line once both taps are there, and
they are gone with it.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import sys
import time
from collections import deque
from contextlib import suppress

TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000


def tap(name: str) -> int:
    """Return the descriptor of a new tap: from it is read what was sent there."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    return descriptor


def carry(seconds: float, first: int, second: int) -> None:
    """Carry frames until the end of the process."""
    waiting: deque[tuple[float, int, bytes]] = deque()
    while True:
        wait = max(waiting[0][0] - time.monotonic(), 0) if waiting else None
        for source in select.select([first, second], [], [], wait)[0]:
            target = second if source == first else first
            waiting.append((time.monotonic() + seconds, target, os.read(source, 65_536)))
        while waiting and waiting[0][0] <= time.monotonic():
            _, target, frame = waiting.popleft()
            with suppress(OSError):  # at the other end the cable is not plugged in yet: the frame is lost
                os.write(target, frame)


if __name__ == "__main__":
    near, far = map(tap, sys.argv[2:])
    print("ready", flush=True)
    carry(int(sys.argv[1]) / 1_000, near, far)
