"""One-dimensional convolution, register-tiled: a block makes 64 channels x 128 positions, a thread 8 x 8 of them.

Per input channel a thread reads 12 inputs and 24 weights from shared memory for 192 FMAs. The three taps share their
inputs: a window of six serves four positions. 6 * CIN flops an output, so at 64 channels the FMA units are the limit
(1.6 GFLOP), not the 34 MB of traffic."""
import cupy as cp

source = r'''
constexpr int CH = 64, POS = 128, CI = 16;      // block tile: output channels, positions; input channels a step
constexpr int WS = CH + 4;                      // row of weights, padded

extern "C" __global__ void __launch_bounds__(128, 4)
conv1d(const float* __restrict__ x, const float* __restrict__ weight, const float* __restrict__ bias, float* __restrict__ out,
       int CIN, int COUT, int L) {
    __shared__ __align__(16) float xs[CI][POS + 8];    // xs[c][3 + i] is position p0 - 1 + i, so that p0 is aligned
    __shared__ __align__(16) float ws[CI * 3][WS];     // ws[3 c + tap][channel]
    const int t = threadIdx.x, lane = t % 32, warp = t / 32;
    const int tx = t % 16, ty = t / 16;                // positions 4 tx.. and 64 + 4 tx..; channels 8 ty..
    const int p0 = blockIdx.x * POS, co0 = blockIdx.y * CH;
    const float* in = x + (size_t)blockIdx.z * CIN * L;
    const bool vec = L % 4 == 0;

    float acc[8][8] = {};
    for (int c0 = 0; c0 < CIN; c0 += CI) {
        #pragma unroll
        for (int i = 0; i < CI / 4; ++i) {             // a warp loads whole rows of inputs
            const int c = warp + 4 * i, p = p0 + 4 * lane;
            const float* row = in + (size_t)(c0 + c) * L;
            const bool live = c0 + c < CIN;
            float4 v = make_float4(0.f, 0.f, 0.f, 0.f);
            if (live && vec && p < L) v = *reinterpret_cast<const float4*>(row + p);
            if (live && !vec) v = make_float4(p < L ? row[p] : 0.f, p + 1 < L ? row[p + 1] : 0.f,
                                              p + 2 < L ? row[p + 2] : 0.f, p + 3 < L ? row[p + 3] : 0.f);
            *reinterpret_cast<float4*>(&xs[c][4 + 4 * lane]) = v;
            if (lane < 2) {                            // one neighbour on each side
                const int q = lane ? p0 + POS : p0 - 1;
                xs[c][lane ? 4 + POS : 3] = live && q >= 0 && q < L ? row[q] : 0.f;
            }
        }
        for (int i = t; i < CI * 3 * CH; i += 128) {   // runs of 8 weights of 4 channels: full sectors, no bank conflict
            const int k = i % 8 + i / (8 * CH) * 8, co = i / 8 % CH;
            const bool live = co0 + co < COUT && c0 * 3 + k < CIN * 3;
            ws[k][co] = live ? weight[(size_t)(co0 + co) * CIN * 3 + c0 * 3 + k] : 0.f;
        }
        __syncthreads();
        #pragma unroll 2
        for (int c = 0; c < CI; ++c) {
            float v[2][6];                             // positions -1 .. 4 around each group of four
            #pragma unroll
            for (int g = 0; g < 2; ++g) {
                const float* s = &xs[c][4 + 64 * g + 4 * tx];
                float4 m = *reinterpret_cast<const float4*>(s);
                v[g][0] = s[-1]; v[g][1] = m.x; v[g][2] = m.y; v[g][3] = m.z; v[g][4] = m.w; v[g][5] = s[4];
            }
            #pragma unroll
            for (int tap = 0; tap < 3; ++tap) {
                float w[8];
                *reinterpret_cast<float4*>(w) = *reinterpret_cast<const float4*>(&ws[3 * c + tap][8 * ty]);
                *reinterpret_cast<float4*>(w + 4) = *reinterpret_cast<const float4*>(&ws[3 * c + tap][8 * ty + 4]);
                #pragma unroll
                for (int a = 0; a < 8; ++a)
                    #pragma unroll
                    for (int p = 0; p < 8; ++p) acc[a][p] = fmaf(w[a], v[p / 4][p % 4 + tap], acc[a][p]);
            }
        }
        __syncthreads();
    }
    #pragma unroll
    for (int a = 0; a < 8; ++a) {
        const int co = co0 + 8 * ty + a;
        if (co >= COUT) break;
        const float b = bias[co];
        float* row = out + ((size_t)blockIdx.z * COUT + co) * L;
        #pragma unroll
        for (int g = 0; g < 2; ++g) {
            const int p = p0 + 64 * g + 4 * tx;
            if (vec && p < L) *reinterpret_cast<float4*>(row + p) =
                make_float4(acc[a][4 * g] + b, acc[a][4 * g + 1] + b, acc[a][4 * g + 2] + b, acc[a][4 * g + 3] + b);
            if (!vec)
                #pragma unroll
                for (int j = 0; j < 4; ++j) if (p + j < L) row[p + j] = acc[a][4 * g + j] + b;
        }
    }
}'''
conv1d = cp.RawKernel(source, "conv1d")


def forward(x, conv_weight, conv_bias):
    B, CIN, L = x.shape
    COUT = conv_weight.shape[0]
    out = cp.empty((B, COUT, L), dtype=x.dtype)
    conv1d(((L + 127) // 128, (COUT + 63) // 64, B), (128,), (x, conv_weight, conv_bias, out, CIN, COUT, L))
    return out
