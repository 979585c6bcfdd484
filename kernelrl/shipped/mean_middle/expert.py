"""Mean over the middle dimension. A two-dimensional block: x runs along the contiguous columns, y down the rows that are averaged.

Reads 64 MiB once. With 8 x 32 threads and float4 a block covers 32 columns of one batch, which makes 512 blocks of 256 threads, all on the chip at once.
The block's height is a constant (DOWN), not blockDim.y: only with a constant step does unrolling let the loads of several rows leave together.
"""
import cupy as cp

module = cp.RawModule(code=r'''
__device__ __forceinline__ float add(float a, float b) { return a + b; }
__device__ __forceinline__ float4 add(float4 a, float4 b) { return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w); }
__device__ __forceinline__ float over(float a, float n) { return a / n; }
__device__ __forceinline__ float4 over(float4 a, float n) { return make_float4(a.x / n, a.y / n, a.z / n, a.w / n); }

template<typename Vec, int ACROSS>
__global__ void __launch_bounds__(256) mean_middle(const float* __restrict__ x, float* __restrict__ out, int n, int width) {
    constexpr int DOWN = 256 / ACROSS;
    __shared__ Vec partial[DOWN][ACROSS];
    int across = threadIdx.x, down = threadIdx.y;
    int column = blockIdx.x * ACROSS + across;  // in units of Vec

    Vec acc = {};
    if (column < width) {
        const Vec* in = reinterpret_cast<const Vec*>(x) + (size_t)blockIdx.y * n * width + column;
        #pragma unroll 8
        for (int row = down; row < n; row += DOWN) acc = add(acc, in[(size_t)row * width]);
    }
    partial[down][across] = acc;
    __syncthreads();

    #pragma unroll
    for (int half = DOWN / 2; half > 0; half /= 2) {  // a tree down the rows
        if (down < half) partial[down][across] = acc = add(acc, partial[down + half][across]);
        __syncthreads();
    }
    if (down == 0 && column < width) reinterpret_cast<Vec*>(out)[blockIdx.y * width + column] = over(acc, n);
}''', name_expressions=["mean_middle<float4, 8>", "mean_middle<float, 32>"])


def forward(x):
    batches, n, d = x.shape
    out = cp.empty((batches, d), dtype=cp.float32)
    if d % 4 == 0:
        kernel, width, block = module.get_function("mean_middle<float4, 8>"), d // 4, (8, 32)
    else:
        kernel, width, block = module.get_function("mean_middle<float, 32>"), d, (32, 8)
    grid = ((width + block[0] - 1) // block[0], batches)
    kernel(grid, block, (x, out, n, width))
    return out
