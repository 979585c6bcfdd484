"""Histogram with one shared copy per block: the atomics stay on the chip, and a block adds 256 sums to device memory.

4 bytes read an element. All warps of a block still meet in the same 256 counters."""
import cupy as cp

histogram = cp.RawKernel(r'''
extern "C" __global__ void histogram(const int* x, int* counts, int n) {
    __shared__ int mine[256];
    mine[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) atomicAdd(&mine[x[i]], 1);
    __syncthreads();
    atomicAdd(&counts[threadIdx.x], mine[threadIdx.x]);
}''', "histogram")


def forward(x):
    counts = cp.zeros(256, dtype=cp.int32)
    blocks = min((x.size + 255) // 256, 1024)
    histogram((blocks,), (256,), (x, counts, x.size))
    return counts
