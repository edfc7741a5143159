"""A hotel room as a state machine: vacant, held, occupied, being cleaned."""

from __future__ import annotations

from lmos_actors import ActionFailed, Agent, Event, Property, action, event, prop


class Room(Agent, behaviours=("vacant", "held", "occupied", "cleaning")):
    """One room. It is held for a guest who is on the way, and lapses if nobody comes."""

    guest: Property[str] = prop(default="", read_only=True, doc="Who holds or occupies it; nobody, empty.")
    lapsed: Event[str] = event(doc="Nobody came in time; the guest for whom the room was held.")
    hold_for: float = 600.0  # seconds
    clean_for: float = 1200.0

    @action(when="vacant")
    def hold(self, guest: str) -> None:
        """Hold the room for a guest who arrives soon; refused while another has it."""
        self._hold(guest)

    @action(when="vacant", postpone=True)
    def wait_for(self, guest: str) -> None:
        """Hold the room for a guest as soon as it is vacant."""
        self._hold(guest)

    @action(when="held")
    def check_in(self, guest: str) -> None:
        """Let the guest in for whom it is held."""
        if guest != self.guest:
            raise ActionFailed(f"held for {self.guest}, not for {guest}")
        self.become("occupied")

    @action(when="occupied")
    def check_out(self) -> None:
        """Leave; the room is vacant again once it is clean."""
        self.guest = ""
        self.become("cleaning")
        self.state_timeout(self.clean_for, self.become, "vacant")

    def _hold(self, guest: str) -> None:
        self.guest = guest
        self.become("held")
        self.state_timeout(self.hold_for, self._lapse, guest)

    def _lapse(self, guest: str) -> None:
        self.guest = ""
        self.become("vacant")
        self.lapsed.emit(guest)
