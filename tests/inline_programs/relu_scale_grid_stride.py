# task: relu_scale
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_src = r"""
#include <cuda_runtime.h>
#include <torch/extension.h>

template <int VPT>
__global__ void fused(const float* __restrict__ x, float* __restrict__ y, const float a, const float b, const size_t n)
{
    size_t base = (size_t)blockIdx.x * blockDim.x * VPT + threadIdx.x;
#pragma unroll
    for (int k = 0; k < VPT; ++k) {
        size_t i = base + (size_t)k * blockDim.x;
        if (i < n) y[i] = fmaxf(a * x[i] + b, 0.0f);
    }
}

static inline unsigned int cdiv(size_t a, size_t b) { return static_cast<unsigned int>((a + b - 1) / b); }

void launch(const float* x, float* y, float a, float b, size_t n, cudaStream_t stream = 0)
{
    constexpr int threads = 256;
    if (n >= (size_t)1 << 20) {
        fused<8><<<cdiv(n, threads * 8), threads, 0, stream>>>(x, y, a, b, n);
    } else {
        fused<2><<<cdiv(n, threads * 2), threads, 0, stream>>>(x, y, a, b, n);
    }
}

torch::Tensor run(torch::Tensor x, double a, double b)
{
    x = x.contiguous();
    torch::Tensor y = torch::empty_like(x);
    launch(x.data_ptr<float>(), y.data_ptr<float>(), a, b, static_cast<size_t>(x.numel()));
    cudaError_t e = cudaGetLastError();
    TORCH_CHECK(e == cudaSuccess, "launch failed: ", cudaGetErrorString(e));
    return y;
}
"""
cpp_src = "torch::Tensor run(torch::Tensor x, double a, double b);"


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.op = load_inline(name="fused_relu_scale", cpp_sources=[cpp_src], cuda_sources=[cuda_src], functions=["run"], extra_cuda_cflags=["-O3", "-lineinfo"])

    @torch.no_grad()
    def forward(self, x, scale, bias):
        assert x.is_cuda, "CUDA only"
        return self.op.run(x, float(scale), float(bias))
