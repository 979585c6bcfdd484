# task: conv1d
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

conv1d_source = """
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void conv1d_kernel(
    const float* __restrict__ input, const float* __restrict__ weight, const float* __restrict__ bias, float* __restrict__ output,
    int batch, int in_channels, int out_channels, int length, int out_length, int kernel_size, int stride, int padding) {
    int idx = blockIdx.x * blockDim.x + threadIdx.x;
    int total = batch * out_channels * out_length;
    if (idx >= total) return;
    int l = idx % out_length;
    int oc = (idx / out_length) % out_channels;
    int b = idx / (out_length * out_channels);
    float sum = bias ? bias[oc] : 0.0f;
    for (int ic = 0; ic < in_channels; ++ic) {
        for (int k = 0; k < kernel_size; ++k) {
            int p = l * stride - padding + k;
            if (p >= 0 && p < length) sum += input[(b * in_channels + ic) * length + p] * weight[(oc * in_channels + ic) * kernel_size + k];
        }
    }
    output[idx] = sum;
}

torch::Tensor conv1d_cuda(torch::Tensor input, torch::Tensor weight, c10::optional<torch::Tensor> bias, int64_t stride, int64_t padding) {
    int batch = input.size(0), in_channels = input.size(1), length = input.size(2);
    int out_channels = weight.size(0), kernel_size = weight.size(2);
    int out_length = (length + 2 * padding - kernel_size) / stride + 1;
    auto output = torch::zeros({batch, out_channels, out_length}, input.options());
    const float* bias_ptr = nullptr;
    if (bias.has_value() && bias->defined()) {
        bias_ptr = bias->data_ptr<float>();
    }
    int total = batch * out_channels * out_length;
    int threads = 256;
    int blocks = (total + threads - 1) / threads;
    conv1d_kernel<<<blocks, threads>>>(input.data_ptr<float>(), weight.data_ptr<float>(), bias_ptr, output.data_ptr<float>(),
        batch, in_channels, out_channels, length, out_length, kernel_size, stride, padding);
    return output;
}
"""
conv1d_op = load_inline(name="conv1d_op", cpp_sources="torch::Tensor conv1d_cuda(torch::Tensor input, torch::Tensor weight, c10::optional<torch::Tensor> bias, int64_t stride, int64_t padding);",
                        cuda_sources=conv1d_source, functions=["conv1d_cuda"])

CIN, COUT = 64, 64

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(CIN, COUT, kernel_size=3, padding=1)
    def forward(self, x):
        return conv1d_op.conv1d_cuda(x, self.conv.weight, self.conv.bias, self.conv.stride[0], self.conv.padding[0])
