"""Traces: immutable sorted batches of updates, the spines that hold them, and cursors over them."""
