"""The workloads that say how fast layby is, runnable by any user on any machine."""
