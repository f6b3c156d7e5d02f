"""What a peek asks."""

from __future__ import annotations

from dataclasses import dataclass

from layby.expr.finishing import Finishing
from layby.expr.mfp import Mfp
from layby.expr.packed import PackedMfp
from layby.pickling import pickled_as_call
from layby.trace.constraints import Constraints


@pickled_as_call
@dataclass(frozen=True, slots=True)
class PeekSpec:
    """What a peek asks, as a plain value.

    `collection` names it in messages. `reverse` walks the index from its end; `ordered` says that the order
    of the walk is that of `finishing.order_by`, so it can end early and need not sort.
    """

    collection: str
    timestamp: int
    constraints: Constraints | None
    reverse: bool
    ordered: bool
    mfp: Mfp | PackedMfp
    finishing: Finishing

    @property
    def streams(self) -> bool:
        """Whether rows can be finished in the order in which they are found, before all of them are."""
        return self.ordered or not self.finishing.order_by
