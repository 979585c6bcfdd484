# task: argmax_last
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

argmax_source = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <cfloat>

__global__ void argmax_kernel(const float* __restrict__ x, int64_t* __restrict__ out, const int dim) {
    extern __shared__ char raw[];
    float* vals = (float*)raw;
    int* idxs = (int*)(raw + blockDim.x * sizeof(float));
    const float* row = x + (int64_t)blockIdx.x * dim;
    float best = -FLT_MAX; int where = 0;
    for (int i = threadIdx.x; i < dim; i += blockDim.x) {
        float v = row[i];
        if (v > best) { best = v; where = i; }
    }
    vals[threadIdx.x] = best; idxs[threadIdx.x] = where;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (threadIdx.x < s) {
            float o = vals[threadIdx.x + s]; int oi = idxs[threadIdx.x + s];
            if (o > vals[threadIdx.x] || (o == vals[threadIdx.x] && oi < idxs[threadIdx.x])) { vals[threadIdx.x] = o; idxs[threadIdx.x] = oi; }
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = idxs[0];
}

torch::Tensor argmax(torch::Tensor x, int64_t dim) {
    const int64_t ndim = x.dim();
    TORCH_CHECK(dim >= -ndim && dim < ndim, "dim out of range");
    if (dim < 0) dim += ndim;
    TORCH_CHECK(dim == ndim - 1, "only the last dim");
    std::vector<int64_t> out_shape;
    int64_t outer = 1;
    for (int64_t d = 0; d < ndim; ++d) {
        if (d == dim) continue;
        out_shape.push_back(x.size(d));
        outer *= x.size(d);
    }
    auto options = torch::TensorOptions().dtype(torch::kLong).device(x.device());
    auto out = torch::empty(out_shape, options);
    const int threads = 128;
    const size_t smem = threads * (sizeof(float) + sizeof(int));
    argmax_kernel<<<outer, threads, smem>>>(x.data_ptr<float>(), out.data_ptr<int64_t>(), x.size(dim));
    return out;
}
"""
argmax_mod = load_inline(name="argmax_mod", cpp_sources="torch::Tensor argmax(torch::Tensor x, int64_t dim);", cuda_sources=argmax_source, functions=["argmax"])

class ModelNew(nn.Module):
    def __init__(self, dim: int = 1):
        super().__init__()
        self.dim = dim
    def forward(self, x):
        return argmax_mod.argmax(x, self.dim)
