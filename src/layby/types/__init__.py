"""SQL types: physical column layout, text and binary formats, casts, relation descriptions."""
