"""Depthwise 3 x 3 convolution as a window that slides down in registers: a thread makes four columns of a strip of
eight rows, loads ten rows of six values (one float4 and its two neighbours) and never goes back.

8 bytes and 18 flops an output; 10 / 8 of the input is read, the surplus from cache. No shared memory, no barrier."""
import cupy as cp

source = r'''
struct Six { float v[6]; };       // columns x - 1 .. x + 4 of one row

template <bool VEC> __device__ __forceinline__
Six load_row(const float* __restrict__ plane, int y, int x, int H, int W) {
    Six s = {};
    if (y < 0 || y >= H) return s;
    const float* row = plane + y * W + x;
    if (x > 0) s.v[0] = row[-1];
    if (VEC) {
        float4 m = *reinterpret_cast<const float4*>(row);
        s.v[1] = m.x; s.v[2] = m.y; s.v[3] = m.z; s.v[4] = m.w;
    } else {
        #pragma unroll
        for (int i = 0; i < 4; ++i) if (x + i < W) s.v[1 + i] = row[i];
    }
    if (x + 4 < W) s.v[5] = row[4];
    return s;
}

template <bool VEC> __global__ void __launch_bounds__(128)
depthwise(const float* __restrict__ x, const float* __restrict__ weight, const float* __restrict__ bias, float* __restrict__ out,
          int C, int H, int W, int planes, int quads, int strips) {
    constexpr int ROWS = 8;
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int col = i % quads * 4, y0 = i / quads % strips * ROWS, plane = i / (quads * strips);
    if (plane >= planes) return;
    const int c = plane % C;
    x += (size_t)plane * H * W;
    out += (size_t)plane * H * W;

    float w[9];
    #pragma unroll
    for (int k = 0; k < 9; ++k) w[k] = weight[c * 9 + k];
    const float b = bias[c];

    Six r[ROWS + 2];               // all loads before the first use; unrolling keeps these in registers
    #pragma unroll
    for (int k = 0; k < ROWS + 2; ++k) r[k] = load_row<VEC>(x, y0 - 1 + k, col, H, W);
    #pragma unroll
    for (int k = 0; k < ROWS; ++k) {
        if (y0 + k >= H) break;
        float o[4];
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
            o[j] = b;
            #pragma unroll
            for (int tap = 0; tap < 9; ++tap) o[j] = fmaf(w[tap], r[k + tap / 3].v[j + tap % 3], o[j]);
        }
        float* row = out + (y0 + k) * W + col;
        if (VEC) *reinterpret_cast<float4*>(row) = make_float4(o[0], o[1], o[2], o[3]);
        else {
            #pragma unroll
            for (int j = 0; j < 4; ++j) if (col + j < W) row[j] = o[j];
        }
    }
}'''
module = cp.RawModule(code=source, options=("--std=c++17",), name_expressions=["depthwise<true>", "depthwise<false>"])


def forward(x, conv_weight, conv_bias):
    B, C, H, W = x.shape
    out = cp.empty(x.shape, dtype=x.dtype)
    quads, strips = (W + 3) // 4, (H + 7) // 8
    kernel = module.get_function("depthwise<true>" if W % 4 == 0 else "depthwise<false>")
    kernel(((B * C * quads * strips + 127) // 128,), (128,), (x, conv_weight, conv_bias, out, C, H, W, B * C, quads, strips))
    return out
