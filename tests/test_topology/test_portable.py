"""Elementary functions of the same bits on every processor: near what the C library says, and pinned to the bit."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import numpy as np
import pytest

from topology import portable

_RNG = np.random.default_rng(7)
_WIDE = np.concatenate([_RNG.uniform(-700, 700, 3000), _RNG.uniform(-1, 1, 3000), _RNG.normal(0, 1e-3, 3000)])
_POSITIVE = np.concatenate([np.exp(_WIDE), 1 + _RNG.normal(0, 1e-3, 3000), _RNG.uniform(0.5, 2, 3000)])
_ABOVE = np.concatenate([_RNG.uniform(-0.999, 9, 3000), _RNG.normal(0, 1e-3, 3000), [1e-300, -1e-17, 1e300]])


@pytest.mark.parametrize(
    ("name", "x"), [("exp", _WIDE), ("expm1", _WIDE), ("log", _POSITIVE), ("log1p", _ABOVE)]
)
def test_within_three_units_in_the_last_place(name: str, x: np.ndarray) -> None:
    expected = np.array([getattr(math, name)(value) for value in x.tolist()])
    found = getattr(portable, name)(x)
    assert (np.abs(found - expected) <= 3 * np.spacing(np.abs(expected))).all()
    assert found[11] == getattr(portable, name)(float(x[11]))  # alone as among others


def test_float32_stays_float32() -> None:
    x = _RNG.uniform(-86, 88, 5000).astype(np.float32)
    expected = np.exp(x.astype(np.float64))
    found = portable.exp(x)
    assert found.dtype == portable.log(np.abs(x)).dtype == np.float32
    assert (np.abs(found - expected) <= 3 * np.spacing(expected.astype(np.float32))).all()


def test_ends_are_those_of_numpy_without_its_warnings() -> None:
    ends = np.array([np.nan, np.inf, -np.inf, 0.0, 1.0, -1.0, 1e4, -1e4, -800.0])
    for name in ("exp", "expm1", "log", "log1p"):
        with np.errstate(all="ignore"):
            expected = getattr(np, name)(ends)
        np.testing.assert_allclose(getattr(portable, name)(ends), expected, rtol=1e-15)
        assert getattr(portable, name)(np.zeros((0, 3))).shape == (0, 3)
    few = ends.astype(np.float32)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(portable.exp(few), np.exp(few), rtol=1e-6)


def test_powers_roots_and_products() -> None:
    x, matrix = _RNG.uniform(0.1, 50, 200), _RNG.normal(size=(3, 5, 4))
    np.testing.assert_allclose(portable.power(x, -1.7), x**-1.7, rtol=1e-14)
    np.testing.assert_allclose(portable.power(x, 11), x**11, rtol=1e-14)
    assert (portable.power(np.arange(1.0, 9), 0) == 1).all()
    np.testing.assert_allclose(portable.hypot(x, 3.0), np.hypot(x, 3.0), rtol=1e-15)
    np.testing.assert_allclose(portable.product(matrix, matrix[0].T), matrix @ matrix[0].T, atol=1e-13)
    np.testing.assert_allclose(portable.geometric(0.2, 7, 9), np.geomspace(0.2, 7, 9), rtol=1e-14)


_PINNED = """
import hashlib, numpy as np
from cost.loads import synthetic_loads
from topology import portable
x = np.linspace(-30, 30, 20_001)
tables = [portable.exp(x), portable.exp(x.astype(np.float32)), portable.expm1(x), portable.log(x + 31)]
tables += [portable.log1p(x / 31), portable.power(x + 31, 0.7), portable.power(x, 8), portable.hypot(x, 1)]
tables += [synthetic_loads(text, layers=7, experts=128, seed=3, draw=1) for text in ("lognormal:1.2", "zipf:0.8")]
print(hashlib.sha256(b"".join(table.tobytes() for table in tables)).hexdigest())
"""
PINNED = "6c346266394324de15400138b341602f7e0a4e40db5e4f37bf3670b46ddc8635"


@pytest.mark.parametrize("features", ["", "X86_V4 AVX512_SKX", "X86_V4 X86_V3 AVX512_SKX AVX2 FMA3"])
def test_every_bit_is_the_same_with_and_without_vector_instructions(features: str) -> None:
    """Loads of generators too; the digest is that of every machine."""
    own = {**os.environ, "NPY_DISABLE_CPU_FEATURES": features, "PYTHONWARNINGS": "ignore"}
    tunables = "glibc.cpu.hwcaps=-AVX2,-FMA,-AVX512F" if "FMA3" in features else ""
    ran = subprocess.run(
        [sys.executable, "-c", _PINNED],
        env={**own, "GLIBC_TUNABLES": tunables},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.strip() == PINNED


def test_normal_draws_are_on_a_grid_that_hides_the_last_digit_of_a_logarithm() -> None:
    drawn = portable.normal(np.random.default_rng(5), 1000)
    assert (drawn * 2.0**32 == np.rint(drawn * 2.0**32)).all()
    np.testing.assert_allclose(drawn, np.random.default_rng(5).standard_normal(1000), atol=2.0**-32)
