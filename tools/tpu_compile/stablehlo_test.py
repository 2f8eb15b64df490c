"""Text in, text out."""

from __future__ import annotations

import pytest

from tools.tpu_compile import stablehlo as tpu_stablehlo

_CALL = (
  "    %7 = stablehlo.custom_call @official_albert.all_reduce(%6) "
  "{api_version = 2 : i32} : (tensor<5x3xf32>) -> tensor<5x3xf32>\n"
)


def test_a_call_becomes_a_sum_over_replicas():
  text = tpu_stablehlo.for_tpu(f"a\n{_CALL}b\n", 4)
  assert "custom_call" not in text
  assert text.startswith('a\n    %7 = "stablehlo.all_reduce"(%6) <{')
  assert "dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>" in text
  assert "^bb0(%lhs: tensor<f32>, %rhs: tensor<f32>):" in text
  assert text.endswith("}) : (tensor<5x3xf32>) -> tensor<5x3xf32>\nb\n")
  assert tpu_stablehlo.count_all_reduces(text) == 1


@pytest.mark.parametrize("kind", ["f32", "bf16", "7xf32", "2x3x4xi32"])
def test_elements_of_sums(kind):
  call = _CALL.replace("5x3xf32", kind).replace(
    "@official_albert.all_reduce", '@"official_albert.all_reduce"'
  )
  text = tpu_stablehlo.for_tpu(call * 2, 1)
  element = kind.split("x")[-1]
  assert text.count(f"stablehlo.return %sum : tensor<{element}>") == 2
  assert text.count(f"(tensor<{kind}>) -> tensor<{kind}>") == 2


def test_copies_become_reshapes():
  text = "  %3 = mhlo.copy %2#1 : tensor<9x4xbf16>\n"
  assert tpu_stablehlo.for_tpu(text, 2) == (
    "  %3 = stablehlo.reshape %2#1 : (tensor<9x4xbf16>) -> tensor<9x4xbf16>\n"
  )


@pytest.mark.parametrize("name", ["mhlo.copy", "official_albert.all_reduce"])
def test_nothing_is_left_over(name):
  with pytest.raises(ValueError, match=f"{name}.*not understood: %3 = x"):
    tpu_stablehlo.for_tpu(f"a\n  %3 = x {name} (%1, %2)\n", 2)


def test_out_of_memory():
  used, available = tpu_stablehlo.out_of_memory(
    "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 11.84G of "
    "7.48G hbm. Exceeded hbm capacity by 4.36G."
  )
  assert (used, available) == (round(11.84 * 2**30), round(7.48 * 2**30))
  assert tpu_stablehlo.out_of_memory(
    "RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required "
    "for HLO temporaries (174.00G) exceeds available HBM (15.75G)."
  ) == (174 * 2**30, round(15.75 * 2**30))
  used, available = tpu_stablehlo.out_of_memory("Used 1.5T of 800.00M hbm")
  assert (used, available) == (3 * 2**39, 800 * 2**20)


@pytest.mark.parametrize("message", ["", "INTERNAL: Used 3G of patience"])
def test_other_errors_are_not_about_memory(message):
  assert tpu_stablehlo.out_of_memory(message) == (0, 0)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
