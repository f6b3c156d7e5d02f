"""Type lists: the types of many parameters as one array, which is handed on without a pass over it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, overload

import numpy as np
from numpy.typing import NDArray

from layby.types.scalar import ALL, TEXT, UNKNOWN, SqlType

_CODES: Final = {type_: code for code, type_ in enumerate(ALL)}
_NONE: Final = 255
_CODES_BY_OID: Final = np.full(max(type_.oid for type_ in ALL) + 2, _NONE, np.uint8)
"""The codes of the types by their OIDs; of all that are greater, the last."""
for _code, _type in enumerate(ALL):
    _CODES_BY_OID[_type.oid] = _code
_CODES_BY_OID[0] = _CODES[UNKNOWN]
_OIDS: Final = np.array([(TEXT if type_ is UNKNOWN else type_).oid for type_ in ALL], ">u4")


class TypeList(Sequence[SqlType]):
    """SQL types by number, each by its place in `layby.types.scalar.ALL`."""

    __slots__ = ("_codes",)

    def __init__(self, codes: NDArray[np.uint8]) -> None:
        self._codes = codes

    @classmethod
    def of(cls, types: Iterable[SqlType]) -> TypeList:
        """Return the list of some types: a pass over them."""
        return cls(np.array([_CODES[type_] for type_ in types], np.uint8))

    @classmethod
    def with_oids(cls, oids: NDArray[np.uint32], other: Callable[[int], SqlType]) -> TypeList:
        """Return the types of some OIDs, UNKNOWN for 0; `other` gives those of OIDs that no type has.

        65,535 take 0.2 ms.
        """
        codes = _CODES_BY_OID[np.minimum(oids, len(_CODES_BY_OID) - 1)]
        while (odd := codes == _NONE).any():
            oid = oids[np.argmax(odd)]
            codes[oids == oid] = _CODES[other(int(oid))]
        return cls(codes)

    def __reduce__(self) -> tuple[type[TypeList], tuple[NDArray[np.uint8]]]:
        return TypeList, (self._codes,)

    def __len__(self) -> int:
        return len(self._codes)

    @overload
    def __getitem__(self, at: int) -> SqlType: ...
    @overload
    def __getitem__(self, at: slice) -> TypeList: ...
    def __getitem__(self, at: int | slice) -> SqlType | TypeList:
        """Return one type, or those of a slice."""
        return TypeList(self._codes[at]) if isinstance(at, slice) else ALL[self._codes[at]]

    def __iter__(self) -> Iterator[SqlType]:
        return map(ALL.__getitem__, self._codes.tolist())

    @property
    def oids(self) -> NDArray[np.uint32]:
        """The types' OIDs as a client is told them, big-endian: that of text for an unknown."""
        return _OIDS[self._codes]
