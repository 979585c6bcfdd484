# task: norm_l2
import torch
import torch.nn as nn
from torch.autograd import Function
from torch.utils.cpp_extension import load_inline

cpp_sources = r'''
#include <torch/extension.h>
torch::Tensor l2norm_cuda_forward(torch::Tensor x, float eps);
torch::Tensor l2norm_forward(torch::Tensor x, float eps) {
    TORCH_CHECK(x.is_cuda(), "x must be CUDA");
    TORCH_CHECK(x.is_contiguous(), "x must be contiguous");
    return l2norm_cuda_forward(x, eps);
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("forward", &l2norm_forward, "L2 norm forward (CUDA)");
    m.def("version", []() { return 1; });
}
'''
cuda_sources = r'''
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <cub/cub.cuh>

template <int THREADS>
__global__ void l2norm_kernel(const float* x, float* y, int d, float eps) {
    typedef cub::BlockReduce<float, THREADS> Reduce;
    __shared__ typename Reduce::TempStorage tmp;
    __shared__ float inv;
    const float* row = x + (size_t)blockIdx.x * d;
    float s = 0.f;
    for (int i = threadIdx.x; i < d; i += THREADS) s += row[i] * row[i];
    s = Reduce(tmp).Sum(s);
    if (threadIdx.x == 0) inv = 1.0f / sqrtf(s + eps);
    __syncthreads();
    for (int i = threadIdx.x; i < d; i += THREADS) y[(size_t)blockIdx.x * d + i] = row[i] * inv;
}

torch::Tensor l2norm_cuda_forward(torch::Tensor x, float eps) {
    auto y = torch::empty_like(x);
    const int n = x.size(0), d = x.size(1);
    l2norm_kernel<256><<<n, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), d, eps);
    return y;
}
'''
l2norm = load_inline(name='l2norm', cpp_sources=cpp_sources, cuda_sources=cuda_sources, with_cuda=True)

class L2Norm(Function):
    @staticmethod
    def forward(ctx, x, eps):
        y = l2norm.forward(x, eps)
        ctx.eps = eps
        return y

class ModelNew(nn.Module):
    def __init__(self, eps=1e-12):
        super().__init__()
        self.eps = eps
        assert l2norm.version() == 1
    def forward(self, x):
        return L2Norm.apply(x, self.eps)
