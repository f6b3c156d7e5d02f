"""Where a server's system parameter defaults come from, weakest first.

The product's own defaults, then the configuration file's table `[system_parameters]`, then the environment
variable `LAYBY_SYSTEM_PARAMETER_DEFAULT`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from layby.config import SystemParameters, parse_defaults
from layby.errors import SqlError

VARIABLE: Final = "LAYBY_SYSTEM_PARAMETER_DEFAULT"
TABLE: Final = "system_parameters"
PRODUCT_DEFAULTS: Final = {
    "enable_compute_index_peek_offload": "on",
    "compute_index_peek_quiet_budget": "4194304",
    "enable_serving_loop_realtime": "on",
}


class SettingsError(Exception):
    """A setting that cannot be used; the message names where it stands."""


def system_parameters(config: Path | None, environment: Mapping[str, str]) -> SystemParameters:
    """The parameters that a server starts with. Raises SettingsError."""
    defaults = dict(PRODUCT_DEFAULTS)
    sources = [] if config is None else [(str(config), _read(config))]
    try:
        sources.append((VARIABLE, parse_defaults(environment.get(VARIABLE, ""))))
    except SqlError as error:
        raise SettingsError(f"{VARIABLE}: {error.message}") from None
    for source, values in sources:
        try:
            SystemParameters(values)
        except SqlError as error:
            raise SettingsError(f"{source}: {error.message}") from None
        defaults |= values
    return SystemParameters(defaults)


def _read(config: Path) -> dict[str, str]:
    """The table of the file, each value as the text that ALTER SYSTEM SET would take."""
    try:
        content = tomllib.loads(config.read_text())
    except OSError as error:
        raise SettingsError(f"{config}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{config}: {error}") from None
    unknown = sorted(content.keys() - {TABLE})
    if unknown:
        raise SettingsError(f'{config}: unknown entry "{unknown[0]}", only the table [{TABLE}] is read')
    table = content.get(TABLE, {})
    if not isinstance(table, dict):
        raise SettingsError(f'{config}: "{TABLE}" is not a table')
    found: dict[str, str] = {}
    for name, value in table.items():
        if isinstance(value, bool):
            found[name] = "on" if value else "off"
        elif isinstance(value, (str, int, float)):
            found[name] = str(value)
        else:
            raise SettingsError(f'{config}: value of "{name}" is neither a string, a number nor a boolean')
    return found
