# task: softmax_last
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cpp = r"""
#include <torch/extension.h>
#include <tuple>
std::tuple<torch::Tensor, torch::Tensor> row_stats(torch::Tensor x);
torch::Tensor normalize(torch::Tensor x, torch::Tensor m, torch::Tensor s);
"""
cu = r"""
#include <torch/extension.h>
#include <tuple>
#include <c10/cuda/CUDAStream.h>

// one warp per row, online max and sum
__global__ void row_stats_kernel(const float* x, float* mx, float* sm, int n, int d) {
  int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (row >= n) return;
  float m = -3.0e38f, s = 0.f;
  for (int j = lane; j < d; j += 32) {
    float v = x[(long long)row * d + j];
    float nm = fmaxf(m, v);
    s = s * expf(m - nm) + expf(v - nm);
    m = nm;
  }
  for (int o = 16; o; o >>= 1) {
    float om = __shfl_xor_sync(0xffffffffu, m, o), os = __shfl_xor_sync(0xffffffffu, s, o);
    float nm = fmaxf(m, om);
    s = s * expf(m - nm) + os * expf(om - nm);
    m = nm;
  }
  if (lane == 0) { mx[row] = m; sm[row] = s; }
}
__global__ void normalize_kernel(const float* x, const float* mx, const float* sm, float* y, int n, int d) {
  int j = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
  if (j < d) y[(long long)row * d + j] = expf(x[(long long)row * d + j] - mx[row]) / sm[row];
}

std::tuple<torch::Tensor, torch::Tensor> row_stats(torch::Tensor x) {
  const auto n = x.size(0), d = x.size(1);
  auto opts = x.options();
  torch::Tensor m = torch::empty({n}, opts), s = torch::empty({n}, opts);
  auto stream = c10::cuda::getCurrentCUDAStream();
  const int warps_per_block = 4;
  row_stats_kernel<<<(n + warps_per_block - 1) / warps_per_block, 32 * warps_per_block, 0, stream>>>(x.data_ptr<float>(), m.data_ptr<float>(), s.data_ptr<float>(), n, d);
  return std::make_tuple(m, s);
}
torch::Tensor normalize(torch::Tensor x, torch::Tensor m, torch::Tensor s) {
  auto y = torch::empty_like(x);
  dim3 block(256, 1, 1), grid;
  grid.x = (x.size(1) + block.x - 1) / block.x;
  grid.y = x.size(0);
  normalize_kernel<<<grid, block>>>(x.data_ptr<float>(), m.data_ptr<float>(), s.data_ptr<float>(), y.data_ptr<float>(), (int)x.size(0), (int)x.size(1));
  return y;
}
"""
ops = load_inline(name="online_softmax", cpp_sources=cpp, cuda_sources=cu, functions=["row_stats", "normalize"], extra_cuda_cflags=["-O3", "-std=c++20"])

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
    def forward(self, x):
        m, s = ops.row_stats(x)
        return ops.normalize(x, m, s)
