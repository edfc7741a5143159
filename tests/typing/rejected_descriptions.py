"""Wrong uses: every line marked must be an error in both checkers, and no other line."""

from __future__ import annotations

from lmos_actors import About, Agent, Unit, describe


class Sensor(Agent):
    pass


describe(Sensor())  # E
describe(int)  # E
describe(Sensor, "urn:uuid:0")  # E
About(vendor="Acme")  # E
About("1.0.0")  # E
Unit(7)  # E


class Wrong(Agent, about="Acme"):  # E
    pass
