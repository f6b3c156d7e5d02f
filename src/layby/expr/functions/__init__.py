"""Functions, operators and casts: one file a family, registered in tables when this package is imported."""

from layby.expr.functions import (
    arithmetic,
    bits,
    casts,
    comparison,
    datetime,
    mathematics,
    patterns,
    text,
    variadic,
)

for _family in (comparison, arithmetic, bits, mathematics, text, patterns, datetime, casts, variadic):
    _family.register_all()
