# task: mean_middle
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = """
#include <torch/extension.h>
#include <numeric>
#include <functional>
#include <vector>

template <typename scalar_t>
__global__ void mean_reduce_kernel(const scalar_t* __restrict__ input, scalar_t* __restrict__ output, int64_t outer, int64_t dim_size, int64_t inner) {
    const int64_t tid = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (tid >= outer * inner) return;
    const int64_t o = tid / inner, i = tid % inner;
    scalar_t sum = 0;
    for (int64_t k = 0; k < dim_size; ++k) sum += input[(o * dim_size + k) * inner + i];
    output[tid] = sum / static_cast<scalar_t>(dim_size);
}

torch::Tensor mean_reduce(torch::Tensor input, int64_t dim) {
    if (dim < 0) dim += input.dim();
    std::vector<int64_t> sizes = input.sizes().vec();
    int64_t outer_size = 1;
    for (int i = 0; i < dim; i++) {
        outer_size *= sizes[i];
    }
    const int64_t inner_size = std::accumulate(sizes.begin() + dim + 1, sizes.end(), (int64_t)1, std::multiplies<int64_t>());
    const int64_t dim_size = sizes[dim];
    sizes.erase(sizes.begin() + dim);

    auto output = torch::empty(sizes, input.options());
    const int threads = 256;
    const int blocks = (outer_size * inner_size + threads - 1) / threads;
    AT_DISPATCH_FLOATING_TYPES(input.scalar_type(), "mean_reduce_cuda", ([&] {
        mean_reduce_kernel<scalar_t><<<blocks, threads>>>(
            input.data_ptr<scalar_t>(), output.data_ptr<scalar_t>(), outer_size, dim_size, inner_size);
    }));
    return output;
}
"""
mean_op = load_inline(name="mean_op", cpp_sources="torch::Tensor mean_reduce(torch::Tensor input, int64_t dim);", cuda_sources=cuda_source, functions=["mean_reduce"])

class ModelNew(nn.Module):
    def __init__(self, dim=1):
        super(ModelNew, self).__init__()
        self.dim = dim

    def forward(self, x):
        return mean_op.mean_reduce(x, self.dim)
