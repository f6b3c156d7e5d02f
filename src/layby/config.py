"""System parameters: the settings of a server, each with a type, a range and a description.

`ALTER SYSTEM SET` changes one at run time; whoever uses a parameter reads it anew from
`SystemParameters.peek` at the points where a change has to take effect, so a change needs no restart.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from layby.errors import SqlError

Value = bool | int | float

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB
_MAX: Final = 2**62

_BOOLEANS: Final = {
    "on": True,
    "true": True,
    "yes": True,
    "1": True,
    "off": False,
    "false": False,
    "no": False,
    "0": False,
}
_UNITS: Final = {"": 1, "b": 1, "kb": KIB, "mb": MIB, "gb": GIB, "tb": 1024 * GIB}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One system parameter. `kind` is "bool", "int", "float" or "bytes"; bounds are inclusive.

    `default` is the engine's own; a product that is served or embedded switches some of them on.
    """

    name: str
    kind: str
    default: Value
    description: str
    minimum: float = -math.inf
    maximum: float = math.inf
    scope: str = "system"

    def parse(self, text: str) -> Value:
        """Return the value that `text` means; raises SqlError 22023 and nothing has changed."""
        text = text.strip()
        if self.kind == "bool":
            found = _BOOLEANS.get(text.lower())
            if found is None:
                raise SqlError("22023", f'parameter "{self.name}" requires a Boolean value')
            return found
        value = self._number(text)
        if not math.isnan(value) and not self.minimum <= value <= self.maximum:
            raise SqlError(
                "22023",
                f'{text} is outside the valid range for parameter "{self.name}" '
                f"({self.minimum:g} .. {self.maximum:g})",
            )
        return value

    def _number(self, text: str) -> int | float:
        invalid = SqlError("22023", f'invalid value for parameter "{self.name}": "{text}"')
        try:
            if self.kind == "float":
                return float(text)
            if self.kind == "int":
                return int(text)
        except ValueError:
            raise invalid from None
        match = re.fullmatch(r"(\d+)\s*([a-zA-Z]*)", text)
        if match is None or match[2].lower() not in _UNITS:
            invalid.hint = 'Valid units for this parameter are "B", "kB", "MB", "GB", and "TB".'
            raise invalid
        return int(match[1]) * _UNITS[match[2].lower()]

    def render(self, value: Value) -> str:
        """Return `value` as SHOW prints it."""
        if isinstance(value, bool):
            return "on" if value else "off"
        if self.kind == "bytes":
            for unit, size in (("GB", GIB), ("MB", MIB), ("kB", KIB)):
                if value and value % size == 0:
                    return f"{int(value) // size}{unit}"
            return f"{value}B" if value else "0"
        return f"{value:g}" if isinstance(value, float) else str(value)


PARAMETERS: Final = {
    p.name: p
    for p in (
        Parameter(
            "enable_compute_index_peek_offload",
            "bool",
            False,
            "Moves an index peek that outruns its inline budget off the serving loop to the walk pool.",
        ),
        Parameter(
            "compute_index_peek_inline_budget",
            "int",
            16_384,
            "The positions that one index peek may visit on the serving loop.",
            minimum=0,
            maximum=_MAX,
        ),
        Parameter(
            "compute_index_peek_quiet_budget",
            "int",
            0,
            "The positions that an index peek may visit on the serving loop while no other peek is there.",
            minimum=0,
            maximum=_MAX,
        ),
        Parameter(
            "compute_index_peek_activation_budget",
            "int",
            65_536,
            "The positions that all index peeks together may visit in one turn of the serving loop.",
            minimum=0,
            maximum=_MAX,
        ),
        Parameter(
            "compute_index_peek_yield_granularity",
            "int",
            65_536,
            "The positions that an offloaded walk visits between two looks at its cancellation.",
            minimum=1,
            maximum=_MAX,
        ),
        Parameter(
            "compute_index_peek_permit_fraction",
            "float",
            1.0,
            "How many walks may run at once, as a fraction of the walk pool's size.",
        ),
        Parameter(
            "compute_index_peek_max_queued",
            "int",
            1000,
            "How many walks may wait for a permit; the next is refused. 0 is no bound.",
            minimum=0,
            maximum=_MAX,
        ),
        Parameter(
            "compute_peek_row_iteration_limit",
            "int",
            0,
            "The positions that one index peek may visit in all, wherever it is walked. 0 is no limit.",
            minimum=0,
            maximum=_MAX,
        ),
        Parameter(
            "peek_response_stash_threshold_bytes",
            "bytes",
            16 * MIB,
            "The size of found rows from which on an offloaded walk writes them to the stash.",
            minimum=0,
            maximum=_MAX,
        ),
        Parameter(
            "enable_compute_index_peek_shared_walks",
            "bool",
            True,
            "Lets full walks of one index that wait for permits together go in one pass over it.",
        ),
        Parameter(
            "enable_compute_peek_response_stash",
            "bool",
            True,
            "Writes the rows of a large answer to the stash while they are found, where its order allows it.",
        ),
        Parameter(
            "enable_serving_loop_realtime",
            "bool",
            False,
            "Runs the serving loop at real-time priority, where the system permits it.",
        ),
        Parameter(
            "max_result_size",
            "bytes",
            GIB,
            "The largest answer of one peek, in bytes.",
            minimum=0,
            maximum=_MAX,
        ),
    )
}


@dataclass(frozen=True, slots=True)
class PeekParameters:
    """The parameters of the peek path that are in force, as one immutable value."""

    offload: bool
    inline_budget: int
    quiet_budget: int
    activation_budget: int
    yield_granularity: int
    permit_fraction: float
    max_queued: int
    row_iteration_limit: int
    max_result_size: int
    stash_threshold_bytes: int
    stash: bool
    shared_walks: bool


class SystemParameters:
    """The values in force. Changed on the serving loop; `peek` is swapped whole and read from any thread."""

    def __init__(self, defaults: Mapping[str, str] | None = None) -> None:
        self._defaults: dict[str, Value] = {name: p.default for name, p in PARAMETERS.items()}
        for name, text in (defaults or {}).items():
            self._defaults[name] = self._known(name).parse(text)
        self._values = dict(self._defaults)
        self.on_change: list[Callable[[], None]] = []
        self.peek = self._peek()

    def get(self, name: str) -> Value:
        """Return the value in force; raises SqlError 42704 for an unknown name."""
        return self._values[self._known(name).name]

    def show(self, name: str) -> str:
        """Return the value in force as SHOW prints it."""
        return self._known(name).render(self.get(name))

    def set(self, name: str, text: str) -> None:
        """Put a new value in force; raises SqlError 22023 with the old one still in force."""
        parameter = self._known(name)
        self._apply(name, parameter.parse(text))

    def reset(self, name: str | None = None) -> None:
        """Put the default of one parameter, or of all, back in force."""
        if name is None:
            self._values = dict(self._defaults)
            self._changed()
        else:
            self._apply(name, self._defaults[self._known(name).name])

    def _apply(self, name: str, value: Value) -> None:
        self._values[name] = value
        self._changed()

    def _changed(self) -> None:
        self.peek = self._peek()
        for callback in self.on_change:
            callback()

    def _peek(self) -> PeekParameters:
        values = self._values
        return PeekParameters(
            offload=bool(values["enable_compute_index_peek_offload"]),
            inline_budget=int(values["compute_index_peek_inline_budget"]),
            quiet_budget=int(values["compute_index_peek_quiet_budget"]),
            activation_budget=int(values["compute_index_peek_activation_budget"]),
            yield_granularity=int(values["compute_index_peek_yield_granularity"]),
            permit_fraction=float(values["compute_index_peek_permit_fraction"]),
            max_queued=int(values["compute_index_peek_max_queued"]),
            row_iteration_limit=int(values["compute_peek_row_iteration_limit"]),
            max_result_size=int(values["max_result_size"]),
            stash_threshold_bytes=int(values["peek_response_stash_threshold_bytes"]),
            stash=bool(values["enable_compute_peek_response_stash"]),
            shared_walks=bool(values["enable_compute_index_peek_shared_walks"]),
        )

    @staticmethod
    def _known(name: str) -> Parameter:
        parameter = PARAMETERS.get(name)
        if parameter is None:
            raise SqlError("42704", f'unrecognized configuration parameter "{name}"')
        return parameter


def parse_defaults(text: str) -> dict[str, str]:
    """Return the assignments of `name=value;name=value` (LAYBY_SYSTEM_PARAMETER_DEFAULT).

    Raises SqlError 22023 where an entry has no `=`.
    """
    found = {}
    for entry in filter(None, (part.strip() for part in text.split(";"))):
        name, equals, value = entry.partition("=")
        if not equals:
            raise SqlError("22023", f'system parameter default "{entry}" is not of the form name=value')
        found[name.strip()] = value.strip()
    return found
