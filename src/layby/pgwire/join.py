"""Joining pieces of rows, column by column, into rows end to end.

A piece is what every row has at one place: a matrix of bytes where it is as wide in every row, else offsets
into data. Neighbouring matrices are one; what then remains is a single Arrow kernel call that runs with the
GIL released. Measured: 89 ns a row of three short text values, where scattering with numpy takes 182 ns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from layby.peek.answer import EncodedRows

Bytes = NDArray[np.uint8]
Offsets = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Varying:
    """A piece of varying width: row i has `data[offsets[i]:offsets[i + 1]]`, or nothing where not `valid`."""

    offsets: Offsets
    data: Bytes
    valid: NDArray[np.bool_] | None = None


Piece = Bytes | Varying
"""An array of shape (rows, width), or a varying piece."""


def matrix(values: NDArray[Any]) -> Bytes:
    """Return the bytes of each value (of any fixed-width dtype) as a row."""
    plain = np.ascontiguousarray(values)
    return plain.view(np.uint8).reshape(len(plain), plain.dtype.itemsize)


def join(pieces: list[Piece], count: int) -> tuple[memoryview, Offsets]:
    """Return the pieces of each of `count` rows (1 or more), row after row, and where each row ends."""
    merged = _merge_neighbours(pieces)
    first = merged[0]
    if len(merged) == 1 and not isinstance(first, Varying):
        width = first.shape[1]
        return memoryview(first.tobytes()), np.arange(1, count + 1, dtype=np.int64) * width
    arrays = [_arrow(piece, count) for piece in merged]
    nothing = pa.scalar(b"", pa.large_binary())
    joined = pc.binary_join_element_wise(*arrays, nothing, null_handling="replace", null_replacement="")
    _, offsets, data = joined.buffers()
    bounds = np.frombuffer(offsets, np.int64, count + 1, 8 * joined.offset)
    return memoryview(data)[int(bounds[0]) : int(bounds[-1])], bounds[1:] - bounds[0]


def concatenate(chunks: list[tuple[memoryview, Offsets]]) -> EncodedRows:
    """Put joined chunks together."""
    data = b"".join(part for part, _ in chunks)
    ends = np.concatenate([bounds for _, bounds in chunks])
    at = base = 0
    for part, bounds in chunks:
        ends[at : at + len(bounds)] += base
        at += len(bounds)
        base += len(part)
    return EncodedRows(data, ends, len(ends))


def _merge_neighbours(pieces: list[Piece]) -> list[Piece]:
    merged: list[Piece] = []
    run: list[Bytes] = []
    for piece in pieces:
        if isinstance(piece, Varying):
            if run:
                merged.append(run[0] if len(run) == 1 else np.concatenate(run, axis=1))
                run = []
            merged.append(piece)
        else:
            run.append(piece)
    if run:
        merged.append(run[0] if len(run) == 1 else np.concatenate(run, axis=1))
    return merged


def _arrow(piece: Piece, count: int) -> Any:
    mask = None
    if isinstance(piece, Varying):
        offsets, data = piece.offsets, piece.data
        if piece.valid is not None:
            mask = pa.py_buffer(np.packbits(piece.valid, bitorder="little"))
    else:
        offsets = np.arange(count + 1, dtype=np.int64) * piece.shape[1]
        data = piece
    buffers = [mask, pa.py_buffer(np.ascontiguousarray(offsets)), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.large_binary(), count, buffers)
