"""Where column buffers live: arenas."""
