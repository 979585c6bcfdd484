"""Group normalisation: sums of each channel plane, then one thread for each element gathers the sums of its group.

Reads x (49 MiB) twice and writes it once. The sums are doubles, so the variance may be taken as E[x^2] - E[x]^2 without losing digits. The first kernel has
one thread for each of 1024 planes: that is where the time goes.
"""
import cupy as cp
import numpy as np

module = cp.RawModule(code=r'''
extern "C" __global__ void plane_sums(const float* x, double* sums, double* squares, int planes, int pixels) {
    int plane = blockIdx.x * blockDim.x + threadIdx.x;
    if (plane >= planes) return;
    double s = 0.0, q = 0.0;
    for (int i = 0; i < pixels; i++) {
        double v = x[plane * pixels + i];
        s += v;
        q += v * v;
    }
    sums[plane] = s;
    squares[plane] = q;
}

extern "C" __global__ void normalise(const float* x, const double* sums, const double* squares, const float* weight, const float* bias, float* out,
                                     int n, int pixels, int channels, int per_group, float eps) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int plane = i / pixels;
    int first = plane / per_group * per_group;
    double s = 0.0, q = 0.0;
    for (int p = first; p < first + per_group; p++) {
        s += sums[p];
        q += squares[p];
    }
    double count = (double)per_group * pixels;
    double mean = s / count;
    double variance = q / count - mean * mean;
    int channel = plane % channels;
    out[i] = (float)((x[i] - mean) / sqrt(variance + eps)) * weight[channel] + bias[channel];
}''')
plane_sums = module.get_function("plane_sums")
normalise = module.get_function("normalise")


def forward(x, norm_weight, norm_bias):
    batches, channels, height, width = x.shape
    per_group = channels // (channels // 8)  # the task has a group for every 8 channels
    planes, pixels = batches * channels, height * width
    sums = cp.empty((planes,), dtype=cp.float64)
    squares = cp.empty((planes,), dtype=cp.float64)
    out = cp.empty_like(x)
    plane_sums(((planes + 31) // 32,), (32,), (x, sums, squares, planes, pixels))
    normalise(((x.size + 255) // 256,), (256,),
              (x, sums, squares, norm_weight, norm_bias, out, x.size, pixels, channels, per_group, np.float32(1e-5)))
    return out
