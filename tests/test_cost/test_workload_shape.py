"""What one step processes: numbers, or arrays that broadcast."""

import numpy as np

from cost.inputs.workload import StepShape


def test_gpus_and_tokens():
    shape = StepShape(tp=2, attention_dp=4, sequences=3, queries=2, prompt_tokens=10)
    assert (shape.gpus, shape.tokens) == (8, 16)
    assert shape.decodes
    assert shape.prefills
    assert not StepShape(prompt_tokens=1).decodes
    assert not StepShape(sequences=1).prefills


def test_many_shapes_at_once():
    shape = StepShape(tp=np.array([1.0, 2.0]), attention_dp=4, sequences=np.array([[0.0], [5.0]]))
    assert shape.gpus.tolist() == [4, 8]
    assert np.broadcast_shapes(shape.gpus.shape, shape.tokens.shape) == (2, 2)
    assert shape.decodes, "one of them does"
