"""Packed MFPs: the bytes of a large one, which are not taken apart before it is evaluated.

A statement of 100,000 conditions is planned in one process and evaluated in another; the serving loop between
them would need a second to make its tree of nodes and to write it out again. It holds the bytes.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from layby.expr.mfp import Mfp, MfpKernel
from layby.expr.scalar import Expr, Param, Params, SessionValue, walk
from layby.memory.arena import HEAP, Arena
from layby.types.scalar import PhysicalValue

_BY_REFERENCE: Final = 1 << 15
"""Bytes of a pickle from which on it is put into an arena: less crosses in the message itself, and whoever
keeps it keeps no segment."""


@dataclass(frozen=True, slots=True)
class PackedMfp:
    """An MFP as bytes, and the values that an execution has put into it.

    `numbers` and `names` are the parameters and session values among its expressions, `filters` tells whether
    it has predicates.
    """

    data: NDArray[np.uint8]
    numbers: frozenset[int]
    names: frozenset[str]
    filters: bool
    values: tuple[Params, Mapping[str, PhysicalValue]] | None = None
    _whole: Mfp | None = field(default=None, init=False, compare=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return PackedMfp, (self.data, self.numbers, self.names, self.filters, self.values)

    @property
    def varies(self) -> bool:
        """Whether there are parameters or session values in it that have no value."""
        return self.values is None and bool(self.numbers or self.names)

    def with_values(self, params: Params, session: Mapping[str, PhysicalValue]) -> PackedMfp:
        """Return the MFP of an execution; its values are put in where it is unpacked."""
        values = {n - 1: params[n - 1] for n in self.numbers}, {name: session[name] for name in self.names}
        return replace(self, values=values)

    def unpack(self) -> Mfp:
        """Return the MFP itself, made at the first call."""
        whole = self._whole
        if whole is None:
            whole = pickle.loads(self.data.data)
            assert isinstance(whole, Mfp)
            if self.values is not None:
                whole = whole.with_values(*self.values)
            object.__setattr__(self, "_whole", whole)
        return whole

    @property
    def arity(self) -> int:
        """The columns of the input."""
        return self.unpack().arity

    @property
    def predicates(self) -> tuple[Expr, ...]:
        """The predicates of the MFP, which is unpacked for them."""
        return self.unpack().predicates

    @property
    def outputs(self) -> tuple[Expr, ...]:
        """The outputs of the MFP, which is unpacked for them."""
        return self.unpack().outputs

    def compile(self) -> MfpKernel:
        """Return what evaluates this MFP."""
        return self.unpack().compile()


def pickled(value: object, arena: Arena) -> NDArray[np.uint8]:
    """Return the pickle of a value, a large one in an arena: it crosses to other processes by reference."""
    data = np.frombuffer(pickle.dumps(value, pickle.HIGHEST_PROTOCOL), np.uint8)
    return arena.place(data) if len(data) > _BY_REFERENCE else data


def pack(mfp: Mfp, arena: Arena = HEAP) -> PackedMfp:
    """Return an MFP as bytes, many of them in `arena`."""
    nodes = [node for expr in (*mfp.predicates, *mfp.outputs) for node in walk(expr)]
    return PackedMfp(
        pickled(mfp, arena),
        frozenset(node.number for node in nodes if isinstance(node, Param)),
        frozenset(node.name for node in nodes if isinstance(node, SessionValue)),
        mfp.filters,
    )
