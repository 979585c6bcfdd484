# task: residual_rmsnorm_block
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_src = r"""
#include <torch/extension.h>
#include <cuda_fp16.h>

__global__ void rms_kernel(const half* x, const half* w, half* y, int d, float eps) {
    __shared__ float sm[128];
    const half* p = x + (size_t)blockIdx.x * d;
    float s = 0.f;
    for (int i = threadIdx.x; i < d; i += 128) { float v = __half2float(p[i]); s += v * v; }
    sm[threadIdx.x] = s; __syncthreads();
    for (int k = 64; k; k >>= 1) { if (threadIdx.x < k) sm[threadIdx.x] += sm[threadIdx.x + k]; __syncthreads(); }
    float inv = rsqrtf(sm[0] / d + eps);
    for (int i = threadIdx.x; i < d; i += 128) y[(size_t)blockIdx.x * d + i] = __float2half(__half2float(p[i]) * inv * __half2float(w[i]));
}
__global__ void proj_silu_add(const half* h, const half* w, const half* x, half* y, int n, int d) {
    int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
    if (r >= n || c >= d) return;
    float a = 0.f;
    for (int k = 0; k < d; ++k) a += __half2float(h[(size_t)r * d + k]) * __half2float(w[(size_t)c * d + k]);
    y[(size_t)r * d + c] = __float2half(__half2float(x[(size_t)r * d + c]) + a / (1.f + expf(-a)));
}

#define H(t) reinterpret_cast<half*>(t.data_ptr<at::Half>())

void rms_norm(torch::Tensor x, torch::Tensor w, torch::Tensor out, float eps) {
    rms_kernel<<<x.size(0), 128>>>(H(x), H(w), H(out), x.size(1), eps);
}
torch::Tensor proj(torch::Tensor h, torch::Tensor w, torch::Tensor x) {
    torch::Tensor y = torch::empty_like(x);
    int n = x.size(0), d = x.size(1);
    dim3 b(32, 4);
    proj_silu_add<<<dim3((d + b.x - 1) / b.x, (n + b.y - 1) / b.y), b>>>(H(h), H(w), H(x), H(y), n, d);
    return y;
}
"""
cpp_src = """
void rms_norm(torch::Tensor x, torch::Tensor w, torch::Tensor out, float eps);
torch::Tensor proj(torch::Tensor h, torch::Tensor w, torch::Tensor x);
"""
ops = load_inline(name="block_ops", cpp_sources=cpp_src, cuda_sources=cuda_src, functions=["rms_norm", "proj"])

D = 256

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_weight = nn.Parameter((1.0 + 0.2 * torch.randn(D)).half())
        self.proj = nn.Linear(D, D, bias=False, dtype=torch.float16)

    def forward(self, x):
        h = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        ops.rms_norm(x, self.norm_weight, h, 1e-5)
        return ops.proj(h, self.proj.weight, x)
