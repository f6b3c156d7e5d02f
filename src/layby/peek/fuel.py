"""Fuel: the positions that a step may still visit."""

from __future__ import annotations

from typing import Final


class Fuel:
    """A number of positions; a walk charges what it visited, not what it was granted."""

    __slots__ = ("remaining",)

    def __init__(self, positions: int) -> None:
        self.remaining = positions

    def charge(self, positions: int) -> None:
        """Spend `positions`."""
        self.remaining -= positions


class UnboundedFuel(Fuel):
    """Fuel that a charge cannot drain: what every peek gets with the offload switched off."""

    __slots__ = ()

    ENDLESS: Final = 2**62

    def __init__(self) -> None:
        super().__init__(self.ENDLESS)

    def charge(self, positions: int) -> None:
        """Spend nothing."""
