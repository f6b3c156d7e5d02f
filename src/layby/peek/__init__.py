"""The peek path: scans, budgets, permits, the sweep, and the drivers that walk inline or offloaded."""
