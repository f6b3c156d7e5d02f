"""Parts: the pieces of a stashed answer, each a compressed Arrow file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from layby.persist.blob import Blob, BlobError
from layby.types.column import Column, FixedColumn, TextColumn, text_from_arrow
from layby.types.scalar import SqlType

_BOOLEAN: Final = np.dtype(np.bool_)
_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
"""lz4 gives up some size for speed: a part is written once, read once and gone."""


@dataclass(frozen=True, slots=True)
class Part:
    """One object of the stash: its key, the rows in it, and its bytes as stored."""

    key: str
    count: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class StashHandle:
    """Where the rows of an answer are, in their order. Whoever holds the handle deletes the parts, once."""

    blob: Blob
    types: tuple[SqlType, ...]
    parts: tuple[Part, ...]

    @property
    def count(self) -> int:
        """The rows in all parts."""
        return sum(part.count for part in self.parts)


def pack(columns: Sequence[Column]) -> memoryview:
    """Return columns of one length (one column at least) as an Arrow file."""
    batch = pa.record_batch([_to_arrow(c) for c in columns], [str(at) for at in range(len(columns))])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema, options=_COMPRESSED) as writer:
        writer.write_batch(batch)
    return memoryview(sink.getvalue())


def unpack(data: bytes, types: Sequence[SqlType]) -> tuple[Column, ...]:
    """Return the columns of `types` that `pack` made `data` of; raises BlobError where they are not in it."""
    try:
        batch = pa.ipc.open_file(pa.py_buffer(data)).get_batch(0)
        return tuple(_from_arrow(batch.column(at), type_) for at, type_ in enumerate(types))
    except (pa.ArrowException, OSError, IndexError) as error:
        raise BlobError(f"a part of the answer is damaged: {error}") from error


def _to_arrow(column: Column) -> Any:
    if isinstance(column, TextColumn):
        return column.arrow
    assert isinstance(column, FixedColumn)  # a scan finds slices of a series, which are
    values = np.ascontiguousarray(column.values)
    if values.dtype == _BOOLEAN:
        values = values.view(np.uint8)
    mask = None if column.valid is None else pa.py_buffer(np.packbits(column.valid, bitorder="little"))
    # Over the buffers and not by pa.array, which would take the NaN of a float for a null.
    buffers = [mask, pa.py_buffer(values)]
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), buffers)


def _from_arrow(array: Any, type_: SqlType) -> Column:
    if type_.dtype is None:
        return text_from_arrow(array, type_)
    values: NDArray[Any] = np.frombuffer(array.buffers()[1], type_.dtype, len(array))
    valid = (
        np.asarray(array.is_valid().to_numpy(zero_copy_only=False), np.bool_) if array.null_count else None
    )
    return FixedColumn(type_, values, valid)
