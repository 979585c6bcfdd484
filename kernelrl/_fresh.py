"""Values that no timed run has seen before, so that nothing which a program keeps from one run to the next can be the answer to the next.

A CUDA context has many places that outlive a launch: `__device__` variables, the heap of the device's `malloc`, memory behind a small allocation, the baseline's tensors. Clearing one of them leaves the others. So what a program may remember
is made worthless instead: before every timed run each element of every floating-point input and parameter is multiplied by a factor of its own, (1 + k/4096) with k between -256 and 255, half of it common to the array. The factor depends
on a seed, the array and the element, is exact in float32, and the product is rounded once, so that the referee computes the same bits with numpy and needs nothing from the process in which the candidate ran.
Integers stay as they are, and so do zeros and infinities. A task whose inputs and parameters are all integers is not protected.
"""
import numpy as np

KINDS = {'float32':'f32', 'float64':'f64', 'float16':'f16', 'bfloat16':'b16'}

SOURCE = r'''
#include <cuda_fp16.h>
#include <cuda_bf16.h>
typedef unsigned long long u8;
__device__ u8 mix(u8 z) { z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull; z = (z ^ (z >> 27)) * 0x94d049bb133111ebull; return z ^ (z >> 31); }
__device__ int factor(u8 seed, u8 i) { return 4096 + (int)(mix(seed) >> 56) - 128 + (int)(mix(seed + (i + 1) * 0x9e3779b97f4a7c15ull) >> 56) - 128; }
#define EACH for (u8 i = blockIdx.x * (u8)blockDim.x + threadIdx.x; i < n; i += (u8)gridDim.x * blockDim.x)
extern "C" __global__ void fresh_f32(const float* s, float* d, u8 n, u8 seed) { EACH d[i] = __fmul_rn(s[i], factor(seed, i) / 4096.f); }
extern "C" __global__ void fresh_f64(const double* s, double* d, u8 n, u8 seed) { EACH d[i] = __dmul_rn(s[i], factor(seed, i) / 4096.); }
extern "C" __global__ void fresh_f16(const __half* s, __half* d, u8 n, u8 seed) { EACH d[i] = __float2half_rn(__fmul_rn(__half2float(s[i]), factor(seed, i) / 4096.f)); }
extern "C" __global__ void fresh_b16(const __nv_bfloat16* s, __nv_bfloat16* d, u8 n, u8 seed) { EACH d[i] = __float2bfloat16_rn(__fmul_rn(__bfloat162float(s[i]), factor(seed, i) / 4096.f)); }
'''

_M = (1<<64)-1

def _mix(z:int)->int:
    z = ((z^z>>30)*0xbf58476d1ce4e5b9)&_M
    z = ((z^z>>27)*0x94d049bb133111eb)&_M
    return z^z>>31

def seed_of(fresh:int, array:int)->int: # Which of the inputs and parameters
    "The seed of one array"
    return _mix((fresh+(array+1)*0xd1342543de82ef95)&_M)

def factors(seed:int, n:int)->np.ndarray: # Integers, in 4096ths
    "The factor of each element"
    with np.errstate(over='ignore'):
        z = np.uint64(seed)+np.arange(1, n+1, dtype='u8')*np.uint64(0x9e3779b97f4a7c15)
        z = (z^z>>np.uint64(30))*np.uint64(0xbf58476d1ce4e5b9)
        z = (z^z>>np.uint64(27))*np.uint64(0x94d049bb133111eb)
        z ^= z>>np.uint64(31)
    return 4096+(_mix(seed)>>56)-128+(z>>np.uint64(56)).astype('i4')-128

def freshen(raw:np.ndarray, dtype:str, fresh:int, array:int)->np.ndarray: # Raw, as it came
    "What the device makes of one array, computed with numpy"
    if dtype not in KINDS: return raw
    f,x = factors(seed_of(fresh, array), raw.size).reshape(raw.shape),raw
    with np.errstate(over='ignore', invalid='ignore', under='ignore'):
        if dtype=='float64': return x*(f/4096.)
        if dtype=='bfloat16':
            bits = ((x.astype('u4')<<16).view('f4')*(f.astype('f4')/np.float32(4096))).view('u4')
            nan = (bits&0x7fffffff)>0x7f800000
            return np.where(nan, 0x7fff, (bits+0x7fff+(bits>>16&1))>>16).astype('u2')
        return (x.astype('f4')*(f.astype('f4')/np.float32(4096))).astype(x.dtype)

FIRST,EVERY = 22,60 # Timed runs of the candidate: so many there are always; after them one in so many is compared with the answer

def marks_of(samples:int)->int: # Of one process, the last run not counted
    "How many timed runs are compared with the answer, where `bench` makes at most so many rounds"
    return 1+round((2+2*max(samples,6)-FIRST)/EVERY) if samples>=10 else 1

def draw_marks(samples:int, rng:np.random.Generator)->dict[int,int]: # Run -> which mark
    "Which timed runs those are: one, at a drawn place, of each stretch"
    starts = [0, *(FIRST+EVERY*k for k in range(marks_of(samples)-1))]
    ends = [*starts[1:], min(FIRST, 2+2*max(samples,6)) if len(starts)==1 else 2+2*samples]
    return {int(rng.integers(a, b)):k for k,(a,b) in enumerate(zip(starts, ends))}

class Fresh:
    "Keeps the inputs and parameters of a plan on the device as they were uploaded, and makes new values of them"
    def __init__(self, memory, functions:dict, stream):
        from cupy.cuda import runtime
        self.memory,self.functions,self.stream,self.kept = memory,functions,stream,[]
        for k,i in enumerate(memory.plan.role('input','param')):
            b = memory.plan.buffers[i]
            if b.dtype not in KINDS or not b.nbytes: continue
            try: p = runtime.malloc(b.nbytes)
            except runtime.CUDARuntimeError:
                self.free()
                raise MemoryError(f'{b.nbytes/2**30:.1f} GiB for a second copy of {b.name} do not fit on the device') from None
            runtime.memcpy(p, memory.ptr(i), b.nbytes, 3)
            self.kept.append((k, i, p))
        runtime.deviceSynchronize() # The copies are on the default stream, for which ours does not wait
    def __call__(self, fresh:int):
        "Queue new values for all of them"
        for k,i,p in self.kept:
            b = self.memory.plan.buffers[i]
            n = int(np.prod(b.shape, dtype=np.int64))
            self.functions[KINDS[b.dtype]]((min(-(-n//256), 4096),), (256,), [np.uint64(p), np.uint64(self.memory.ptr(i)), np.uint64(n), np.uint64(seed_of(fresh, k))], 0, self.stream)
    def back(self):
        "Put the first values back"
        from cupy.cuda import runtime
        self.stream.synchronize()
        for _,i,p in self.kept: runtime.memcpy(self.memory.ptr(i), p, self.memory.plan.buffers[i].nbytes, 3)
    def free(self):
        from cupy.cuda import runtime
        for *_,p in self.kept: runtime.free(p)
        self.kept = []

def functions(arch:str)->dict: # Kind -> kernel
    "Compile and load the kernels"
    from cupy.cuda import function
    from kernelrl.nvrtc import compile_module
    from kernelrl.program import Module
    names = [f'fresh_{k}' for k in KINDS.values()]
    cubin,m = compile_module(Module(SOURCE), names, arch),function.Module()
    m.load(cubin.image)
    return {k:m.get_function(f'fresh_{k}') for k in KINDS.values()}
