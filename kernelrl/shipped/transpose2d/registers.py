"""Transpose without shared memory: a thread holds a 4 x 4 block in registers and swaps it there.

A warp covers 32 rows x 16 columns. Its loads are runs of 64 bytes, its stores runs of 128: every 32-byte sector
is used whole on both sides, which is all that device memory asks for. 8 bytes an element, no barrier."""
import cupy as cp

source = r'''
extern "C" __global__ void __launch_bounds__(256)
transpose_registers(const float* __restrict__ x, float* __restrict__ out, int rows, int cols) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int r = blockIdx.y * 32 + lane % 8 * 4;                    // 8 lanes down: 32 rows
    const int c = (blockIdx.x * 8 + warp) * 16 + lane / 8 * 4;       // 4 lanes across: 16 columns
    if (r >= rows || c >= cols) return;

    if (rows % 4 == 0 && cols % 4 == 0) {
        float4 a[4];
        #pragma unroll
        for (int i = 0; i < 4; ++i) a[i] = *reinterpret_cast<const float4*>(x + (size_t)(r + i) * cols + c);
        float* o = out + (size_t)c * rows + r;
        *reinterpret_cast<float4*>(o) = make_float4(a[0].x, a[1].x, a[2].x, a[3].x);
        *reinterpret_cast<float4*>(o + rows) = make_float4(a[0].y, a[1].y, a[2].y, a[3].y);
        *reinterpret_cast<float4*>(o + 2 * (size_t)rows) = make_float4(a[0].z, a[1].z, a[2].z, a[3].z);
        *reinterpret_cast<float4*>(o + 3 * (size_t)rows) = make_float4(a[0].w, a[1].w, a[2].w, a[3].w);
    } else {
        for (int i = r; i < min(r + 4, rows); ++i)
            for (int j = c; j < min(c + 4, cols); ++j) out[(size_t)j * rows + i] = x[(size_t)i * cols + j];
    }
}'''
transpose = cp.RawKernel(source, "transpose_registers")


def forward(x):
    rows, cols = x.shape
    out = cp.empty((cols, rows), dtype=x.dtype)
    transpose(((cols + 127) // 128, (rows + 31) // 32), (256,), (x, out, rows, cols))
    return out
