"""The longest sequence that a config states."""

import pytest

from cost.config.positions import most_positions


def scaled(stated: int, kind: str, factor: float, original: int) -> dict[str, object]:
    scaling = {"rope_type": kind, "factor": factor, "original_max_position_embeddings": original}
    return {"max_position_embeddings": stated, "rope_scaling": scaling}


@pytest.mark.parametrize(
    ("config", "tokens"),
    [
        ({}, None),
        ({"max_position_embeddings": 4096}, 4096),
        ({"n_positions": 1024}, 1024),
        ({"max_seq_len": 32768}, 32768),
        ({"max_position_embeddings": None, "n_positions": 2048}, 2048),
        # keys that are not of the model's positions
        ({"max_length": 20, "model_max_length": 512, "sliding_window": 128}, None),
        # placeholders and slips
        ({"max_position_embeddings": 1e30}, None),
        ({"max_position_embeddings": float("inf")}, None),
        ({"max_position_embeddings": 0}, None),
        ({"max_position_embeddings": -1}, None),
        ({"max_position_embeddings": True}, None),
        ({"max_position_embeddings": "4096"}, None),
        # the length after scaling is stated
        (scaled(163840, "yarn", 40, 4096), 163840),
        (scaled(131072, "llama3", 8.0, 8192), 131072),
        # the length before scaling is stated
        (scaled(40960, "yarn", 4.0, 32768), 131072),
        ({"max_position_embeddings": 2048, "rope_scaling": {"type": "linear", "factor": 4}}, 8192),
        ({"max_position_embeddings": 2048, "rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, 4096),
        # scaling that says nothing
        ({"max_position_embeddings": 2048, "rope_scaling": {"type": "linear"}}, 2048),
        ({"max_position_embeddings": 2048, "rope_scaling": {"type": "linear", "factor": float("nan")}}, 2048),
        ({"max_position_embeddings": 2048, "rope_scaling": {"type": "linear", "factor": 1e30}}, 2048),
        ({"max_position_embeddings": 2048, "rope_scaling": "none"}, 2048),
        ({"max_position_embeddings": 2048, "rope_scaling": {"type": ["linear"], "factor": 4}}, 2048),
        ({"max_position_embeddings": 2048, "rope_scaling": {"type": None, "factor": 4}}, 2048),
        ({"max_position_embeddings": 2048, "rope_parameters": {"full": {"rope_type": "linear"}}}, 2048),
    ],
)  # fmt: skip
def test_positions(config, tokens):
    found, where = most_positions({}, config, "here")
    assert found == tokens
    assert where.startswith("here: ") if tokens else where == ""


def test_what_was_found_before_goes_first():
    own = {"most_context": 100, "most_context_source": "there"}
    assert most_positions(own, {"max_position_embeddings": 4096}, "here") == (100, "there")
    assert most_positions({"most_context": "many"}, {"n_positions": 8}, "here")[0] == 8
