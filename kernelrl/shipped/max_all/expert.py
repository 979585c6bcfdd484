"""The largest element in one kernel: registers, then a warp, then a block, then one atomic for each block.

Reads 64 MiB. A maximum does not depend on the order in which it is taken, so atomics give the same answer every time. There is no atomicMax for floats, but
the bits of a float >= 0 sort like a signed int, and those of a negative float sort backwards like an unsigned one. `out` starts at minus infinity.
"""
import math

import cupy as cp

max_all = cp.RawKernel(r'''
constexpr int AT_ONCE = 4;  // float4 loads in flight for each thread

__device__ __forceinline__ float larger(float a, float b) { return b > a || b != b ? b : a; }  // NaN wins, as in PyTorch

__device__ void atomic_larger(float* address, float v) {
    if (v != v) atomicMax(reinterpret_cast<int*>(address), 0x7fc00000);  // NaN: above all numbers in either order
    else if (__float_as_int(v) >= 0) atomicMax(reinterpret_cast<int*>(address), __float_as_int(v));
    else atomicMin(reinterpret_cast<unsigned int*>(address), __float_as_uint(v));
}

extern "C" __global__ void __launch_bounds__(512) max_all(const float* __restrict__ x, float* out, int n) {
    __shared__ float of_warp[16];
    const float4* x4 = reinterpret_cast<const float4*>(x);
    int thread = blockIdx.x * blockDim.x + threadIdx.x;
    int stride = gridDim.x * blockDim.x;
    int vectors = n / 4;

    float m = __int_as_float(0xff800000);  // minus infinity
    for (int i = thread; i < vectors; i += AT_ONCE * stride) {
        float4 v[AT_ONCE];  // past the end the first vector comes again, which changes no maximum and needs no branch
        #pragma unroll
        for (int k = 0; k < AT_ONCE; k++) v[k] = x4[i + k * stride < vectors ? i + k * stride : i];
        #pragma unroll
        for (int k = 0; k < AT_ONCE; k++) m = larger(m, larger(larger(v[k].x, v[k].y), larger(v[k].z, v[k].w)));
    }
    int tail = 4 * vectors + thread;
    if (tail < n) m = larger(m, x[tail]);

    for (int offset = 16; offset > 0; offset /= 2) m = larger(m, __shfl_xor_sync(0xffffffff, m, offset));
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = m;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < blockDim.x / 32; w++) m = larger(m, of_warp[w]);
        atomic_larger(out, m);
    }
}''', "max_all")


def forward(x):
    out = cp.full((), -math.inf, dtype=cp.float32)
    blocks = min((x.size + 2047) // 2048, 132 * 4)  # 4 blocks of 512 threads fill a multiprocessor
    max_all((blocks,), (512,), (x, out, x.size))
    return out
