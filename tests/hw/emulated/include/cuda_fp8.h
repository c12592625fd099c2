// The part of cuda_fp8.h that hw/cuda uses, for the emulator.
#pragma once

#include "tests/hw/emulated/fp8.hpp"

enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };
using __nv_fp8_storage_t = unsigned char;

inline __nv_fp8_storage_t __nv_cvt_float_to_fp8(float value, __nv_saturation_t,
                                                __nv_fp8_interpretation_t format) {
  return emulated::to_fp8(format == __NV_E4M3 ? emulated::e4m3 : emulated::e5m2, value);
}
