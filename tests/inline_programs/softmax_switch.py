# task: softmax_last
import torch
from torch.utils.cpp_extension import load_inline

cuda_source = r'''
#include <torch/types.h>
#include <cuda_fp16.h>
#include <limits>

template <int WARPS>
__device__ float block_reduce(float v, bool is_max) {
  __shared__ float buf[WARPS];
  __shared__ float result;
  #pragma unroll
  for (int o = 16; o > 0; o /= 2) {
    float w = __shfl_xor_sync(0xffffffff, v, o);
    v = is_max ? fmaxf(v, w) : v + w;
  }
  if ((threadIdx.x & 31) == 0) buf[threadIdx.x >> 5] = v;
  __syncthreads();
  if (threadIdx.x == 0) {
    float r = buf[0];
    for (int i = 1; i < WARPS; i++) r = is_max ? fmaxf(r, buf[i]) : r + buf[i];
    result = r;
  }
  __syncthreads();
  float r = result;
  __syncthreads();
  return r;
}

template <typename T, int THREADS>
__global__ void softmax_k(T* __restrict__ dst, const T* __restrict__ src, const int64_t dim) {
  const T* s = src + blockIdx.x * dim;
  T* d = dst + blockIdx.x * dim;
  float m = -INFINITY;
  for (int i = threadIdx.x; i < dim; i += THREADS) m = fmaxf(m, static_cast<float>(s[i]));
  m = block_reduce<THREADS / 32>(m, true);
  float t = 0;
  for (int i = threadIdx.x; i < dim; i += THREADS) t += __expf(static_cast<float>(s[i]) - m);
  t = block_reduce<THREADS / 32>(t, false);
  for (int i = threadIdx.x; i < dim; i += THREADS) d[i] = static_cast<T>(__expf(static_cast<float>(s[i]) - m) / t);
}

#define LAUNCH(N) softmax_k<scalar_t, N><<<grid, N>>>(out.data_ptr<scalar_t>(), x.data_ptr<scalar_t>(), dim)

torch::Tensor softmax(const torch::Tensor& x, int64_t axis) {
  axis = axis < 0 ? axis + x.dim() : axis;
  TORCH_CHECK(axis == x.dim() - 1, "only the last axis, not ", axis);
  const auto dim = x.size(axis);
  const auto grid = x.numel() / dim;
  auto out = torch::empty_like(x);
  const int threads = dim <= 128 ? 64 : (dim <= 512 ? 128 : 256);
  AT_DISPATCH_FLOATING_TYPES_AND_HALF(x.scalar_type(), "softmax", ([&] {
    switch (threads) {
      case 64: LAUNCH(64); break;
      case 128: LAUNCH(128); break;
      default: LAUNCH(256);
    }
  }));
  return out;
}
'''

module = load_inline(name='sm', cpp_sources='torch::Tensor softmax(const torch::Tensor& x, int64_t axis);', cuda_sources=cuda_source, functions={'softmax': 'row softmax'})


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return module.softmax(x, -1)
