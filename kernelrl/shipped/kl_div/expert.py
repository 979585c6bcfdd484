"""KL divergence of teacher and student in one pass over both, no probability ever written.

With p = softmax(t) and q = softmax(s), a row's sum of p * (log p - log q) is  sum p * (t - s)  -  (logsumexp t - logsumexp s).  A block holds both rows in
registers: one reduction finds the two maxima, one adds up three sums. 64 MiB read; eager PyTorch's kernels (two softmaxes, xlogy, product, difference, sum)
move six to seven times that. A second kernel of one block takes the mean over rows.
"""
import cupy as cp

module = cp.RawModule(code=r'''
constexpr int ITEMS = 4, MAX_WARPS = 32;
template<int V> struct alignas(4 * V) Pack { float v[V]; };

__device__ __forceinline__ float warp_max(float v) {
    #pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffff, v, offset));
    return v;
}

__device__ __forceinline__ float warp_sum(float v) {
    #pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) v += __shfl_xor_sync(0xffffffff, v, offset);
    return v;
}

template<int V>
__global__ void __launch_bounds__(1024) row_kl(const float* __restrict__ student, const float* __restrict__ teacher, float* __restrict__ kl, int d) {
    __shared__ float2 maxima[MAX_WARPS];
    __shared__ float3 sums[MAX_WARPS];
    const float lowest = __int_as_float(0xff800000);  // minus infinity
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32, packs = d / V;
    const Pack<V>* s_row = reinterpret_cast<const Pack<V>*>(student + (size_t)blockIdx.x * d);
    const Pack<V>* t_row = reinterpret_cast<const Pack<V>*>(teacher + (size_t)blockIdx.x * d);

    Pack<V> s[ITEMS], t[ITEMS];
    float s_top = lowest, t_top = lowest;
    #pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        int i = threadIdx.x + k * blockDim.x;
        if (i < packs) {
            s[k] = s_row[i];
            t[k] = t_row[i];
        }
    }
    #pragma unroll
    for (int k = 0; k < ITEMS; k++)
        if (threadIdx.x + k * blockDim.x < packs)
            for (int c = 0; c < V; c++) {
                s_top = fmaxf(s_top, s[k].v[c]);
                t_top = fmaxf(t_top, t[k].v[c]);
            }
    s_top = warp_max(s_top);
    t_top = warp_max(t_top);
    if (lane == 0) maxima[warp] = make_float2(s_top, t_top);
    __syncthreads();
    s_top = warp_max(lane < warps ? maxima[lane].x : lowest);
    t_top = warp_max(lane < warps ? maxima[lane].y : lowest);

    float s_total = 0.0f, t_total = 0.0f, cross = 0.0f;  // sums of exp(s - s_top), exp(t - t_top), exp(t - t_top) * ((t - t_top) - (s - s_top))
    #pragma unroll
    for (int k = 0; k < ITEMS; k++)
        if (threadIdx.x + k * blockDim.x < packs)
            for (int c = 0; c < V; c++) {
                float a = s[k].v[c] - s_top, b = t[k].v[c] - t_top, p = expf(b);
                s_total += expf(a);
                t_total += p;
                cross = fmaf(p, b - a, cross);
            }
    s_total = warp_sum(s_total);
    t_total = warp_sum(t_total);
    cross = warp_sum(cross);
    if (lane == 0) sums[warp] = make_float3(s_total, t_total, cross);
    __syncthreads();
    if (warp > 0) return;
    float3 mine = lane < warps ? sums[lane] : make_float3(0.0f, 0.0f, 0.0f);
    s_total = warp_sum(mine.x);
    t_total = warp_sum(mine.y);
    cross = warp_sum(mine.z);
    if (lane == 0) kl[blockIdx.x] = cross / t_total - (logf(t_total) - logf(s_total));
}

__global__ void __launch_bounds__(512) mean(const float* __restrict__ kl, float* out, int rows) {
    __shared__ float sums[16];
    float total = 0.0f;
    for (int i = threadIdx.x; i < rows; i += 512) total += kl[i];
    total = warp_sum(total);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = total;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    total = warp_sum(threadIdx.x < 16 ? sums[threadIdx.x] : 0.0f);
    if (threadIdx.x == 0) out[0] = total / rows;
}''', name_expressions=["row_kl<4>", "row_kl<1>", "mean"])


def forward(student, teacher):
    rows, d = student.shape
    kl = cp.empty((rows,), dtype=cp.float32)
    out = cp.empty((), dtype=cp.float32)
    v = 4 if d % 4 == 0 else 1
    warps = (d + 128 * v - 1) // (128 * v)  # 4 packs of each input for each thread
    module.get_function(f"row_kl<{v}>")((rows,), (32 * warps,), (student, teacher, kl, d))
    module.get_function("mean")((1,), (512,), (kl, out, rows))
    return out
