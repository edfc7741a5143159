"""A voice agent: frames of audio come as a stream, and frames go back while somebody speaks.

A frame is 20 ms of sound: 320 samples of 16 bits, or as many as its sender likes. `scenarios/voice.yaml`
speaks to it, `docs/guides/stream-into-agents.md` explains it.
"""

from __future__ import annotations

from array import array
from collections.abc import AsyncIterator
from typing import Annotated

from msgspec import Meta, Struct

from lmos_actors import Agent, Event, Property, action, event, prop

LOUDEST = 32767


class Summary(Struct, frozen=True):
    """How many frames there were, and in how many of them somebody spoke."""

    frames: int
    spoken: int


class Voice(Agent):
    """Listens, and repeats what is spoken, louder."""

    gain: Property[Annotated[float, Meta(gt=0, le=16)]] = prop(default=2.0, doc="By how much it is louder.")
    quiet: Property[Annotated[int, Meta(ge=0, le=LOUDEST)]] = prop(
        default=500, doc="The mean of its samples up to which a frame is silence."
    )
    speaking: Event[bool] = event(doc="Somebody has begun to speak, or has stopped.")

    @action(concurrency=8)
    async def converse(self, said: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Repeat each frame in which somebody speaks, louder, as it comes."""
        speaks = False
        async for frame in said:
            samples = samples_of(frame)
            if (loudness(samples) > self.quiet) != speaks:
                speaks = not speaks
                self.speaking.emit(speaks)
            if speaks:
                yield amplified(samples, self.gain)

    @action(concurrency=8)
    async def listen(self, said: AsyncIterator[bytes]) -> Summary:
        """Count the frames in which somebody speaks."""
        frames = [loudness(samples_of(frame)) > self.quiet async for frame in said]
        return Summary(len(frames), sum(frames))


def samples_of(frame: bytes) -> array[int]:
    """Return the samples of a frame; half a sample at its end is dropped."""
    return array("h", frame[: len(frame) // 2 * 2])


def loudness(samples: array[int]) -> float:
    """Return the mean of the samples without their signs."""
    return sum(map(abs, samples)) / len(samples) if samples else 0.0


def amplified(samples: array[int], gain: float) -> bytes:
    """Return a frame that is so many times as loud, up to the loudest there is."""
    return array("h", [max(-LOUDEST, min(LOUDEST, round(gain * sample))) for sample in samples]).tobytes()
