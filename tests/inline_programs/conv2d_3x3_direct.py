# task: conv2d_3x3
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = r'''
#include <torch/extension.h>
#include <vector>
#include <ATen/cuda/CUDAContext.h>

struct Dims { int n, c, h, w, k; };

template <typename scalar_t, int R>
__global__ void conv_kernel(const scalar_t* __restrict__ x, const scalar_t* __restrict__ wt, const scalar_t* __restrict__ bias, scalar_t* __restrict__ y,
                            const int C, const int H, const int W, const int K, const int pad) {
    const int w = blockIdx.x * blockDim.x + threadIdx.x;
    const int h = blockIdx.y * blockDim.y + threadIdx.y;
    const int nk = blockIdx.z, n = nk / K, k = nk % K;
    if (w >= W || h >= H) return;
    scalar_t acc = bias[k];
    for (int c = 0; c < C; ++c)
        #pragma unroll
        for (int r = 0; r < R; ++r)
            #pragma unroll
            for (int s = 0; s < R; ++s) {
                const int hh = h + r - pad, ww = w + s - pad;
                if (hh >= 0 && hh < H && ww >= 0 && ww < W)
                    acc += x[((n * C + c) * H + hh) * W + ww] * wt[((k * C + c) * R + r) * R + s];
            }
    y[((n * K + k) * H + h) * W + w] = acc;
}

torch::Tensor conv2d(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, std::vector<int64_t> padding) {
    TORCH_CHECK(padding.size() == 2 && padding[0] == padding[1], "square padding");
    TORCH_CHECK(weight.size(2) == 3 && weight.size(3) == 3, "3x3 only, got ", weight.size(2));
    const int N = x.size(0), C = x.size(1), H = x.size(2), W = x.size(3), K = weight.size(0);
    std::vector<int64_t> shape = x.sizes().vec();
    shape[1] = K;
    auto y = torch::empty(shape, x.options());
    const dim3 block(16, 8, 1);
    const dim3 grid((W + block.x - 1) / block.x, (H + block.y - 1) / block.y, N * K);
    TORCH_CHECK(grid.z <= 65535, "too many planes");
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "conv2d", [&] {
        conv_kernel<scalar_t, 3><<<grid, block, 0, at::cuda::getCurrentCUDAStream()>>>(x.data_ptr<scalar_t>(), weight.data_ptr<scalar_t>(), bias.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), C, H, W, K, (int)padding[0]);
    });
    return y;
}
'''
ext = load_inline(name='conv3x3', cpp_sources='torch::Tensor conv2d(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, std::vector<int64_t> padding);', cuda_sources=cuda_source, functions=['conv2d'])
B, CIN, COUT, H, W = 16, 32, 64, 56, 56

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        conv = nn.Conv2d(CIN, COUT, kernel_size=3, padding=1)
        self.conv = conv

    def forward(self, x):
        return ext.conv2d(x, self.conv.weight, self.conv.bias, list(self.conv.padding))
