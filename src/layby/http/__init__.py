"""The control plane: health and metrics over HTTP, on a thread that no query waits for."""
