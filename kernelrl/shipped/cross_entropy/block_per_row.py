"""Mean cross entropy, a block for each row with shared-memory trees, then one block for the mean.

The row is read twice, the second time from a cache: about 64 MiB of device memory, in four-byte loads.
"""
import cupy as cp

module = cp.RawModule(code=r'''
#define THREADS 256

__device__ float tree(float v, bool maximum) {  // over the block; all threads get the result
    __shared__ float partial[THREADS];
    partial[threadIdx.x] = v;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            float a = partial[threadIdx.x], b = partial[threadIdx.x + half];
            partial[threadIdx.x] = maximum ? fmaxf(a, b) : a + b;
        }
        __syncthreads();
    }
    v = partial[0];
    __syncthreads();
    return v;
}

extern "C" __global__ void row_loss(const float* logits, const long long* labels, float* loss, int d) {
    const float* row = logits + (size_t)blockIdx.x * d;
    float top = row[0];
    for (int j = threadIdx.x; j < d; j += THREADS) top = fmaxf(top, row[j]);
    top = tree(top, true);
    float total = 0.0f;
    for (int j = threadIdx.x; j < d; j += THREADS) total += expf(row[j] - top);
    total = tree(total, false);
    if (threadIdx.x == 0) loss[blockIdx.x] = logf(total) - (row[labels[blockIdx.x]] - top);
}

extern "C" __global__ void mean(const float* loss, float* out, int rows) {
    float total = 0.0f;
    for (int i = threadIdx.x; i < rows; i += THREADS) total += loss[i];
    total = tree(total, false);
    if (threadIdx.x == 0) out[0] = total / rows;
}''')
row_loss = module.get_function("row_loss")
mean = module.get_function("mean")


def forward(logits, labels):
    rows, d = logits.shape
    loss = cp.empty((rows,), dtype=cp.float32)
    out = cp.empty((), dtype=cp.float32)
    row_loss((rows,), (256,), (logits, labels, loss, d))
    mean((1,), (256,), (loss, out, rows))
    return out
