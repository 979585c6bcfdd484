"""KL divergence of teacher and student: log-sum-exp of each row of both, then the sum of p * (log p - log q), then the mean over rows.

Three kernels with a thread for each row (the first is used twice). Each of the two 32 MiB inputs is read three times.
"""
import cupy as cp

module = cp.RawModule(code=r'''
extern "C" __global__ void log_sum_exp(const float* z, float* top, float* log_sum, int rows, int d) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float m = z[row * d];
    for (int j = 1; j < d; j++) m = fmaxf(m, z[row * d + j]);
    double total = 0.0;
    for (int j = 0; j < d; j++) total += expf(z[row * d + j] - m);
    top[row] = m;
    log_sum[row] = (float)log(total);
}

extern "C" __global__ void row_kl(const float* student, const float* s_top, const float* s_log, const float* teacher, const float* t_top,
                                  const float* t_log, double* kl, int rows, int d) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    double total = 0.0;
    for (int j = 0; j < d; j++) {
        float log_p = teacher[row * d + j] - t_top[row] - t_log[row];
        float log_q = student[row * d + j] - s_top[row] - s_log[row];
        total += expf(log_p) * (log_p - log_q);
    }
    kl[row] = total;
}

extern "C" __global__ void mean(const double* kl, float* out, int rows) {
    double total = 0.0;
    for (int i = 0; i < rows; i++) total += kl[i];
    out[0] = (float)(total / rows);
}''')
log_sum_exp = module.get_function("log_sum_exp")
row_kl = module.get_function("row_kl")
mean = module.get_function("mean")


def forward(student, teacher):
    rows, d = student.shape
    s_top, s_log, t_top, t_log = [cp.empty((rows,), dtype=cp.float32) for _ in range(4)]
    kl = cp.empty((rows,), dtype=cp.float64)
    out = cp.empty((), dtype=cp.float32)
    grid, block = ((rows + 31) // 32,), (32,)
    log_sum_exp(grid, block, (student, s_top, s_log, rows, d))
    log_sum_exp(grid, block, (teacher, t_top, t_log, rows, d))
    row_kl(grid, block, (student, s_top, s_log, teacher, t_top, t_log, kl, rows, d))
    mean((1,), (1,), (kl, out, rows))
    return out
