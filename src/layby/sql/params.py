"""Parameters of an execution: a tuple of values, or what the loop holds of them where they are large."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from layby.expr.packed import pickled
from layby.memory.arena import Arena
from layby.types.scalar import PhysicalValue

MANY: Final = 128
"""Parameters up to which a plan is instantiated on the serving loop: 3 to 13 µs for each of them."""


@dataclass(frozen=True, slots=True, eq=False)
class PackedParams:
    """The values of parameters as the serving loop holds them: their number, and their pickle."""

    count: int
    data: NDArray[np.uint8]

    def __len__(self) -> int:
        return self.count

    def unpack(self) -> tuple[PhysicalValue, ...]:
        """Return the values: a pass over them, for a job apart."""
        values: tuple[PhysicalValue, ...] = pickle.loads(self.data.data)
        return values


BoundParams = tuple[PhysicalValue, ...] | PackedParams


def pack_params(values: Sequence[PhysicalValue], arena: Arena) -> PackedParams:
    """Return the values of a Bind as the serving loop holds them."""
    return PackedParams(len(values), pickled(tuple(values), arena))
