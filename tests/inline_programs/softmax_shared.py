# task: softmax_last
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <float.h>

__global__ void softmax_kernel(const float* input, float* output, int rows, int cols) {
    extern __shared__ float sdata[];
    int row = blockIdx.x;
    int tid = threadIdx.x;
    const float* in = input + (size_t)row * cols;
    float* out = output + (size_t)row * cols;

    float m = -FLT_MAX;
    for (int i = tid; i < cols; i += blockDim.x) m = fmaxf(m, in[i]);
    sdata[tid] = m;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (tid < s) sdata[tid] = fmaxf(sdata[tid], sdata[tid + s]);
        __syncthreads();
    }
    m = sdata[0];
    __syncthreads();

    float sum = 0.0f;
    for (int i = tid; i < cols; i += blockDim.x) sum += expf(in[i] - m);
    sdata[tid] = sum;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (tid < s) sdata[tid] += sdata[tid + s];
        __syncthreads();
    }
    sum = sdata[0];
    for (int i = tid; i < cols; i += blockDim.x) out[i] = expf(in[i] - m) / sum;
}

torch::Tensor softmax_cuda(torch::Tensor input) {
    TORCH_CHECK(input.dim() == 2, "Input must be 2D");
    int rows = input.size(0);
    int cols = input.size(1);
    auto output = torch::empty({rows, cols}, torch::TensorOptions().dtype(input.dtype()).device(input.device()));

    int threads = 1;
    while (threads < cols && threads < 1024) threads <<= 1;
    size_t shared = threads * sizeof(float);
    softmax_kernel<<<rows, threads, shared>>>(input.data_ptr<float>(), output.data_ptr<float>(), rows, cols);
    cudaDeviceSynchronize();
    return output;
}
"""

softmax_ext = load_inline(
    name="softmax_ext", cpp_sources="torch::Tensor softmax_cuda(torch::Tensor input);", cuda_sources=source,
    functions=["softmax_cuda"], verbose=False,
)

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not x.is_cuda:
            return F.softmax(x, dim=1)
        return softmax_ext.softmax_cuda(x.contiguous())
