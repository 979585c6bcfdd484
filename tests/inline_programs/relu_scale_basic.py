# task: relu_scale
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

relu_scale_source = """
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void relu_scale_kernel(const float* x, float* out, float scale, float bias, int size) {
    int idx = blockIdx.x * blockDim.x + threadIdx.x;
    if (idx < size) {
        float v = x[idx] * scale + bias;
        out[idx] = v > 0.0f ? v : 0.0f;
    }
}

torch::Tensor relu_scale_cuda(torch::Tensor x, float scale, float bias) {
    auto size = x.numel();
    auto out = torch::zeros_like(x);

    const int block_size = 256;
    const int num_blocks = (size + block_size - 1) / block_size;

    relu_scale_kernel<<<num_blocks, block_size>>>(x.data_ptr<float>(), out.data_ptr<float>(), scale, bias, size);

    return out;
}
"""

relu_scale_cpp_source = "torch::Tensor relu_scale_cuda(torch::Tensor x, float scale, float bias);"

# Compile the inline CUDA code
relu_scale = load_inline(
    name="relu_scale",
    cpp_sources=relu_scale_cpp_source,
    cuda_sources=relu_scale_source,
    functions=["relu_scale_cuda"],
    verbose=True,
    extra_cflags=[""],
    extra_ldflags=[""],
)


class ModelNew(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.relu_scale = relu_scale

    def forward(self, x: torch.Tensor, scale: float, bias: float) -> torch.Tensor:
        return self.relu_scale.relu_scale_cuda(x, scale, bias)
