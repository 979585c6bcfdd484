# task: layer_norm
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

layer_norm_source = """
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void layer_norm_kernel(
    const float* __restrict__ input,
    const float* __restrict__ weight,
    const float* __restrict__ bias,
    float* __restrict__ output,
    const int hidden,
    const float eps
) {
    const int row = blockIdx.x;
    const int tid = threadIdx.x;
    __shared__ float s_sum[256];
    __shared__ float s_mean, s_inv;

    const float* x = input + row * hidden;
    float local = 0.0f;
    for (int i = tid; i < hidden; i += blockDim.x) local += x[i];
    s_sum[tid] = local;
    __syncthreads();
    for (int stride = blockDim.x / 2; stride > 0; stride /= 2) {
        if (tid < stride) s_sum[tid] += s_sum[tid + stride];
        __syncthreads();
    }
    if (tid == 0) s_mean = s_sum[0] / hidden;
    __syncthreads();
    const float mean = s_mean;

    local = 0.0f;
    for (int i = tid; i < hidden; i += blockDim.x) { float d = x[i] - mean; local += d * d; }
    s_sum[tid] = local;
    __syncthreads();
    for (int stride = blockDim.x / 2; stride > 0; stride /= 2) {
        if (tid < stride) s_sum[tid] += s_sum[tid + stride];
        __syncthreads();
    }
    if (tid == 0) s_inv = rsqrtf(s_sum[0] / hidden + eps);
    __syncthreads();
    for (int i = tid; i < hidden; i += blockDim.x)
        output[row * hidden + i] = (x[i] - mean) * s_inv * weight[i] + bias[i];
}

torch::Tensor layer_norm_cuda(torch::Tensor input, torch::Tensor weight, torch::Tensor bias, float eps) {
    auto sizes = input.sizes();
    const int hidden = sizes[sizes.size() - 1];
    const int rows = input.numel() / hidden;
    auto output = torch::empty_like(input);
    layer_norm_kernel<<<rows, 256>>>(
        input.data_ptr<float>(), weight.data_ptr<float>(), bias.data_ptr<float>(),
        output.data_ptr<float>(), hidden, eps);
    return output;
}
"""

layer_norm_op = load_inline(
    name="layer_norm_op",
    cpp_sources="torch::Tensor layer_norm_cuda(torch::Tensor input, torch::Tensor weight, torch::Tensor bias, float eps);",
    cuda_sources=layer_norm_source,
    functions=["layer_norm_cuda"],
)

D = 2048

class ModelNew(nn.Module):
    def __init__(self, eps: float = 1e-5):
        super(ModelNew, self).__init__()
        self.weight = nn.Parameter(torch.ones(D))
        self.bias = nn.Parameter(torch.zeros(D))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return layer_norm_op.layer_norm_cuda(x, self.weight, self.bias, self.eps)
