# task: kl_div
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

src = """
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <tuple>
#include <utility>

__device__ __forceinline__ float reduce(float v, float* sm, bool mx) {
    sm[threadIdx.x] = v;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (threadIdx.x < s) sm[threadIdx.x] = mx ? fmaxf(sm[threadIdx.x], sm[threadIdx.x + s]) : sm[threadIdx.x] + sm[threadIdx.x + s];
        __syncthreads();
    }
    float r = sm[0];
    __syncthreads();
    return r;
}

__global__ void kl_rows(const float* s, const float* t, float* rows, int D) {
    extern __shared__ float sm[];
    s += (size_t)blockIdx.x * D; t += (size_t)blockIdx.x * D;
    float ms = -1e30f, mt = -1e30f;
    for (int i = threadIdx.x; i < D; i += blockDim.x) { ms = fmaxf(ms, s[i]); mt = fmaxf(mt, t[i]); }
    ms = reduce(ms, sm, true); mt = reduce(mt, sm, true);
    float zs = 0, zt = 0;
    for (int i = threadIdx.x; i < D; i += blockDim.x) { zs += expf(s[i] - ms); zt += expf(t[i] - mt); }
    zs = reduce(zs, sm, false); zt = reduce(zt, sm, false);
    float ls = logf(zs) + ms, lt = logf(zt) + mt, k = 0;
    for (int i = threadIdx.x; i < D; i += blockDim.x) { float q = t[i] - lt; k += expf(q) * (q - (s[i] - ls)); }
    k = reduce(k, sm, false);
    if (threadIdx.x == 0) rows[blockIdx.x] = k;
}
__global__ void batch_mean(const float* rows, float* out, int n) {
    extern __shared__ float sm[];
    float v = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) v += rows[i];
    v = reduce(v, sm, false);
    if (threadIdx.x == 0) out[0] = v / n;
}

std::pair<int, int> dims(const torch::Tensor& x) { return {static_cast<int>(x.size(0)), static_cast<int>(x.size(1))}; }

torch::Tensor kl(torch::Tensor student, torch::Tensor teacher) {
    auto [n, d] = dims(student);
    TORCH_CHECK(teacher.size(0) == n && teacher.size(1) == d, "shape mismatch");
    auto rows = torch::empty(n, student.options());
    auto out = torch::empty({1}, student.options());
    const int threads = 128;
    kl_rows<<<n, threads, threads * sizeof(float)>>>(student.data_ptr<float>(), teacher.data_ptr<float>(), rows.data_ptr<float>(), d);
    batch_mean<<<1, threads, threads * sizeof(float)>>>(rows.data_ptr<float>(), out.data_ptr<float>(), n);
    return out.view({});
}
"""
klm = load_inline(name="klm", cpp_sources="torch::Tensor kl(torch::Tensor student, torch::Tensor teacher);", cuda_sources=src, functions=["kl"])

class ModelNew(nn.Module):
    def forward(self, student, teacher):
        return klm.kl(student, teacher)
