// Asynchronous copies, which here are done at once
#pragma once
#include "kernelrl_host.h"
KRL_INLINE void __pipeline_memcpy_async(void* d, const void* s, size_t n, size_t zfill = 0) {
    krl::copy(d, s, n - zfill);
    for (size_t i = n - zfill; i < n; i++) ((char*)d)[i] = 0;
}
KRL_INLINE void __pipeline_commit() {}
KRL_INLINE void __pipeline_wait_prior(size_t) {}
