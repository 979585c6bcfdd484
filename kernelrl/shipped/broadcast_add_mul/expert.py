"""x + (x + shift) * gate in one pass. The grid has the shape of the broadcast: x over columns, y over strips of rows, z over the batch.

No index is ever divided, shift and gate are loaded once for eight rows, and each element costs one addition and one FMA. 128 MiB moved; eager PyTorch's
three kernels move 448 MiB.
"""
import cupy as cp

ROWS = 8

module = cp.RawModule(code=r'''
constexpr int ROWS = 8;

__device__ __forceinline__ float blend(float x, float s, float g) { return fmaf(x + s, g, x); }
__device__ __forceinline__ float4 blend(float4 x, float4 s, float4 g) {
    return make_float4(blend(x.x, s.x, g.x), blend(x.y, s.y, g.y), blend(x.z, s.z, g.z), blend(x.w, s.w, g.w));
}

template<typename Vec>  // float4, or float where the row length is odd
__global__ void __launch_bounds__(256)
gated_residual(const float* __restrict__ x, const float* __restrict__ shift, const float* __restrict__ gate, float* __restrict__ out, int rows, int width) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;  // in units of Vec, as is width
    if (column >= width) return;
    int row = blockIdx.y * ROWS;
    size_t start = ((size_t)blockIdx.z * rows + row) * width + column;
    const Vec* in = reinterpret_cast<const Vec*>(x) + start;
    Vec* to = reinterpret_cast<Vec*>(out) + start;

    Vec v[ROWS];
    #pragma unroll
    for (int r = 0; r < ROWS; r++)
        if (row + r < rows) v[r] = in[r * width];

    Vec s = reinterpret_cast<const Vec*>(shift)[column];
    Vec g = reinterpret_cast<const Vec*>(gate)[blockIdx.z * width + column];
    #pragma unroll
    for (int r = 0; r < ROWS; r++)
        if (row + r < rows) to[r * width] = blend(v[r], s, g);
}''', name_expressions=["gated_residual<float4>", "gated_residual<float>"])
wide = module.get_function("gated_residual<float4>")
narrow = module.get_function("gated_residual<float>")


def forward(x, shift, gate):
    batches, rows, d = x.shape
    out = cp.empty_like(x)
    kernel, width = (wide, d // 4) if d % 4 == 0 else (narrow, d)
    grid = ((width + 255) // 256, (rows + ROWS - 1) // ROWS, batches)
    kernel(grid, (256,), (x, shift, gate, out, rows, width))
    return out
