"""Max pooling 3 x 3, stride 2, padding 1, separable and in registers: a thread owns two neighbouring outputs in
each of up to eight rows. A row of input gives two horizontal maxima from one float4 and its left neighbour; three
such rows give an output, and the last of them is the first of the next.

20 bytes an output; every input row but one in 17 is loaded once. PyTorch also writes an int64 index per output."""
import cupy as cp

source = r'''
#define ROWS 8   // outputs down a thread's strip

__device__ __forceinline__ float greater(float a, float b) { return b > a || isnan(b) ? b : a; }

// maxima of columns [4j-1, 4j+1] and [4j+1, 4j+3] of one input row
template <bool VEC> __device__ __forceinline__ float2 row_max(const float* __restrict__ plane, int y, int j, int H, int W) {
    const float none = -__int_as_float(0x7f800000);   // minus infinity: no element
    if (y < 0 || y >= H) return make_float2(none, none);
    const float* row = plane + y * W;
    const int x = 4 * j;
    float left = x > 0 ? row[x - 1] : none;
    float4 v;
    if (VEC) v = *reinterpret_cast<const float4*>(row + x);
    else v = make_float4(row[x], x + 1 < W ? row[x + 1] : none, x + 2 < W ? row[x + 2] : none, x + 3 < W ? row[x + 3] : none);
    return make_float2(greater(greater(left, v.x), v.y), greater(greater(v.y, v.z), v.w));
}

template <bool VEC> __global__ void __launch_bounds__(128)
max_pool(const float* __restrict__ x, float* __restrict__ out, int H, int W, int OH, int OW, int planes, int pairs, int strips) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;     // pair of columns, then strip, then plane
    const int j = i % pairs, strip = i / pairs % strips, plane = i / (pairs * strips);
    if (plane >= planes) return;
    x += (size_t)plane * H * W;
    out += (size_t)plane * OH * OW;
    const int oy0 = strip * ROWS, ox = 2 * j;

    float2 above = row_max<VEC>(x, 2 * oy0 - 1, j, H, W);
    #pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const int oy = oy0 + r;
        if (oy >= OH) break;
        float2 here = row_max<VEC>(x, 2 * oy, j, H, W);
        float2 below = row_max<VEC>(x, 2 * oy + 1, j, H, W);
        float a = greater(greater(above.x, here.x), below.x), b = greater(greater(above.y, here.y), below.y);
        if (VEC) *reinterpret_cast<float2*>(out + oy * OW + ox) = make_float2(a, b);
        else {
            out[oy * OW + ox] = a;
            if (ox + 1 < OW) out[oy * OW + ox + 1] = b;
        }
        above = below;
    }
}'''
module = cp.RawModule(code=source, options=("--std=c++17",), name_expressions=["max_pool<true>", "max_pool<false>"])


def forward(x):
    B, C, H, W = x.shape
    OH, OW = (H + 1) // 2, (W + 1) // 2
    out = cp.empty((B, C, OH, OW), dtype=x.dtype)
    pairs, strips = (OW + 1) // 2, (OH + 7) // 8
    kernel = module.get_function("max_pool<true>" if W % 4 == 0 else "max_pool<false>")
    kernel(((B * C * pairs * strips + 127) // 128,), (128,), (x, out, H, W, OH, OW, B * C, pairs, strips))
    return out
