"""`python -m layby`: the console script without an installed script."""

from __future__ import annotations

from layby.cli import main

if __name__ == "__main__":
    main()
