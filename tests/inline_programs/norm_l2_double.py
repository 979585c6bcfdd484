# task: norm_l2
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SRC = """
#include <torch/extension.h>
#include <cmath>
#include <type_traits>

template <typename scalar_t>
__global__ void norm_kernel(scalar_t* __restrict__ out, const scalar_t* __restrict__ in, const size_t rows, const size_t cols, const scalar_t eps) {
    const size_t row = (size_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    scalar_t sum = 0;
    for (size_t c = threadIdx.x; c < cols; c += 32) { const scalar_t v = in[row * cols + c]; sum += v * v; }
    for (int o = 16; o > 0; o >>= 1) sum += __shfl_xor_sync(0xffffffff, sum, o);
    if constexpr (std::is_same<scalar_t, float>::value) sum = rsqrtf(sum + eps);
    else sum = scalar_t(1) / sqrt(sum + eps);
    for (size_t c = threadIdx.x; c < cols; c += 32) out[row * cols + c] = in[row * cols + c] * sum;
}

torch::Tensor normalize(torch::Tensor in, double eps = 1e-12) {
    auto out = torch::empty_like(in);
    const dim3 block(32, 4);
    const auto rows = in.size(0);
    AT_DISPATCH_FLOATING_TYPES(in.scalar_type(), "normalize", ([&]() {
        const auto e = static_cast<scalar_t>(eps);
        norm_kernel<scalar_t><<<dim3((rows + 3) / 4), block>>>(out.data_ptr<scalar_t>(), in.data_ptr<scalar_t>(), rows, in.size(1), e);
    }));
    return out;
}
"""
lib = load_inline(name="normalize_rows", cpp_sources="torch::Tensor normalize(torch::Tensor in, double eps);", cuda_sources=SRC, functions=["normalize"])

class ModelNew(nn.Module):
    def forward(self, x):
        return lib.normalize(x, 1e-12)
