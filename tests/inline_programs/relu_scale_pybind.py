# task: relu_scale
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

cuda_source = '''
#include <torch/extension.h>
#include <cuda.h>
#include <cuda_runtime.h>
#include <vector>

#define CHECK_CUDA(x) TORCH_CHECK(x.device().is_cuda(), #x " must be a CUDA tensor")
#define CHECK_CONTIGUOUS(x) TORCH_CHECK(x.is_contiguous(), #x " must be contiguous")
#define CHECK_INPUT(x) CHECK_CUDA(x); CHECK_CONTIGUOUS(x)
#define CUDA_CHECK(call) \\
    do { \\
        cudaError_t err = (call); \\
        if (err != cudaSuccess) { \\
            fprintf(stderr, "CUDA error %s at %s:%d\\n", cudaGetErrorString(err), __FILE__, __LINE__); \\
            exit(EXIT_FAILURE); \\
        } \\
    } while (0)
#define THREADS 128

namespace {
template <typename T>
__global__ void relu_scale_kernel(const T* __restrict__ in, T* __restrict__ out, T scale, T bias, const int n) {
    const int i = blockIdx.x * THREADS + threadIdx.x;
    if (i < n) {
        const T v = in[i] * scale + bias;
        out[i] = v > T(0) ? v : T(0);
    }
}
}  // namespace

torch::Tensor relu_scale_forward(torch::Tensor input, double scale, double bias) {
    CHECK_INPUT(input);
    auto output = torch::empty(input.sizes(), input.options());
    const int n = input.numel();
    dim3 block(THREADS);
    dim3 grid((n + block.x - 1) / block.x);
    AT_DISPATCH_FLOATING_TYPES(input.scalar_type(), "relu_scale_forward", [&] {
        relu_scale_kernel<scalar_t><<<grid, block>>>(
            input.data_ptr<scalar_t>(), output.data_ptr<scalar_t>(),
            static_cast<scalar_t>(scale), static_cast<scalar_t>(bias), n);
    });
    CUDA_CHECK(cudaGetLastError());
    return output;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("forward", &relu_scale_forward, "relu(x * scale + bias)", py::arg("input"), py::arg("scale") = 1.0, py::arg("bias") = 0.0);
}
'''

ext = load_inline(name='relu_scale_ext', cpp_sources='', cuda_sources=cuda_source, with_cuda=True, verbose=False)

class ModelNew(nn.Module):
    def __init__(self):
        super(ModelNew, self).__init__()

    def forward(self, x, scale, bias):
        return ext.forward(x, scale=scale, bias=bias)
