# task: sum_last
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

src = r'''
#include <torch/extension.h>
#include <cuda_runtime.h>

// stage 1: SPLIT blocks a row; stage 2: add the partial sums
template <unsigned int BLOCK>
__global__ void stage1(const float* __restrict__ x, float* __restrict__ partial, unsigned int d, unsigned int split) {
  __shared__ float sm[BLOCK];
  const unsigned int row = blockIdx.y;
  const unsigned int chunk = (d + split - 1) / split;
  const unsigned int lo = blockIdx.x * chunk, hi = min(lo + chunk, d);
  float s = 0.f;
  for (unsigned int i = lo + threadIdx.x; i < hi; i += BLOCK) s += x[(size_t)row * d + i];
  sm[threadIdx.x] = s;
  __syncthreads();
  if (BLOCK >= 128) { if (threadIdx.x < 64) sm[threadIdx.x] += sm[threadIdx.x + 64]; __syncthreads(); }
  if (BLOCK >= 64) { if (threadIdx.x < 32) sm[threadIdx.x] += sm[threadIdx.x + 32]; __syncthreads(); }
  if (threadIdx.x < 32) {
    float v = sm[threadIdx.x];
    for (int o = 16; o; o >>= 1) v += __shfl_down_sync(0xffffffffu, v, o);
    if (threadIdx.x == 0) partial[row * split + blockIdx.x] = v;
  }
}
__global__ void stage2(const float* __restrict__ partial, float* __restrict__ out, unsigned int n, unsigned int split) {
  unsigned int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= n) return;
  float s = 0.f;
  for (unsigned int i = 0; i < split; i++) s += partial[r * split + i];
  out[r] = s;
}

torch::Tensor row_sum(torch::Tensor x) {
  auto n = x.size(0);
  auto d = x.size(1);
  const unsigned int split = d >= 1024 ? 4u : (d >= 256 ? 2u : 1u);
  auto partial = torch::empty({n, static_cast<int64_t>(split)}, x.options());
  auto out = torch::empty({n}, x.options());
  stage1<128><<<dim3(split, n), 128>>>(x.data_ptr<float>(), partial.data_ptr<float>(), d, split);
  stage2<<<(n + 127) / 128, 128>>>(partial.data_ptr<float>(), out.data_ptr<float>(), n, split);
  return out;
}
'''
rs = load_inline(name="row_sum", cpp_sources="torch::Tensor row_sum(torch::Tensor x);", cuda_sources=src, functions=["row_sum"])

class ModelNew(nn.Module):
    def forward(self, x):
        return rs.row_sum(x)
