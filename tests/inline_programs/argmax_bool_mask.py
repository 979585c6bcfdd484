# task: argmax_last
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

# two passes through a bool mask: mark the maxima, then find the first one
src = r'''
#include <torch/extension.h>
#include <tuple>
__global__ void row_max(const float* x, float* m, int d) {
    float v = -3.4e38f;
    for (int i = threadIdx.x; i < d; i += 32) v = fmaxf(v, x[(size_t)blockIdx.x * d + i]);
    for (int o = 16; o; o >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, o));
    if (threadIdx.x == 0) m[blockIdx.x] = v;
}
__global__ void mark(const float* x, const float* m, bool* is_max, int d, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) is_max[i] = x[i] == m[i / d];
}
__global__ void first(const bool* is_max, long* out, int d, int n) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    int j = 0;
    while (j < d - 1 && !is_max[(size_t)r * d + j]) ++j;
    out[r] = j;
}
std::tuple<at::Tensor, at::Tensor> maxima(const at::Tensor& x) {
    const int n = x.size(0), d = x.size(1), total = n * d;
    at::Tensor m, mask;
    m = at::empty({n}, x.options());
    mask = at::empty({n, d}, x.options().dtype(at::kBool));
    row_max<<<n, 32>>>(x.data_ptr<float>(), m.data_ptr<float>(), d);
    mark<<<(total + 255) / 256, 256>>>(x.data_ptr<float>(), m.data_ptr<float>(), mask.data_ptr<bool>(), d, total);
    return {m, mask};
}
at::Tensor argmax(const at::Tensor& x) {
    at::Tensor m, mask;
    std::tie(m, mask) = maxima(x);
    auto out = at::empty({x.size(0)}, x.options().dtype(at::kLong));
    first<<<(x.size(0) + 63) / 64, 64>>>(mask.data_ptr<bool>(), out.data_ptr<int64_t>(), x.size(1), x.size(0));
    return out;
}
'''
ext = load_inline(name='bool_argmax', cpp_sources='at::Tensor argmax(const at::Tensor& x);', cuda_sources=src, functions=['argmax'])

class ModelNew(nn.Module):
    def forward(self, x):
        return ext.argmax(x)
