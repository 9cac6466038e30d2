"""The presets: our defaults, and Table 11 of the paper."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyro_chmm.errors import ConfigError
from pyro_chmm.model.config import SparseCHMMConfig
from pyro_chmm.presets import load_preset, preset_names, write_preset

#: Rows of Table 11; the split points of g are printed as fractions 1/(x L).
TABLE_11 = {
    "batch_size": {"conll": 256, "ncbi": 128, "bc5cdr": 128, "laptop": 256, "ontonotes": 32},
    "pretrain_learning_rate": {"conll": 5e-4, "ncbi": 5e-4, "bc5cdr": 5e-4, "laptop": 5e-4, "ontonotes": 1e-4},
    "learning_rate_stage1": {"conll": 2e-4, "ncbi": 1e-3, "bc5cdr": 1e-3, "laptop": 1e-4, "ontonotes": 1e-4},
    "learning_rate_stage2": {"conll": 4e-5, "ncbi": 2e-4, "bc5cdr": 2e-4, "laptop": 2e-5, "ontonotes": 2e-5},
    "learning_rate_stage3": {"conll": 2e-4, "ncbi": 1e-3, "bc5cdr": 1e-3, "laptop": 1e-4, "ontonotes": 1e-4},
    "majority_vote_lf": {"conll": False, "ncbi": True, "bc5cdr": False, "laptop": True, "ontonotes": False},
    "reliability_level": {
        "conll": "entity",
        "ncbi": "label",
        "bc5cdr": "entity",
        "laptop": "label",
        "ontonotes": "entity",
    },
    "concentration_base": {"conll": 10, "ncbi": 2, "bc5cdr": 2, "laptop": 2, "ontonotes": 2},
    "concentration_range": {"conll": 1000, "ncbi": 1500, "bc5cdr": 1500, "laptop": 1000, "ontonotes": 1000},
    "h_n": {"conll": 1.2, "ncbi": 1.2, "bc5cdr": 0.9, "laptop": 0.8, "ontonotes": 1.1},
    "h_s": {"conll": 1.5, "ncbi": 3, "bc5cdr": 1.1, "laptop": 1.5, "ontonotes": 1},
    "g_n": {"conll": 4, "ncbi": 4, "bc5cdr": 4, "laptop": 4, "ontonotes": 4},
    "g_r_stage1": {"conll": 1 / 2, "ncbi": 1 / 20, "bc5cdr": 1 / 10, "laptop": 1 / 20, "ontonotes": 1 / 5},
    "g_r_stage23": {"conll": 1 / 20, "ncbi": 1 / 20, "bc5cdr": 1 / 10, "laptop": 1 / 20, "ontonotes": 1 / 5},
}


def test_the_names() -> None:
    data_sets = sorted(TABLE_11["h_n"])
    assert preset_names() == ["default", *(f"paper-{name}" for name in data_sets)]


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_is_a_valid_configuration(name: str) -> None:
    values = load_preset(name)
    config = SparseCHMMConfig.from_dict(values)
    assert {field: config.to_dict()[field] for field in values} == values


@pytest.mark.parametrize("row", TABLE_11)
def test_table_11(row: str) -> None:
    for data_set, value in TABLE_11[row].items():
        assert load_preset(f"paper-{data_set}")[row] == value, data_set


@pytest.mark.parametrize("data_set", TABLE_11["h_n"])
def test_the_papers_presets_are_the_papers_model(data_set: str) -> None:
    config = SparseCHMMConfig.from_dict(load_preset(f"paper-{data_set}"))
    assert (config.o_weight_contested, config.o_weight_silent) == (1, 1)
    assert config.wxor_normalization == "softmax"
    assert not config.shared_transition
    assert config.weight_penalty == 0
    assert config.posterior_sharpening == 0


def test_our_defaults_are_the_configurations_own() -> None:
    assert SparseCHMMConfig.from_dict(load_preset("default")) == SparseCHMMConfig()


def test_an_unknown_preset() -> None:
    with pytest.raises(ConfigError, match="Unknown preset 'laptop'; known ones are default, paper-bc5cdr"):
        load_preset("laptop")
    with pytest.raises(ConfigError, match="Unknown preset"):
        load_preset("../presets/default")


def test_a_preset_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    write_preset(path, "paper-laptop", {"dropout": 0.25, "layers": [1, -1], "encoder": 'a "name" \\ é', "verify": False})
    expected = {**load_preset("paper-laptop"), "dropout": 0.25, "layers": [1, -1], "encoder": 'a "name" \\ é', "verify": False}
    assert load_preset(str(path)) == expected
    assert [file.name for file in tmp_path.iterdir()] == ["mine.toml"]
    path.write_text("dropout = = 3", encoding="utf-8")
    with pytest.raises(ConfigError, match="is no TOML"):
        load_preset(str(path))
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_preset(str(tmp_path / "missing.toml"))
