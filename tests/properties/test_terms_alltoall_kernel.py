"""Seconds of a dispatch: what holds for every kernel, whatever its coefficients."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost.calibration.alltoall import load_kernels
from cost.experts.tokens.reach import Routing
from cost.experts.tokens.volumes import Volumes, alltoall_volumes
from cost.terms.alltoall_kernel import Leg, alltoall_seconds, vector_bytes, wire_bytes
from topology.base.errors import InputError
from topology.base.figures import Evidence, Figure

V3 = Routing(256, 8, 8, 4)


def figure(value, unit="s"):
    return Figure(value, unit, Evidence.MEASURED, "made up for a test")


def volumes(up, out=0.0, received=0.0):
    return Volumes(*(np.asarray(value, dtype=float) for value in (up, out, received)))


def seconds(leg, what, *, size=1000.0, up=1e9, out=1e8, ep=8, scaled=False):
    return alltoall_seconds(
        leg, what, vector_bytes=size, up_bytes_per_s=up, out_bytes_per_s=out, ep=ep, scaled=scaled
    )


def test_fixed_part_and_the_slower_fabric():
    leg = Leg(alpha_up_s=figure(1.0), up=figure(0.5, "1"), alpha_out_s=figure(2.0), out=figure(0.8, "1"))
    assert seconds(leg, volumes(5e6)) == pytest.approx(1 + 5e9 / 0.5e9)
    assert seconds(leg, volumes(5e6, 4e5)) == pytest.approx(2 + 10)  # 4e8 / 0.8e8 = 5 s pass meanwhile
    assert seconds(leg, volumes(5e6, 4e6)) == pytest.approx(2 + 50)


def test_floor_and_peers():
    leg = Leg(figure(1.0), figure(1.0, "1"), floor_s=figure(3.0), peer_s=figure(0.25))
    assert seconds(leg, volumes(1e6), ep=4) == pytest.approx(1 + 3)  # 1 + 1 + 1 is less than the floor
    assert seconds(leg, volumes(5e6), ep=4) == pytest.approx(1 + 1 + 5)


def test_copies_are_made_twice_where_vectors_are_forwarded():
    leg = Leg(
        figure(0.1), figure(1.0, "1"), figure(0.1), figure(1.0, "1"), copy_bytes_per_s=figure(1e9, "byte/s")
    )
    assert seconds(leg, volumes(1e6)) == pytest.approx(0.1 + 1 + 1)
    assert seconds(leg, volumes(1e6, 1)) == pytest.approx(0.1 + 1 + 2)


def test_scales_while_links_work_and_unpacking_after():
    leg = Leg(figure(0.1), figure(1.0, "1"), scale_s=figure(1e-6), unpack_s=figure(2e-6))
    assert seconds(leg, volumes(1e6, received=3e6), ep=2, scaled=True) == pytest.approx(0.1 + 6 + 6)
    assert seconds(leg, volumes(1e6, received=3e6), ep=2) == pytest.approx(0.1 + 1 + 6)


def test_nothing_to_send_takes_no_time():
    leg = load_kernels()["deepep-ll"].dispatch
    assert seconds(leg, volumes([0.0, 1.0])).tolist()[0] == 0.0


def test_a_kernel_of_one_domain_cannot_cross():
    with pytest.raises(InputError, match="inside a scale-up domain"):
        seconds(Leg(figure(1.0), figure(1.0, "1")), volumes(1.0, 1.0))


def case(kernel, leg, *, tokens=64.0, ep=32, domain_gpus=8, fmt="fp8", up=450e9, out=50e9):
    """Seconds of a kernel on links of these rates, and its volumes; inside one domain where it knows no other."""
    coefficients = getattr(kernel, leg)
    domain_gpus = domain_gpus if coefficients.out is not None else ep
    moved = alltoall_volumes(kernel.family, V3, tokens=tokens, ep=ep, domain_gpus=domain_gpus)
    size = wire_bytes(7168, fmt)
    found = alltoall_seconds(
        coefficients, moved, vector_bytes=size, up_bytes_per_s=up, out_bytes_per_s=out, ep=ep
    )
    return float(found), moved, size


ANY = {
    "kernel": st.sampled_from(list(load_kernels().values())),
    "leg": st.sampled_from(["dispatch", "combine"]),
    "tokens": st.floats(0.5, 16384),
    "ep": st.sampled_from([2, 8, 16, 24, 32, 72, 256]),
    "rate": st.floats(1e9, 2e12),
    "more": st.floats(1.0, 8.0),
}


@settings(deadline=None, max_examples=60)
@given(**ANY)
def test_never_faster_than_bytes_over_the_peak_rate(kernel, leg, tokens, ep, rate, more):
    found, moved, size = case(kernel, leg, tokens=tokens, ep=ep, up=rate, out=rate / more)
    assert found >= float(moved.up) * size / rate
    assert found >= float(moved.out) * size / (rate / more)


@pytest.mark.parametrize(
    ("fmt", "size"),
    [("bf16", 14336), ("fp8", 7392), ("FP8_block", 7392), ("mxfp8", 7392), ("nvfp4", 4032), ("fp4", 4032)],
)
def test_bytes_on_the_wire(fmt, size):
    assert wire_bytes(7168, fmt) == size


@pytest.mark.parametrize(
    ("weights", "dispatch"),
    [
        ("fp8", 7_392),  # 7,168 values and 56 scales of 4 bytes
        ("mxfp8", 7_392),  # 8 bits and a scale for 32
        ("int4-g32", 7_392),
        ("nvfp4", 7_392),
        ("bf16", 14_336),
        ("nvfp4*0.3+bf16*0.7", 14_336),
    ],
)
def test_bytes_of_a_hidden_vector(weights: str, dispatch: int) -> None:
    assert vector_bytes(7168, weights) == (dispatch, 14_336)


def test_unknown_format_on_the_wire():
    with pytest.raises(InputError, match="bf16, fp16, fp8"):
        wire_bytes(7168, "int3")
