"""Options for judging servers and clients, and the card made with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import attrs
import trio

from lmos_actors.errors import ConfigError

from ._verdicts import RELAY_LEVELS, Card, Level, versions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._verdicts import Result


@attrs.frozen(kw_only=True)
class KitOptions:
    """Options of the kit: the level, the seed of invented inputs and ids, and the time limit of answers.

    `patience` is how long an answer may take, in seconds. Raises ConfigError for a level that does not apply
    to what is judged.
    """

    levels: ClassVar[tuple[Level, ...]]
    judged: ClassVar[str]
    """Words for what is judged."""
    role: ClassVar[Literal["server", "client"]]

    level: Level = Level.LENIENT
    patience: float = 2.0
    seed: int = 0

    def __attrs_post_init__(self) -> None:
        if self.level not in self.levels:
            its = "relays" if self.level in RELAY_LEVELS else "LMOS"
            names = [each.value for each in self.levels]
            raise ConfigError(
                f'"{self.level.value}" is a level for {its}; {self.judged} are judged by '
                f"{', '.join(names[:-1])} or {names[-1]}"
            )

    def card(
        self,
        subject: str,
        results: Sequence[Result],
        *,
        began: float,
        spoken: str,
        title: str = "",
        thing: str = "",
    ) -> Card:
        """Return the card of a run that has just ended; `began` is its start on trio's clock."""
        return Card(
            subject=subject,
            role=self.role,
            title=title,
            thing=thing,
            level=self.level,
            spoken=spoken,
            seed=self.seed,
            results=tuple(results),
            seconds=trio.current_time() - began,
            versions=versions(),
        )
