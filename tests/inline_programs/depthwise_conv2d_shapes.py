# task: depthwise_conv2d
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

src = """
#include <torch/extension.h>

__global__ void dw_kernel(const float* in, const float* w, const float* b, float* out, int C, int H, int W, int OH, int OW, int KS, int pad, int total) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += gridDim.x * blockDim.x) {
        int ow = i % OW, oh = (i / OW) % OH, c = (i / (OW * OH)) % C, n = i / (OW * OH * C);
        float s = b[c];
        for (int r = 0; r < KS; ++r)
            for (int t = 0; t < KS; ++t) {
                int y = oh + r - pad, x = ow + t - pad;
                if (y >= 0 && y < H && x >= 0 && x < W) s += in[((n * C + c) * H + y) * W + x] * w[(c * KS + r) * KS + t];
            }
        out[i] = s;
    }
}

static std::vector<int64_t> output_shape(const torch::Tensor& x, int64_t kernel, int64_t pad) {
    std::vector<int64_t> shape;
    for (int64_t i = 0; i < x.dim(); i++) {
        if (i < 2) {
            shape.push_back(x.size(i));
        } else {
            shape.push_back(x.size(i) + 2 * pad - kernel + 1);
        }
    }
    return shape;
}

torch::Tensor depthwise(torch::Tensor x, torch::Tensor w, torch::Tensor b, int pad) {
    auto shape = output_shape(x, w.size(2), pad);
    torch::Tensor out = torch::empty(shape, x.options());
    int64_t total = 1;
    for (auto s : shape) total *= s;
    int threads = 256;
    int blocks = std::min<int64_t>((total + threads - 1) / threads, (int64_t)4096);
    dw_kernel<<<blocks, threads>>>(x.data_ptr<float>(), w.data_ptr<float>(), b.data_ptr<float>(), out.data_ptr<float>(),
        x.size(1), x.size(2), x.size(3), shape[2], shape[3], w.size(2), pad, total);
    return out;
}
"""
dw = load_inline(name="dw", cpp_sources="torch::Tensor depthwise(torch::Tensor x, torch::Tensor w, torch::Tensor b, int pad);", cuda_sources=src, functions=["depthwise"])

C = 128

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(C, C, kernel_size=3, padding=1, groups=C)
    def forward(self, x):
        return dw.depthwise(x, self.conv.weight, self.conv.bias, 1)
