"""Where system parameter defaults come from, and which of them wins."""

from __future__ import annotations

from pathlib import Path

import pytest

from layby.cli.settings import VARIABLE, SettingsError, system_parameters


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "layby.toml"


def test_the_product_switches_the_offload_on() -> None:
    assert system_parameters(None, {}).show("enable_compute_index_peek_offload") == "on"


def test_the_file_overrides_the_product_and_the_environment_overrides_the_file(config: Path) -> None:
    config.write_text(
        "[system_parameters]\n"
        "enable_compute_index_peek_offload = false\n"
        "compute_index_peek_inline_budget = 7\n"
        "compute_index_peek_permit_fraction = 0.5\n"
        'max_result_size = "1MB"\n'
    )

    parameters = system_parameters(
        config, {VARIABLE: "compute_index_peek_inline_budget=9; max_result_size=2MB"}
    )

    assert parameters.get("enable_compute_index_peek_offload") is False
    assert parameters.get("compute_index_peek_inline_budget") == 9
    assert parameters.get("compute_index_peek_permit_fraction") == 0.5
    assert parameters.get("max_result_size") == 2 * 1024 * 1024


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[system_parameters]\nnope = 1\n", 'unrecognized configuration parameter "nope"'),
        ("[system_parameters]\nmax_result_size = 'big'\n", 'invalid value for parameter "max_result_size"'),
        ("[system_parameters]\nmax_result_size = [1]\n", 'value of "max_result_size" is neither'),
        ("[server]\nport = 1\n", 'unknown entry "server"'),
        ("system_parameters = 3\n", '"system_parameters" is not a table'),
        ("[system_parameters\n", "line 1"),
    ],
)
def test_a_bad_file_is_refused_by_its_name(config: Path, text: str, complaint: str) -> None:
    config.write_text(text)

    with pytest.raises(SettingsError) as caught:
        system_parameters(config, {})

    assert str(caught.value).startswith(f"{config}: ")
    assert complaint in str(caught.value)


def test_a_missing_file_is_refused(config: Path) -> None:
    with pytest.raises(SettingsError, match="No such file"):
        system_parameters(config, {})


@pytest.mark.parametrize("text", ["nope=1", "compute_index_peek_inline_budget", "max_result_size=much"])
def test_a_bad_environment_variable_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(SettingsError, match=f"^{VARIABLE}: "):
        system_parameters(None, {VARIABLE: text})
