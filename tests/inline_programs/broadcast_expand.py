# task: broadcast_add_mul
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

src = r"""
#include <torch/extension.h>
__global__ void gated(const float* __restrict__ x, const float* __restrict__ shift, const float* __restrict__ gate, float* __restrict__ y, int N, int D, int total, int gate_stride) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < total) {
        int d = i % D, b = i / (N * D);
        y[i] = x[i] + (x[i] + shift[d]) * gate[b * gate_stride + d];
    }
}
torch::Tensor gated_residual(torch::Tensor x, torch::Tensor shift, torch::Tensor gate) {
    auto g = gate.expand({x.size(0), x.size(1), x.size(2)});
    TORCH_CHECK(g.stride(1) == 0, "the gate is broadcast over dimension 1");
    auto y = torch::empty_like(x);
    int total = x.numel();
    gated<<<(total + 511) / 512, 512>>>(x.data_ptr<float>(), shift.data_ptr<float>(), g.data_ptr<float>(), y.data_ptr<float>(), (int)x.size(1), (int)x.size(2), total, (int)g.stride(0));
    return y;
}
"""
ext = load_inline(name="gated", cpp_sources="torch::Tensor gated_residual(torch::Tensor x, torch::Tensor shift, torch::Tensor gate);", cuda_sources=src, functions=["gated_residual"])

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
    def forward(self, x, shift, gate):
        return ext.gated_residual(x, shift, gate)
