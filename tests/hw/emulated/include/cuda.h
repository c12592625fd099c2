// The part of CUDA's driver interface that hw/cuda calls, for the emulator.
#pragma once

#include <cuda_runtime_api.h>

struct CUgreenCtx_st;
struct CUdevResourceDesc_st;
using CUgreenCtx = CUgreenCtx_st*;
using CUdevResourceDesc = CUdevResourceDesc_st*;
using CUstream = CUstream_st*;
using CUdevice = int;
struct CUctx_st;
using CUcontext = CUctx_st*;

enum CUresult {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_INVALID_DEVICE = 101,
  CUDA_ERROR_INVALID_RESOURCE_TYPE = 914,
  CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION = 915,
};
enum CUdevResourceType { CU_DEV_RESOURCE_TYPE_INVALID = 0, CU_DEV_RESOURCE_TYPE_SM = 1 };
struct CUdevSmResource {
  unsigned smCount, minSmPartitionSize, smCoscheduledAlignment;
};
struct CUdevResource {
  CUdevResourceType type;
  CUdevSmResource sm;
};
inline constexpr unsigned CU_GREEN_CTX_DEFAULT_STREAM = 1, CU_STREAM_NON_BLOCKING = 1;
