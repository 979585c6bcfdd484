# task: bias_gelu
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
#include <cuda_fp16.h>
#include <math_constants.h>

template <typename scalar_t>
__global__ void bias_gelu_kernel(const scalar_t* __restrict__ x, const scalar_t* __restrict__ bias, scalar_t* __restrict__ y, int64_t n, int64_t d) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = float(x[i]) + float(bias[i % d]);
    y[i] = scalar_t(0.5f * v * (1.0f + erff(v * 0.7071067811865476f)));
}

torch::Tensor bias_gelu(torch::Tensor x, torch::Tensor bias) {
    TORCH_CHECK(bias.dim() == 1 && bias.size(0) == x.size(-1), "bias must match the last dimension");
    auto y = torch::empty(x.sizes(), x.options());
    int64_t n = x.numel();
    const int threads = 256;
    const auto blocks = (n + threads - 1) / threads;
    auto dtype = x.scalar_type();
    if (dtype == at::ScalarType::Half) {
        bias_gelu_kernel<c10::Half><<<blocks, threads>>>(x.data_ptr<c10::Half>(), bias.data_ptr<c10::Half>(), y.data_ptr<c10::Half>(), n, x.size(-1));
    } else {
        AT_DISPATCH_FLOATING_TYPES(dtype, "bias_gelu", ([&] {
            bias_gelu_kernel<scalar_t><<<blocks, threads>>>(x.data_ptr<scalar_t>(), bias.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), n, x.size(-1));
        }));
    }
    return y;
}
"""
bg = load_inline(name="bg", cpp_sources="torch::Tensor bias_gelu(torch::Tensor x, torch::Tensor bias);", cuda_sources=source, functions=["bias_gelu"])
D = 4096

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(D, dtype=torch.float16))

    def forward(self, x):
        shape = x.shape
        x2 = x.view(-1, shape[-1])
        return bg.bias_gelu(x2, self.bias).view(shape)
