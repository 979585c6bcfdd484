"""GELU by its tanh formula, as one kernel and with one exponential.

0.5 * (1 + tanh(u)) is the sigmoid of 2u, so gelu(x) = x / (1 + exp(-2u)): cheaper than tanhf, and without its cancellation for negative x.
A fixed number of blocks walks over the array in strides of the grid. 128 MiB moved; eager PyTorch's eight kernels move about nine times that.
"""
import cupy as cp

SOURCE = r'''
__device__ __forceinline__ float gelu(float x) {
    float u2 = 1.5957691216057308f * fmaf(0.044715f * x * x, x, x);  // 2 * sqrt(2 / pi) * (x + 0.044715 x^3)
    return x / (1.0f + expf(-u2));                                   // exp overflows to inf for very negative x: the quotient is -0
}

__device__ __forceinline__ float4 gelu4(float4 v) {
    return make_float4(gelu(v.x), gelu(v.y), gelu(v.z), gelu(v.w));
}

extern "C" __global__ void __launch_bounds__(256) gelu_tanh(const float* __restrict__ x, float* __restrict__ out, int n) {
    const float4* x4 = reinterpret_cast<const float4*>(x);
    float4* out4 = reinterpret_cast<float4*>(out);
    int vectors = n / 4;
    int stride = gridDim.x * blockDim.x;
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    for (; i + stride < vectors; i += 2 * stride) {  // two at a time: both loads leave before the first result is needed
        float4 a = x4[i];
        float4 b = x4[i + stride];
        out4[i] = gelu4(a);
        out4[i + stride] = gelu4(b);
    }
    if (i < vectors) out4[i] = gelu4(x4[i]);

    int tail = 4 * vectors + blockIdx.x * blockDim.x + threadIdx.x;
    if (tail < n) out[tail] = gelu(x[tail]);
}'''
gelu_tanh = cp.RawKernel(SOURCE, "gelu_tanh")


def forward(x):
    out = cp.empty_like(x)
    blocks = min((x.size + 1023) // 1024, 132 * 8)  # 8 blocks of 256 threads fill one of the 132 multiprocessors
    gelu_tanh((blocks,), (256,), (x, out, x.size))
    return out
