# task: gelu_tanh
import torch, torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda = r'''
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
constexpr float kAlpha = 0.7978845608028654f;
constexpr float kBeta  = 0.044715f;
constexpr int   kThreads = 256;
constexpr int   kPerThread = 4;

__global__ void gelu_fwd(const float* __restrict__ in, float* __restrict__ out, int n) {
    int i = (blockIdx.x * kThreads + threadIdx.x) * kPerThread;
    if (i + kPerThread <= n && (n % 4 == 0)) {
        float4 v = *reinterpret_cast<const float4*>(in + i);
        float r[4] = {v.x, v.y, v.z, v.w};
        #pragma unroll
        for (int j = 0; j < 4; j++) { float t = r[j]; r[j] = 0.5f * t * (1.0f + tanhf(kAlpha * (t + kBeta * t * t * t))); }
        *reinterpret_cast<float4*>(out + i) = make_float4(r[0], r[1], r[2], r[3]);
    } else {
        for (int j = i; j < i + kPerThread && j < n; ++j) {
            float t = in[j];
            out[j] = 0.5f * t * (1.0f + tanhf(kAlpha * (t + kBeta * t * t * t)));
        }
    }
}

at::Tensor gelu(at::Tensor x) {
    TORCH_CHECK(x.is_cuda(), "gelu: CUDA tensor expected");
    TORCH_CHECK_EQ(x.dtype(), torch::kFloat32);
    auto n = x.numel();
    if (n == 0) return at::empty_like(x);
    auto out = at::empty(x.sizes(), x.options().dtype(at::kFloat));
    auto* props = at::cuda::getCurrentDeviceProperties();
    int sms = props->multiProcessorCount;
    TORCH_CHECK(sms > 0);
    int64_t per_block = kThreads * kPerThread;
    gelu_fwd<<<(n + per_block - 1) / per_block, kThreads, 0, at::cuda::getCurrentCUDAStream().stream()>>>(x.const_data_ptr<float>(), out.mutable_data_ptr<float>(), (int)n);
    AT_CUDA_CHECK(cudaGetLastError());
    return out;
}
'''

_ext = load_inline(name='gelu_mod', cpp_sources='at::Tensor gelu(at::Tensor x);', cuda_sources=cuda, functions='gelu')

class ModelNew(nn.Module):
    "GELU, fused"
    def __init__(self): super().__init__()
    def forward(self, x): return _ext.gelu(x)
