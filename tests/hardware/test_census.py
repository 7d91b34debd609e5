"""Counting kernels and bytes, against programs counted by hand."""

from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from purerl import trees
from purerl.errors import ConfigError
from purerl.hardware import absent, census, gpus, hlo, speed
from purerl.population import planning
from purerl.runs.describing import options
from purerl.runs.running import forecast

TEXT = """HloModule by_hand, is_scheduled=true

%body_fusion (param_0: f32[8,4], param_1: s32[], param_2: f32[4]) -> f32[8,4] {
  %param_0 = f32[8,4]{1,0} parameter(0)
  %param_2 = f32[4]{0} parameter(2)
  %param_1 = s32[] parameter(1)
  %zero = s32[] constant(0)
  %row = f32[1,4]{1,0} bitcast(%param_2)
  ROOT %update = f32[8,4]{1,0} dynamic-update-slice(%param_0, %row, %param_1, %zero)
}

%looking (param_0.1: f32[100,4], param_1.1: s32[]) -> (f32[4], pred[4]) {
  %param_0.1 = f32[100,4]{1,0} parameter(0)
  %param_1.1 = s32[] parameter(1)
  %zero.1 = s32[] constant(0)
  %slice = f32[1,4]{1,0} dynamic-slice(%param_0.1, %param_1.1, %zero.1), dynamic_slice_sizes={1,4}
  %flat = f32[4]{0} bitcast(%slice)
  %compare = pred[4]{0} compare(%flat, %flat), direction=EQ
  ROOT %both = (f32[4]{0}, pred[4]{0}) tuple(%flat, %compare)
}

%condition (state: (s32[], f32[8,4], f32[100,4])) -> pred[] {
  %state = (s32[], f32[8,4]{1,0}, f32[100,4]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  %limit = s32[] constant(8)
  ROOT %less = pred[] fusion(%i, %limit), kind=kLoop, calls=%comparing
}

%comparing (a: s32[], b: s32[]) -> pred[] {
  %a = s32[] parameter(0)
  %b = s32[] parameter(1)
  ROOT %c = pred[] compare(%a, %b), direction=LT
}

%body (state.1: (s32[], f32[8,4], f32[100,4])) -> (s32[], f32[8,4], f32[100,4]) {
  %state.1 = (s32[], f32[8,4]{1,0}, f32[100,4]{1,0}) parameter(0)
  %i.1 = s32[] get-tuple-element(%state.1), index=0
  %rows = f32[8,4]{1,0} get-tuple-element(%state.1), index=1
  %table = f32[100,4]{1,0} get-tuple-element(%state.1), index=2
  %looked = (f32[4]{0}, pred[4]{0}) fusion(%table, %i.1), kind=kLoop, calls=%looking
  %value = f32[4]{0} get-tuple-element(%looked), index=0
  %written = f32[8,4]{1,0} fusion(%rows, %i.1, %value), kind=kLoop, calls=%body_fusion
  ROOT %next = (s32[], f32[8,4]{1,0}, f32[100,4]{1,0}) tuple(%i.1, %written, %table)
}

ENTRY %main (x: f32[8,4], y: f32[100,4]) -> f32[8,4] {
  %x = f32[8,4]{1,0} parameter(0)
  %y = f32[100,4]{1,0} parameter(1)
  %start = s32[] constant(0)
  %copy = f32[8,4]{1,0} copy(%x)
  %product = (f32[8,8]{1,0}, s8[4194304]{0}) custom-call(%copy, %copy), custom_call_target="__cublas$gemm"
  %tuple = (s32[], f32[8,4]{1,0}, f32[100,4]{1,0}) tuple(%start, %copy, %y)
  %loop = (s32[], f32[8,4]{1,0}, f32[100,4]{1,0}) while(%tuple), condition=%condition, body=%body,TRIPS metadata={op_name="jit(f)/vmap(outer)/while/body/vmap(rollout)/while"}
  ROOT %out = f32[8,4]{1,0} get-tuple-element(%loop), index=1
}
"""  # noqa: E501
KNOWN = ' backend_config={"known_trip_count":{"n":"8"}},'
LOOKING, WRITING = 16 + 4 + 16 + 4, 4 + 16 + 16  # a slice, its index, what comes of it; an index, a row twice
COPY, PRODUCT = 2 * 128, 2 * 128 + 256
"""Bytes of the four kernels, by hand. The product's scratch is not memory traffic of its own."""


def test_by_hand():
    result = census.count(TEXT.replace("TRIPS", KNOWN))
    assert result.loops == [
        census.Loop("once", 0, 1, 2, COPY + PRODUCT),
        census.Loop("rollout", 1, 8, 2, LOOKING + WRITING),
    ]
    assert result.kernels == 2 + 16 and result.traffic_bytes == COPY + PRODUCT + 8 * (LOOKING + WRITING)


def test_loops_of_unknown_length_evaluate_their_condition():
    result = census.count(TEXT.replace("TRIPS", ""), unknown_trips=5)
    assert result.loops[1] == census.Loop("rollout", 1, 5, 3, LOOKING + WRITING + 9)
    assert census.count(TEXT.replace("TRIPS", "")).loops[1].runs == 1


def test_named():
    [whole, loop] = census.count(TEXT.replace("TRIPS", KNOWN)).named("init", 3).loops
    assert whole.label == "init" and (whole.runs, loop.runs, loop.label) == (3, 24, "rollout")


def test_shapes_and_other_texts():
    assert hlo.nbytes("(f32[2,3]{1,0}, pred[], bf16[4]{0}, u64[2]{0}, token[])") == 24 + 1 + 8 + 16
    assert hlo.operands("%a.1, f32[] %b), to_apply=%c") == ["a.1", "b"]
    with pytest.raises(ValueError, match="no entry"):
        census.count("HloModule nothing")


def test_speed_by_hand():
    gpu = gpus.GPUS["h100"]
    assert gpu.flops == pytest.approx(67e12, rel=0.01)  # as NVIDIA says
    launches = census.Loop("a", 1, 1000, 10, 4)
    traffic = census.Loop("b", 1, 10, 1, 10**9)
    result = speed.of_program(census.Census([launches, traffic]), 0.0, gpu)
    assert result.least_seconds == pytest.approx(1e4 * 1e-6 + 1e10 / 3.35e12)
    assert result.seconds == pytest.approx(1e4 * 1.3e-6 + 1e10 / 3.35e12 / 0.53) and result.bound == "launches"
    assert speed.of_program(census.Census([traffic]), 0.0, gpu).bound == "memory"
    slow = speed.of_program(census.Census([traffic]), 67e12, gpu)
    assert slow.bound == "arithmetic" and slow.least_seconds == pytest.approx(1.0, rel=0.01)
    faster = speed.of_program(census.Census([traffic]), 67e12, gpu, products=0.9 * 67e12)
    assert faster.least_seconds == pytest.approx(0.1 + 0.9 * 67 / 494.7, rel=0.01)
    assert speed.of_program(census.Census([traffic]), 67e12, gpus.GPUS["t4"], 67e12).bound == "arithmetic"


def test_a_cpu_takes_the_sum_of_kernels_bytes_and_arithmetic():
    counted = census.Census([census.Loop("a", 1, 1000, 10, 4), census.Loop("b", 1, 10, 1, 10**9)])
    assert speed.on_cpu(counted) == pytest.approx((10_000 + 10) * 7.1e-8 + (4000 + 1e10) / 88e9)
    assert speed.on_cpu(counted, 81e9) == pytest.approx(speed.on_cpu(counted) + 1)


def test_a_loop_is_estimated_with_its_arithmetic_where_that_matters():
    """Ten thousand products of small matrices in a scan, of a length that the program is given."""
    many = jax.jit(lambda x, length: jax.lax.fori_loop(0, length, lambda _, y: jnp.tanh(y @ x), x))
    counted = planning.census(many.lower(jnp.ones((64, 64)), 7), 10_000)
    assert 10_000 <= counted.kernels < 200_000
    taken, flops = [], lambda: taken.append(1) or 10_000 * 2 * 64**3
    assert forecast.expected(counted, flops) == speed.on_cpu(counted) and not taken
    days = census.Census([loop._replace(runs=10**6 * loop.runs) for loop in counted.loops])
    assert forecast.expected(days, flops) == speed.on_cpu(days, 10_000 * 2 * 64**3) and taken


def test_unknown_gpus():
    with pytest.raises(ConfigError, match="target = 'h20': unknown; nearest: h200"):
        absent.device("h20")
    assert 'device_description_str: "NVIDIA H200"' in gpus.description(gpus.GPUS["h200"])
    help_text = Path(options.__file__).read_text()
    assert all(name in help_text for name in gpus.GPUS)


def test_a_real_program():
    """A product and a sum over it, in a scan: at least what must be read and written, and at most three times that."""
    try:
        device = absent.device("a100")
    except ConfigError as error:
        pytest.skip(str(error))

    def f(x):
        def step(carry, _):
            return jnp.tanh(carry @ x), carry.sum()

        return jax.lax.scan(step, x, None, 7)

    like = jax.ShapeDtypeStruct((512, 512), jnp.float32)
    lowered = jax.jit(f).lower(trees.shapes(like, jax.sharding.SingleDeviceSharding(device)))
    result = planning.census(lowered)
    least = 3 * 512 * 512 * 4
    assert [loop.runs for loop in result.loops] == [1, 7]
    assert least <= result.loops[1].traffic_bytes <= 3 * least and 2 <= result.loops[1].kernels <= 6
    assert planning.machine.available_bytes([device]) == int(0.75 * 80 * 2**30)
