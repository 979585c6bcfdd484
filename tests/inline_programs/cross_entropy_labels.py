# task: cross_entropy
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

ce_source = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void ce_rows(const float* __restrict__ logits, const int64_t* __restrict__ labels, float* __restrict__ losses, int C) {
    const float* row = logits + (int64_t)blockIdx.x * C;
    __shared__ float red[128];
    float m = -1e30f;
    for (int i = threadIdx.x; i < C; i += blockDim.x) m = fmaxf(m, row[i]);
    red[threadIdx.x] = m; __syncthreads();
    for (int s = blockDim.x >> 1; s; s >>= 1) { if (threadIdx.x < s) red[threadIdx.x] = fmaxf(red[threadIdx.x], red[threadIdx.x + s]); __syncthreads(); }
    m = red[0]; __syncthreads();
    float z = 0.f;
    for (int i = threadIdx.x; i < C; i += blockDim.x) z += __expf(row[i] - m);
    red[threadIdx.x] = z; __syncthreads();
    for (int s = blockDim.x >> 1; s; s >>= 1) { if (threadIdx.x < s) red[threadIdx.x] += red[threadIdx.x + s]; __syncthreads(); }
    if (threadIdx.x == 0) losses[blockIdx.x] = logf(red[0]) + m - row[labels[blockIdx.x]];
}
__global__ void ce_mean(const float* losses, float* out, int n) {
    float s = 0.f;
    for (int i = threadIdx.x; i < n; i += 32) s += losses[i];
    for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(0xffffffffu, s, o);
    if (!threadIdx.x) *out = s / n;
}

torch::Tensor cross_entropy(torch::Tensor logits, torch::Tensor labels) {
    TORCH_CHECK(labels.scalar_type() == at::kLong, "labels must be int64");
    const int n = logits.size(0), c = logits.size(1);
    auto losses = torch::empty({n}, logits.options());
    auto out = torch::empty({}, logits.options());
    ce_rows<<<n, 128>>>(logits.data_ptr<float>(), labels.data_ptr<int64_t>(), losses.data_ptr<float>(), c);
    ce_mean<<<1, 32>>>(losses.data_ptr<float>(), out.data_ptr<float>(), n);
    return out;
}
"""
ce = load_inline(name="ce", cpp_sources="torch::Tensor cross_entropy(torch::Tensor logits, torch::Tensor labels);", cuda_sources=ce_source, functions=["cross_entropy"])

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.reduction = "mean"

    def forward(self, logits, labels):
        return ce.cross_entropy(logits, labels.view(-1))
