# task: sum_last
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

THREADS = 64

kernel = f"""
#include <torch/extension.h>

__global__ void sum_rows(const float* x, float* out, int d) {{
    __shared__ float s[{THREADS}];
    float v = 0.f;
    for (int i = threadIdx.x; i < d; i += {THREADS}) v += x[(size_t)blockIdx.x * d + i];
    s[threadIdx.x] = v;
    __syncthreads();
    for (int k = {THREADS // 2}; k > 0; k >>= 1) {{
        if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k];
        __syncthreads();
    }}
    if (threadIdx.x == 0) out[blockIdx.x] = s[0];
}}

torch::Tensor sum_rows_cuda(torch::Tensor x) {{
    auto out = torch::empty({{x.size(0)}}, x.options());
    sum_rows<<<x.size(0), {THREADS}>>>(x.data_ptr<float>(), out.data_ptr<float>(), x.size(1));
    return out;
}}
"""

class SumRows(nn.Module):
    def __init__(self):
        super().__init__()
        self.ext = load_inline(name="sum_rows", cpp_sources="torch::Tensor sum_rows_cuda(torch::Tensor x);", cuda_sources=kernel, functions=["sum_rows_cuda"])
    def forward(self, x):
        return self.ext.sum_rows_cuda(x)

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.op = SumRows()
    def forward(self, x):
        return self.op(x)
