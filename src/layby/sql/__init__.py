"""Parsing, name resolution, planning, lowering to a fast-path peek."""
