# task: permute_0213
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

# the kernel reads the transposed view through its strides
src = """
#include <torch/extension.h>
__global__ void copy_strided(const short* __restrict__ in, short* __restrict__ out, int H, int S, int D, long sb, long sh, long ss) {
    int s = blockIdx.x, h = blockIdx.y, b = blockIdx.z;
    const short* p = in + b * sb + h * sh + s * ss;
    short* q = out + (((long)b * H + h) * S + s) * D;
    for (int d = threadIdx.x; d < D; d += blockDim.x) q[d] = p[d];
}
torch::Tensor to_contiguous(torch::Tensor x) {
    TORCH_CHECK(x.element_size() == 2, "two-byte elements");
    TORCH_CHECK(x.stride(-1) == 1, "the last dimension must be dense");
    if (x.is_contiguous()) return x.clone();
    auto out = torch::empty(x.sizes(), x.options());
    const int B = x.size(0), H = x.size(1), S = x.size(2), D = x.size(3);
    copy_strided<<<dim3(S, H, B), 64>>>(static_cast<const short*>(x.data_ptr()), static_cast<short*>(out.data_ptr()), H, S, D, x.stride(0), x.stride(1), x.stride(2));
    return out;
}
"""
ext = load_inline(name="strided", cpp_sources="torch::Tensor to_contiguous(torch::Tensor x);", cuda_sources=src, functions=["to_contiguous"])

class ModelNew(nn.Module):
    def forward(self, x):
        return ext.to_contiguous(x.permute(0, 2, 1, 3))
