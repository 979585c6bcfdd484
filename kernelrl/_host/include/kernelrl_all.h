// For sources that include any of CUDA's own headers: all that we have, precompiled together
#pragma once
#include "kernelrl_host.h"
#include "cuda_fp16.h"
#include "cuda_bf16.h"
#include "mma.h"
#include "cooperative_groups.h"
#include "cuda_pipeline.h"
#include "cuda/std/std.h"
#include "cub/block/block.h"
