"""The replica: its state, the serving worker, the maintenance runtime, and arrangements of tables."""
