"The host device: every feature against numpy, every kind of bad kernel by its name"
import os, subprocess, sys, time
from pathlib import Path
import numpy as np
import pytest
from kernelrl.core import KernelRLError
from kernelrl.host import HostCompileError, Unsupported, compile_host, run_host
from kernelrl.hostrun import unique_sectors
from kernelrl.program import Arg, Buffer, Fill, Launch, Module, Plan
from kernelrl.toolchain import dynamic_shared, find_compiler

NAMES = {'float32':'float', 'float16':'half', 'bfloat16':'bfloat16', 'int32':'int', 'uint32':'unsigned int', 'int64':'long long', 'uint64':'unsigned long long', 'int8':'signed char', 'uint8':'unsigned char', 'float64':'double', 'int16':'short'}
rng = np.random.default_rng(0)

def three(x): return tuple(x)+(1,)*(3-len(x)) if isinstance(x, tuple) else (x,1,1)

def make(source, kernel, grid, block, ins, outs, scalars=(), shared=0, fill=None, pointers=None):
    "A plan with one launch; `ins` are arrays, `outs` (shape, dtype)"
    bufs = [Buffer(f'x{i}', 'input', a.shape, 'bfloat16' if a.dtype==np.uint16 else str(a.dtype)) for i,a in enumerate(ins)]
    bufs += [Buffer(f'out{i}', 'output', s if isinstance(s, tuple) else (s,), d) for i,(s,d) in enumerate(outs)]
    args = [Arg((pointers or {}).get(i, NAMES[b.dtype])+'*', i) for i,b in enumerate(bufs)]
    args += [Arg('float', value=s) if isinstance(s, float) else Arg('int', value=s) for s in scalars]
    steps = [Fill(i, fill) for i in range(len(ins), len(bufs))] if fill is not None else []
    return Plan((Module(source),), tuple(bufs), (*steps, Launch(kernel, 0, three(grid), three(block), shared, tuple(args))), tuple(range(len(ins), len(bufs))))

def run(plan, ins, mode='run', **kw):
    return run_host(compile_host(plan, mode), plan, ins, **kw)

def good(source, kernel, grid, block, ins, outs, scalars=(), **kw):
    "Outputs in run mode; the same in check mode in three thread orders, with nothing to complain about"
    plan = make(source, kernel, grid, block, ins, outs, scalars, **kw)
    r,out = run(plan, ins)
    assert r.status=='ok' and not r.findings, (r, r.findings)
    for order in ('forward','reverse','shuffle'):
        c,again = run(plan, ins, 'check', order=order)
        assert c.status=='ok' and not [f for f in c.findings if f.severity!='note'], (order, c.findings)
        for a,b in zip(out, again): np.testing.assert_allclose(a.astype('f8'), b.astype('f8'), rtol=1e-3, atol=1e-3, err_msg=order)
    return out[0] if len(out)==1 else out

def bad(source, kernel, grid, block, ins, outs, scalars=(), mode='check', **kw):
    "Findings of a kernel that is wrong"
    order = kw.pop('order', 'forward'); deadline = kw.pop('deadline', 10.)
    plan = make(source, kernel, grid, block, ins, outs, scalars, **kw)
    r,_ = run(plan, ins, mode, order=order, deadline=deadline)
    return r, {f.kind:f for f in r.findings}

f32 = lambda *s: rng.standard_normal(s).astype('f4')
bf16 = lambda x: ((x.view('u4')+0x7fff+((x.view('u4')>>16)&1))>>16).astype('u2')
wide = lambda u: (u.astype('u4')<<16).view('f4')

# ---------------------------------------------------------------- what runs
def test_vector_add():
    x,y = f32(1000),f32(1000)
    o = good('extern "C" __global__ void __launch_bounds__(256) k(const float* __restrict__ x, const float* __restrict__ y, float* o, int n) { int i = blockIdx.x*blockDim.x+threadIdx.x; if (i<n) o[i] = x[i]+y[i]; }', 'k', 4, 256, [x,y], [(1000,'float32')], [1000])
    assert (o==x+y).all()

def test_vectors_and_cache_hints():
    x = f32(1024)
    o = good('__global__ void k(const float4* x, float4* o, int n) { int i = blockIdx.x*blockDim.x+threadIdx.x; if (i>=n) return; float4 v = __ldg(&x[i]); __stcs(o+i, make_float4(v.w, v.z, v.y, v.x)); }', 'k', 1, 256, [x], [(1024,'float32')], [256], pointers={0:'float4',1:'float4'})
    assert (o.reshape(-1,4)==x.reshape(-1,4)[:,::-1]).all()

def test_block_reduction_static_shared():
    x = f32(4,256)
    o = good('''__global__ void k(const float* x, float* o) { __shared__ float s[256]; int t = threadIdx.x; s[t] = x[blockIdx.x*256+t]; __syncthreads();
    for (int k=128; k; k>>=1) { if (t<k) s[t] += s[t+k]; __syncthreads(); } if (!t) o[blockIdx.x] = s[0]; }''', 'k', 4, 256, [x], [(4,'float32')])
    np.testing.assert_allclose(o, x.sum(1), rtol=1e-4, atol=1e-5)

@pytest.mark.parametrize('declaration', ['extern __shared__ float s[];', 'extern __shared__ __align__(16) float s[];', 'extern __shared__ alignas(16) float s[];', 'extern __align__(16) __shared__ float s[];'])
def test_dynamic_shared(declaration):
    x = f32(256)
    o = good('template<int N> __global__ void k(const float* x, float* o) { %s s[threadIdx.x] = x[threadIdx.x]; __syncthreads(); o[threadIdx.x] = s[N-1-threadIdx.x]; }' % declaration, 'k<256>', 1, 256, [x], [(256,'float32')], shared=1024)
    assert (o==x[::-1]).all()

@pytest.mark.parametrize('declaration', ['__shared__ alignas(16) float s[64];', '__shared__ __align__(16) float s[64];', 'alignas(128) __shared__ float s[64];', 'static __shared__ float s[64];', 'volatile __shared__ float s[64];', '__align__(16) __shared__ float s[64];'])
def test_static_shared_declarations(declaration):
    x = f32(64)
    o = good('__device__ __forceinline__ inline float f(float v) { return v; }\n__global__ void k(const float* x, float* o) { %s s[threadIdx.x] = f(x[threadIdx.x]); __syncthreads(); o[threadIdx.x] = s[63-threadIdx.x]; }' % declaration, 'k', 1, 64, [x], [(64,'float32')])
    assert (o==x[::-1]).all()

def test_shared_scalar_does_not_push_an_array_off_its_alignment():
    x = f32(64)
    o = good('__global__ void k(const float* x, float* o) { __shared__ char c; __shared__ float s[64]; if (!threadIdx.x) c = 1; ((float4*)s)[threadIdx.x] = ((const float4*)x)[threadIdx.x]; __syncthreads(); for (int i=0; i<4; i++) o[4*threadIdx.x+i] = s[63-4*threadIdx.x-i]*c; }', 'k', 1, 16, [x], [(64,'float32')])
    assert (o==x[::-1]).all()

def test_dynamic_shared_at_file_level():
    x = f32(64)
    o = good('namespace a { extern __shared__ float s[]; }\nusing namespace a;\n__device__ void put(int i, float v) { s[i] = v; }\n__global__ void k(const float* x, float* o) { put(threadIdx.x, x[threadIdx.x]); __syncthreads(); float* p = s; o[threadIdx.x] = p[63-threadIdx.x]; }', 'k', 1, 64, [x], [(64,'float32')], shared=256)
    assert (o==x[::-1]).all()

def test_shuffles():
    x = f32(64)
    src = '''template<class T> __device__ T sum(T v) {
#pragma unroll
    for (int k=16; k; k>>=1) v += __shfl_xor_sync(~0u, v, k); return v; }
__global__ void k(const float* x, float* o) { int i = threadIdx.x; float v = x[i];
    o[i] = sum(v); o[64+i] = __shfl_up_sync(~0u, v, 1); o[128+i] = __shfl_down_sync(~0u, v, 2, 16); o[192+i] = (float)__shfl_sync(~0u, (double)v, 3); o[256+i] = (float)__shfl_sync(~0u, (short)i, 5, 8); }'''
    o = good(src, 'k', 1, 64, [x], [(320,'float32')]).reshape(5,2,32)
    w = x.reshape(2,32)
    np.testing.assert_allclose(o[0], np.repeat(w.sum(1)[:,None], 32, 1), rtol=1e-4, atol=1e-5)
    assert (o[1,:,1:]==w[:,:-1]).all() and (o[1,:,0]==w[:,0]).all()
    half = w.reshape(2,2,16); assert (o[2].reshape(2,2,16)[:,:,:14]==half[:,:,2:]).all() and (o[2].reshape(2,2,16)[:,:,14:]==half[:,:,14:]).all()
    assert (o[3]==w[:,3:4]).all()
    assert (o[4]==np.arange(64).reshape(2,4,8)[:,:,5:6].repeat(8,2).reshape(2,32)).all()

def test_votes_matches_reductions():
    x = rng.integers(-50, 50, 32).astype('i4')
    src = '''__global__ void k(const int* x, int* o) { int i = threadIdx.x, v = x[i], p;
    o[i] = __ballot_sync(~0u, v>0); o[32+i] = __any_sync(~0u, v==1000); o[64+i] = __all_sync(~0u, v<1000); o[96+i] = __match_any_sync(~0u, v&3);
    __match_all_sync(~0u, 7, &p); o[128+i] = p; o[160+i] = __reduce_add_sync(~0u, v); o[192+i] = __reduce_min_sync(~0u, v); o[224+i] = __reduce_max_sync(~0u, v);
    o[256+i] = __reduce_xor_sync(~0u, (unsigned)v); o[288+i] = i<7 ? __popc(__activemask()) : 0; o[320+i] = __syncthreads_count(v>0); o[352+i] = __syncthreads_and(v<1000); o[384+i] = __syncthreads_or(v==1000); }'''
    o = good(src, 'k', 1, 32, [x], [(13*32,'int32')]).reshape(13,32)
    bits = lambda m: np.array(sum(1<<int(i) for i in np.flatnonzero(m)), 'u4').view('i4')
    assert (o[0]==bits(x>0)).all() and (o[1]==0).all() and (o[2]==1).all()
    assert (o[3]==[bits((x&3)==(v&3)) for v in x]).all() and (o[4]==1).all()
    assert (o[5]==x.sum()).all() and (o[6]==x.min()).all() and (o[7]==x.max()).all() and (o[8]==np.bitwise_xor.reduce(x)).all()
    assert (o[9][:7]==7).all() and (o[10]==(x>0).sum()).all() and (o[11]==1).all() and (o[12]==0).all()

def test_half_warp_groups_meet_separately():
    x = f32(32)
    o = good('__global__ void k(const float* x, float* o) { int i = threadIdx.x; float v = x[i]; if (i<16) v = __shfl_sync(0xffff, v, 0); else v = __shfl_sync(0xffff0000, v, 31); o[i] = v; }', 'k', 1, 32, [x], [(32,'float32')])
    assert (o[:16]==x[0]).all() and (o[16:]==x[31]).all()

def test_cooperative_groups():
    x = f32(128)
    src = '''#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
__global__ void k(const float* x, float* o) { auto b = cg::this_thread_block(); auto w = cg::tiled_partition<32>(b); auto q = cg::tiled_partition<8>(w); int i = b.thread_rank(); float v = x[i];
    o[i] = cg::reduce(w, v, cg::plus<float>()); o[128+i] = cg::reduce(q, v, cg::greater<float>()); o[256+i] = q.shfl(v, 3); o[384+i] = q.shfl_down(v, 1); o[512+i] = __popc(w.ballot(v>0));
    b.sync(); o[640+i] = w.any(v>100.f) + 2*w.all(v<100.f); if (v>0) { auto c = cg::coalesced_threads(); o[768+i] = c.size(); } else o[768+i] = 0; o[896+i] = q.meta_group_rank()*100 + q.thread_rank(); }'''
    o = good(src, 'k', 1, 128, [x], [(1024,'float32')]).reshape(8,128)
    w,q = x.reshape(4,32),x.reshape(16,8)
    np.testing.assert_allclose(o[0], w.sum(1).repeat(32), rtol=1e-4, atol=1e-5)
    assert (o[1]==q.max(1).repeat(8)).all() and (o[2]==q[:,3].repeat(8)).all() and (o[3].reshape(16,8)[:,:7]==q[:,1:]).all()
    assert (o[4]==(w>0).sum(1).repeat(32)).all() and (o[5]==2).all()
    assert (o[6]==np.where(x>0, (w>0).sum(1).repeat(32), 0)).all()
    assert (o[7]==np.arange(16).repeat(8)*100+np.tile(np.arange(8),16)).all()

def test_atomics():
    x = rng.integers(0, 16, 1024).astype('i4')
    src = '''__global__ void k(const int* x, int* h, int n) { int i = blockIdx.x*blockDim.x+threadIdx.x; if (i>=n) return; atomicAdd(&h[x[i]], 1); atomicMax(&h[16], i); atomicMin(&h[17], i-5); atomicOr(&h[18], 1<<x[i]);
    atomicSub(&h[19], 2); atomicXor(&h[20], i); atomicInc((unsigned*)&h[21], 9u); atomicAnd(&h[22], 0); atomicExch_block(&h[23], 5); int old = h[24], seen; do { seen = old; old = atomicCAS(&h[24], seen, seen+3); } while (old!=seen); }'''
    plan = make(src, 'k', 4, 256, [x], [(25,'int32')], [1024], fill=0)
    r,(o,) = run(plan, [x])
    assert (o[:16]==np.bincount(x, minlength=16)).all()
    assert list(o[16:24])==[1023,-5,(1<<16)-1,-2048,int(np.bitwise_xor.reduce(np.arange(1024))),1024%10,0,5] and o[24]==3*1024

def test_float_atomics():
    x = f32(512)
    o = good('__global__ void k(const float* x, double* o) { __shared__ float s; if (!threadIdx.x) s = 0; __syncthreads(); atomicAdd(&s, x[blockIdx.x*256+threadIdx.x]); __syncthreads(); if (!threadIdx.x) atomicAdd(o, (double)s); }', 'k', 2, 256, [x], [(1,'float64')], fill=0.)
    assert abs(o[0]-x.sum())<1e-3

def test_half():
    x,y = f32(512).astype('f2'),f32(512).astype('f2')
    src = '''#include <cuda_fp16.h>
template<int N> __global__ void k(const half2* x, const half2* y, half2* o) { __shared__ half2 sh[N]; int i = threadIdx.x; sh[i] = x[i]; __syncwarp(); half2 a = sh[i], b = y[i]; o[i] = __hfma2(a, b, __float2half2_rn(1.f)); o[256+i] = a*b+__half2half2(__low2half(a)); o[512+i] = __hmax2(a, b);
    half s = __hadd(a.x, b.y); s += (half)0.5f; o[768+i] = __halves2half2(s, __float2half(__half2float(a.x)*2.f)); __half2 t = __shfl_xor_sync(~0u, a, 1); o[1024+i] = t; o[1280+i] = h2exp(a); }'''
    o = good(src, 'k<256>', 1, 256, [x,y], [(3072,'float16')], pointers={0:'half2',1:'half2',2:'half2'}).reshape(6,256,2)
    a,b = x.reshape(256,2),y.reshape(256,2)
    np.testing.assert_allclose(o[0], (a.astype('f4')*b.astype('f4')+1).astype('f2'), rtol=2e-3)
    np.testing.assert_allclose(o[1], a*b+a[:,:1], rtol=2e-3, atol=1e-3)
    assert (o[2]==np.maximum(a,b)).all() and (o[3,:,0]==(a[:,0]+b[:,1])+np.float16(.5)).all() and (o[3,:,1]==a[:,0]*2).all()
    assert (o[4]==a.reshape(128,2,2)[:,::-1].reshape(256,2)).all()
    np.testing.assert_allclose(o[5].astype('f4'), np.exp(a.astype('f4')), rtol=2e-3)

def test_bfloat16():
    x,y = bf16(f32(256)),bf16(f32(256))
    src = '''#include <cuda_bf16.h>
__global__ void k(const __nv_bfloat16* x, const __nv_bfloat16* y, __nv_bfloat16* o) { int i = threadIdx.x; o[i] = __hadd(x[i], y[i]); o[256+i] = __float2bfloat16(__bfloat162float(x[i])*2.f); nv_bfloat16 z = x[i]; z *= y[i]; o[512+i] = z;
    const __nv_bfloat162* p = (const __nv_bfloat162*)x; if (i<128) ((__nv_bfloat162*)(o+768))[i] = __hmul2(p[i], p[i]); }'''
    plan = make(src, 'k', 1, 256, [x,y], [(1024,'bfloat16')])
    for mode in ('run','check'):
        r,(o,) = run(plan, [x,y], mode)
        assert r.status=='ok' and not r.findings, r.findings
        a,b,o = wide(x),wide(y),o.reshape(4,256)
        assert (o[0]==bf16(a+b)).all() and (wide(o[1])==2*a).all() and (o[2]==bf16(a*b)).all() and (o[3]==bf16(a*a)).all()

def test_math():
    x = np.abs(f32(256))+.1
    src = '''__global__ void k(const float* x, float* o) { int i = threadIdx.x; float v = x[i]; o[i] = __expf(v); o[256+i] = rsqrtf(v); o[512+i] = erff(v); o[768+i] = tanhf(v); o[1024+i] = __saturatef(v); o[1280+i] = fmaf(v,v,1.f); o[1536+i] = __frcp_rn(v); o[1792+i] = __fdividef(1.f,v);
    o[2048+i] = max(v, 1.f) + min(3, 5); o[2304+i] = __int_as_float(__float_as_int(v)); o[2560+i] = __logf(v); o[2816+i] = (float)__float2int_rn(v*10.f); o[3072+i] = erfinvf(__saturatef(v)*.9f); o[3328+i] = powf(v, 1.5f) + INFINITY*0.f*0; float s,c; sincosf(v,&s,&c); o[3584+i] = s*s+c*c; }'''
    from math import erf
    o = run(make(src, 'k', 1, 256, [x], [(15*256,'float32')]), [x])[1][0].reshape(15,256)
    want = [np.exp(x), x**-.5, np.vectorize(erf)(x), np.tanh(x), np.clip(x,0,1), x*x+1, 1/x, 1/x, np.maximum(x,1)+3, x, np.log(x), np.rint(x*10)]
    for i,w in enumerate(want): np.testing.assert_allclose(o[i], w, rtol=2e-6, atol=1e-6, err_msg=str(i))
    np.testing.assert_allclose(np.vectorize(erf)(o[12]), np.clip(x,0,1)*.9, rtol=1e-5); np.testing.assert_allclose(o[14], 1, rtol=1e-5)

def test_integer_intrinsics():
    x = rng.integers(1, 2**31, 64).astype('u4')
    src = '''__global__ void k(const unsigned* x, unsigned* o) { int i = threadIdx.x; unsigned v = x[i]; o[i] = __popc(v); o[64+i] = __clz(v); o[128+i] = __ffs(v); o[192+i] = __brev(v); o[256+i] = __umulhi(v, v); o[320+i] = __byte_perm(v, 0, 0x0123); o[384+i] = __funnelshift_l(v, v, 8); }'''
    o = good(src, 'k', 1, 64, [x], [(448,'uint32')]).reshape(7,64)
    assert (o[0]==[bin(v).count('1') for v in x]).all() and (o[1]==[32-int(v).bit_length() for v in x]).all() and (o[2]==[(int(v)&-int(v)).bit_length() for v in x]).all()
    assert (o[3]==[int(f'{v:032b}'[::-1],2) for v in x]).all() and (o[4]==(x.astype('u8')**2>>32)).all() and (o[5]==x.byteswap()).all() and (o[6]==(x<<8|x>>24)).all()

@pytest.mark.parametrize('kind', ['half','bf16','tf32'])
def test_wmma(kind):
    M = N = K = 32
    a,b = f32(M,K),f32(K,N)
    T,F,k,inc = {'half':('half','half',16,'x'),'bf16':('__nv_bfloat16','__nv_bfloat16',16,'x'),'tf32':('float','wmma::precision::tf32',8,'wmma::__float_to_tf32(x)')}[kind]
    A,B = {'half':(a.astype('f2'),b.astype('f2')), 'bf16':(bf16(a),bf16(b)), 'tf32':(a,b)}[kind]
    src = f'''#include <mma.h>
#include <cuda_bf16.h>
using namespace nvcuda;
__global__ void k(const {T}* A, const {T}* B, float* C) {{ int w = threadIdx.x/32; wmma::fragment<wmma::matrix_a,16,16,{k},{F},wmma::row_major> a; wmma::fragment<wmma::matrix_b,16,16,{k},{F},wmma::col_major> b; wmma::fragment<wmma::accumulator,16,16,{k},float> c;
    wmma::fill_fragment(c, 0.f);
    for (int i=0; i<32; i+={k}) {{ wmma::load_matrix_sync(a, A+blockIdx.x*16*32+i, 32); wmma::load_matrix_sync(b, B+w*16*32+i, 32); for (int t=0; t<a.num_elements; t++) {{ auto x = a.x[t]; a.x[t] = {inc}; }} wmma::mma_sync(c, a, b, c); }}
    for (int t=0; t<c.num_elements; t++) c.x[t] *= 2.f;
    wmma::store_matrix_sync(C+blockIdx.x*16*32+w*16, c, 32, wmma::mem_row_major); }}'''
    BT = np.ascontiguousarray(B.T)
    plan = make(src, 'k', 2, 64, [A,BT], [((M,N),'float32')])
    for mode in ('run','check'):
        r,(o,) = run(plan, [A,BT], mode)
        assert r.status=='ok' and not r.findings, r.findings
        wa,wb = (wide(A),wide(B)) if kind=='bf16' else (A.astype('f4'),B.astype('f4'))
        np.testing.assert_allclose(o, 2*(wa@wb), rtol=1e-2, atol=2e-2 if kind=='tf32' else 1e-3)
    assert r.traffic[0].mma_flops==2*M*N*K

def test_wmma_int8_and_half_accumulator():
    a,b = rng.integers(-9,9,(16,16)).astype('i1'),rng.integers(-9,9,(16,16)).astype('i1')
    src = '''#include <mma.h>
using namespace nvcuda::wmma;
__global__ void k(const signed char* A, const signed char* B, int* C) { fragment<matrix_a,16,16,16,signed char,row_major> a; fragment<matrix_b,16,16,16,signed char,row_major> b; fragment<accumulator,16,16,16,int> c; fill_fragment(c, 1); load_matrix_sync(a,A,16); load_matrix_sync(b,B,16); mma_sync(c,a,b,c); store_matrix_sync(C,c,16,mem_col_major); }'''
    o = good(src, 'k', 1, 32, [a,b], [((16,16),'int32')])
    assert (o.T==a.astype('i4')@b.astype('i4')+1).all()
    h,g = f32(16,16).astype('f2'),f32(16,16).astype('f2')
    o = good(src.replace('signed char','half').replace(',int>',',half>').replace('int*','half*').replace('c, 1','c, __float2half(0.f)'), 'k', 1, 32, [h,g], [((16,16),'float16')])
    np.testing.assert_allclose(o.T.astype('f4'), h.astype('f4')@g.astype('f4'), rtol=1e-2, atol=1e-2)

def test_templates_structs_lambdas_constants():
    x = f32(100)
    src = '''struct Scale { float a; __host__ __device__ float operator()(float v) const { return a*v; } };
__constant__ float table[4] = {1.f, 2.f, 3.f, 4.f};
__device__ int calls = 0;
template<typename T, int N, class F> __device__ __forceinline__ T apply(T v, F f) { T acc = 0;
#pragma unroll
    for (int i=0; i<N; i++) acc += f(v)*table[i]; return acc; }
template<typename T, int N> __global__ void k(const T* x, T* o, int n, float s) { int i = blockIdx.x*blockDim.x+threadIdx.x; if (i>=n) return; auto g = [=](T v) { return v+1; }; o[i] = apply<T,N>(x[i], Scale{s}) + g(x[i]); atomicAdd(&calls, 1); }'''
    o = good(src, 'k<float, 3>', 2, 64, [x], [(100,'float32')], [100, 2.5])
    np.testing.assert_allclose(o, 2.5*6*x+x+1, rtol=1e-5)

def test_pipeline_and_3d_grid():
    x = f32(2,3,4,32)
    src = '''#include <cuda_pipeline.h>
__global__ void k(const float* x, float* o) { __shared__ float s[32]; int b = blockIdx.x+gridDim.x*(blockIdx.y+gridDim.y*blockIdx.z), t = threadIdx.x+threadIdx.y*8; __pipeline_memcpy_async(&s[t], &x[b*32+t], 4); __pipeline_commit(); __pipeline_wait_prior(0); __syncthreads(); o[b*32+t] = s[31-t]; }'''
    o = good(src, 'k', (4,3,2), (8,4), [x], [(x.shape,'float32')])
    assert (o==x[...,::-1]).all()

def test_cub_and_libcu():
    x = f32(2,128)
    src = '''#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <cuda/std/limits>
__global__ void k(const float* x, float* o) { typedef cub::BlockReduce<float,128> R; typedef cub::BlockScan<float,128> S; __shared__ union { typename R::TempStorage r; typename S::TempStorage s; } t; float v = x[blockIdx.x*128+threadIdx.x]; float sum = R(t.r).Sum(v); __syncthreads(); float before; S(t.s).ExclusiveSum(v, before);
    o[blockIdx.x*128+threadIdx.x] = threadIdx.x ? before : sum; if (v==cuda::std::numeric_limits<float>::infinity()) o[0] = 0; }'''
    o = good(src, 'k', 2, 128, [x], [((2,128),'float32')])
    np.testing.assert_allclose(o[:,0], x.sum(1), rtol=1e-4, atol=1e-4); np.testing.assert_allclose(o[:,1:], np.cumsum(x,1)[:,:-1], rtol=1e-3, atol=1e-4)

def test_early_exit_before_a_barrier():
    x = f32(1000)
    o = good('__global__ void k(const float* x, float* o, int n) { __shared__ float s[256]; int t = threadIdx.x, i = blockIdx.x*256+t; if (i>=n) return; s[t] = x[i]; __syncthreads(); int m = min(256, n-(int)blockIdx.x*256); o[i] = s[m-1-t]; }', 'k', 4, 256, [x], [(1000,'float32')], [1000])
    assert (o==np.concatenate([x[i:i+256][::-1] for i in range(0,1000,256)])).all()

def test_spin_lock_between_threads():
    src = '__global__ void k(int* o) { __shared__ int flag; if (!threadIdx.x) flag = 0; __syncthreads(); if (threadIdx.x==0) { while (atomicCAS(&flag, 1, 2)!=1); o[0] = 7; } else if (threadIdx.x==63) atomicExch(&flag, 1); }'
    r,(o,) = run(make(src, 'k', 1, 64, [], [(1,'int32')]), [])
    assert r.status=='ok' and o[0]==7

def test_last_block_pattern_is_no_race():
    x = f32(1024)
    src = '''__device__ unsigned ticket;
__global__ void k(const float* x, float* part, float* o) { __shared__ float s[256]; __shared__ bool last; int t = threadIdx.x; s[t] = x[blockIdx.x*256+t]; __syncthreads(); for (int k=128; k; k>>=1) { if (t<k) s[t] += s[t+k]; __syncthreads(); }
    if (!t) { part[blockIdx.x] = s[0]; __threadfence(); last = atomicInc(&ticket, gridDim.x-1)==gridDim.x-1; } __syncthreads(); if (last && !t) { float z = 0; for (int i=0; i<gridDim.x; i++) z += part[i]; o[0] = z; } }'''
    o = good(src, 'k', 4, 256, [x], [(4,'float32'),(1,'float32')])[1]
    np.testing.assert_allclose(o[0], x.sum(), rtol=1e-3, atol=1e-4)

def test_two_launches_scratch_and_fill():
    x = f32(256)
    src = '__global__ void a(const float* x, float* t) { t[threadIdx.x] = 2*x[threadIdx.x]; }\n__global__ void b(const float* t, float* o) { o[threadIdx.x] += t[255-threadIdx.x]; }'
    P = lambda i: Arg('float*', i)
    plan = Plan((Module(src),), (Buffer('x','input',(256,),'float32'), Buffer('tmp','scratch',(256,),'float32'), Buffer('o','output',(256,),'float32')),
        (Fill(2, 1.5), Launch('a',0,(1,1,1),(256,1,1),0,(P(0),P(1))), Launch('b',0,(1,1,1),(256,1,1),0,(P(1),P(2)))), (2,))
    for mode in ('run','check'):
        r,(o,) = run(plan, [x], mode)
        assert r.status=='ok' and not r.findings and (o==1.5+2*x[::-1]).all()
    assert [t.kernel for t in r.traffic]==['a','b']

def test_defines_and_clock():
    x = f32(32)
    plan = make('__global__ void k(const float* x, float* o) { long long t = clock64(); o[threadIdx.x] = x[threadIdx.x]*FACTOR + (clock64()<t); }', 'k', 1, 32, [x], [(32,'float32')])
    plan = Plan((Module(plan.modules[0].source, ('-DFACTOR=3','--use_fast_math')),), plan.buffers, plan.steps, plan.outputs)
    assert (run(plan, [x])[1][0]==3*x).all()

def test_narrow_shared_neighbours_do_not_race():
    x = rng.integers(-5,5,256).astype('i1')
    o = good('__global__ void k(const signed char* x, signed char* o) { __shared__ signed char s[256]; s[threadIdx.x] = x[threadIdx.x]; __syncthreads(); o[threadIdx.x] = s[255-threadIdx.x]; }', 'k', 1, 256, [x], [(256,'int8')])
    assert (o==x[::-1]).all()

def test_printf_is_a_note():
    r,k = bad('__global__ void k(int* o) { printf("thread %d\\n", threadIdx.x); o[threadIdx.x] = 1; }', 'k', 1, 2, [], [(2,'int32')], mode='run')
    assert r.status=='ok' and k['printf'].severity=='note' and 'thread 1' in k['printf'].message

# ---------------------------------------------------------------- what is caught
def test_off_by_one():
    x = f32(1024)
    src = '__global__ void k(const float* x, float* o, int n) {\n int i = blockIdx.x*256+threadIdx.x;\n if (i<=n)\n  o[i] = x[i]; }'
    r,k = bad(src, 'k', 5, 256, [x], [(1024,'float32')], [1024])
    assert k['oob'].line==4 and 'element 1024 of x0' in k['oob'].message and 'block 4' in k['oob'].message
    r,k = bad(src, 'k', 5, 256, [x], [(1024,'float32')], [1024], mode='run')       # a page boundary: the guard page stops it
    assert r.status=='crash' and k['oob'].line==4
    x = f32(1000)
    r,k = bad(src, 'k', 5, 256, [x], [(1000,'float32')], [1000], mode='run')       # not at one: the pattern shows it
    assert 'past the end of out0' in k['oob'].message

def test_before_the_start():
    x = f32(64)
    r,k = bad('__global__ void k(const float* x, float* o) { int i = threadIdx.x; o[i] = x[i-1]; }', 'k', 1, 64, [x], [(64,'float32')])
    assert 'element -1 of x0' in k['oob'].message

def test_shared_overrun():
    x = f32(64)
    r,k = bad('__global__ void k(const float* x, float* o) { extern __shared__ float s[]; s[threadIdx.x+1] = x[threadIdx.x]; __syncthreads(); o[threadIdx.x] = s[threadIdx.x+1]; }', 'k', 1, 64, [x], [(64,'float32')], shared=256)
    assert 'dynamic shared memory' in k['oob'].message

@pytest.mark.skipif(find_compiler().name!='g++', reason='clang cuts copies of structs to their alignment')
def test_misaligned():
    x = f32(65)
    r,k = bad('__global__ void k(const float* x, float* o) {\n float4 v = *(const float4*)(x+1);\n o[0] = v.x+v.y+v.z+v.w; }', 'k', 1, 1, [x], [(1,'float32')])
    assert k['misaligned'].line==2 and 'multiple of 16' in k['misaligned'].message

def test_missing_syncthreads():
    x = f32(256)
    src = '__global__ void k(const float* x, float* o) { __shared__ float s[256]; int t = threadIdx.x;\n s[t] = x[t];\n o[t] = s[255-t]; }'
    kinds = [bad(src, 'k', 1, 256, [x], [(256,'float32')], order=o)[1] for o in ('forward','reverse')]
    assert all('race' in k for k in kinds)
    assert kinds[0]['race'].line in (2,3) and 'line ' in kinds[0]['race'].message

def test_missing_second_syncthreads():
    x = f32(4,256)
    r,k = bad('__global__ void k(const float* x, float* o) { __shared__ float s[256]; int t = threadIdx.x; float z = 0; for (int i=0; i<4; i++) {\n s[t] = x[i*256+t];\n __syncthreads();\n z += s[255-t]; } o[t] = z; }', 'k', 1, 256, [x], [(256,'float32')])
    assert k['race'].line==2 and 'writes what was read' in k['race'].message

def test_initialisation_races_with_atomics():
    r,k = bad('__global__ void k(int* o) { __shared__ int s; if (!threadIdx.x) s = 0;\n atomicAdd(&s, 1);\n __syncthreads(); if (!threadIdx.x) o[0] = s; }', 'k', 1, 64, [], [(1,'int32')])
    assert k['race'].line==2

def test_missing_syncwarp():
    x = f32(32)
    src = '__global__ void k(const float* x, float* o) { __shared__ float s[32]; int t = threadIdx.x; s[t] = x[t];%s o[t] = s[31-t]; }'
    assert 'race' in bad(src % '', 'k', 1, 32, [x], [(32,'float32')])[1]
    good(src % ' __syncwarp();', 'k', 1, 32, [x], [(32,'float32')])

def test_global_race_between_blocks():
    x = f32(512)
    r,k = bad('__global__ void k(const float* x, float* o) {\n o[0] += x[blockIdx.x*256+threadIdx.x]; }', 'k', 2, 256, [x], [(1,'float32')], fill=0.)
    assert k['race'].line==2 and 'out0' in k['race'].message
    r,k = bad('__global__ void k(float* o) { int i = blockIdx.x*32+threadIdx.x; o[i] = o[(i+32)%64]; }', 'k', 2, 32, [], [(64,'float32')], fill=0.)
    assert 'race' in k

def test_same_value_from_all_lanes_is_fine():
    good('__global__ void k(float* o) { o[blockIdx.x] = 3.f; }', 'k', 4, 32, [], [(4,'float32')])
    assert 'race' in bad('__global__ void k(float* o) { o[blockIdx.x] = (float)threadIdx.x; }', 'k', 4, 32, [], [(4,'float32')])[1]

def test_uninitialised_shared_and_global():
    x = f32(256)
    r,k = bad('__global__ void k(const float* x, float* o) { __shared__ float s[256]; int t = threadIdx.x; if (t<128) s[t] = x[t]; __syncthreads();\n o[t] = s[t]; }', 'k', 1, 256, [x], [(256,'float32')])
    assert k['uninit_shared'].line==2 and 'thread 128' in k['uninit_shared'].message and 'byte 512 of s,' in k['uninit_shared'].message
    r,k = bad('__global__ void k(const float* x, float* o) { int t = threadIdx.x;\n o[t] += x[t]; }', 'k', 1, 256, [x], [(256,'float32')])
    assert k['uninit_global'].line==2 and k['uninit_global'].severity=='warning'

def test_outputs_and_shared_memory_start_poisoned():
    r,(o,s) = run(make('__global__ void k(float* o, float* p) { __shared__ float s[32]; extern __shared__ float d[]; if (threadIdx.x<16) o[threadIdx.x] = 1; p[threadIdx.x] = s[threadIdx.x]+d[threadIdx.x]; s[threadIdx.x] = d[threadIdx.x] = 0; }', 'k', 2, 32, [], [(32,'float32'),(32,'float32')], shared=128), [])
    assert np.isnan(o[16:]).all() and np.isnan(s).all()

def test_divergent_barrier():
    x = f32(64)
    r,k = bad('__global__ void k(const float* x, float* o) { int t = threadIdx.x; float v = x[t];\n if (t<32)\n  __syncthreads();\n else\n  __syncthreads();\n o[t] = v; }', 'k', 1, 64, [x], [(64,'float32')], mode='run')
    assert k['divergent_barrier'].line==5 and 'line 3' in k['divergent_barrier'].message

def test_deadlock():
    r,k = bad('__global__ void k(float* o) {\n if (threadIdx.x==5)\n  __syncwarp();\n else __syncthreads();\n o[threadIdx.x] = 1; }', 'k', 1, 64, [], [(64,'float32')], mode='run')
    assert r.status=='deadlock' and k['deadlock'].line==4 and 'nobody can go on' in k['deadlock'].message

def test_mask_without_the_caller():
    r,k = bad('__global__ void k(float* o) { o[threadIdx.x] = __shfl_sync(0xf, 1.f, 0); }', 'k', 1, 32, [], [(32,'float32')])
    assert 'warp_mask' in k

def test_changed_input():
    x = f32(64)
    r,k = bad('__global__ void k(float* x, float* o) { o[threadIdx.x] = x[threadIdx.x]; x[threadIdx.x] = 0; }', 'k', 1, 64, [x], [(64,'float32')], mode='run')
    assert r.status=='ok' and 'x0' in k['input_changed'].message

def test_assert_and_trap():
    r,k = bad('__global__ void k(float* o, int n) { o[threadIdx.x] = 0;\n assert(threadIdx.x<n); }', 'k', 1, 64, [], [(64,'float32')], [10], mode='run')
    assert r.status=='crash' and k['device_assert'].line==2 and 'thread 10' in k['device_assert'].message
    assert 'device_assert' in bad('__global__ void k(float* o) { if (threadIdx.x==3) __trap(); }', 'k', 1, 64, [], [(64,'float32')], mode='run')[1]

def test_crash_far_outside():
    r,k = bad('__global__ void k(float* o) {\n *(volatile float*)16 = 1.f; }', 'k', 1, 1, [], [(1,'float32')], mode='run')
    assert r.status=='crash' and k['crash'].kernel=='k' and k['crash'].line==2

def test_division_by_zero_and_deep_stack():
    r,k = bad('__global__ void k(int* o, int z) {\n o[0] = 7/z; }', 'k', 1, 1, [], [(1,'int32')], [0], mode='run')
    assert r.status=='crash' and k['crash'].line==2
    r,k = bad('__global__ void k(float* o, int n) { volatile float big[200000]; for (int i=0; i<n; i++) big[i] = i; o[0] = big[n/2]; }', 'k', 1, 1, [], [(1,'float32')], [200000], mode='run')
    assert r.status=='crash' and 'local arrays' in k['crash'].message

def test_endless_loop_is_killed_at_its_deadline():
    t = time.time()
    r,k = bad('__global__ void k(volatile float* o) { while (o[0]!=3.f); }', 'k', 1, 1, [], [(1,'float32')], mode='run', deadline=.5)
    assert r.status=='timeout' and k['timeout'].kernel=='k' and time.time()-t<30

@pytest.mark.parametrize('grid,block,shared', [(1,2048,0), (0,32,0), ((1,70000),32,0), (1,(1,1,128),0), (1,32,300000)])
def test_launch_configuration(grid, block, shared):
    r,k = bad('__global__ void k(float* o) { o[0] = 1; }', 'k', grid, block, [], [(1,'float32')], shared=shared, mode='run')
    assert r.status=='crash' and list(k)==['launch_config']

def test_wrong_arguments():
    r,k = bad('__global__ void k(float* o, int n, int m) { o[0] = n+m; }', 'k', 1, 1, [], [(1,'float32')], [3], mode='run')
    assert 'takes 3 arguments' in k['launch_config'].message
    r,k = bad('__global__ void k(float* o, double n) { o[0] = n; }', 'k', 1, 1, [], [(1,'float32')], [3], mode='run')
    assert 'argument 1 has 4 bytes' in k['launch_config'].message

# ---------------------------------------------------------------- what does not compile
def compile_only(src, kernel='k'): return compile_host(make(src, kernel, 1, 1, [], [(1,'float32')]))

def test_compile_error():
    with pytest.raises(HostCompileError) as e: compile_only('__global__ void k(float* o) {\n o[0] = undefined_name; }')
    assert e.value.finding.line==2 and 'undefined_name' in e.value.finding.message and '/' not in e.value.finding.message

@pytest.mark.parametrize('name,src', [
    ('inline PTX', '__global__ void k(float* o) { int x; asm volatile("mov.u32 %0, 1;" : "=r"(x)); o[0] = x; }'),
    ('grid-wide sync', '#include <cooperative_groups.h>\n__global__ void k(float* o) { cooperative_groups::this_grid().sync(); o[0] = 1; }'),
    ('clusters', '#include <cooperative_groups.h>\nnamespace cg = cooperative_groups;\n__global__ void k(float* o) { auto c = cg::this_cluster(); c.sync(); }'),
    ('clusters', '__global__ void __cluster_dims__(2,1,1) k(float* o) { o[0] = 1; }'),
    ('kernels from kernels', '__global__ void c(float* o) { o[0] = 1; }\n__global__ void k(float* o) { c<<<1,1>>>(o); }'),
    ('cub/device', '#include <cub/device/device_reduce.cuh>\n__global__ void k(float* o) { o[0] = 1; }'),
    ('libcu++', '#include <cuda/std/limits>\n__global__ void k(float* o) { __shared__ cuda::barrier<cuda::thread_scope_block> b; o[0] = 1; }')])
def test_unsupported_by_name(name, src):
    with pytest.raises(Unsupported) as e: compile_only(src)
    assert e.value.finding.kind=='unsupported_on_host' and name in e.value.finding.message and e.value.finding.line in range(1,src.count('\n')+2)

def test_too_much_static_shared():
    with pytest.raises(HostCompileError) as e: compile_only('__global__ void k(float* o) { __shared__ float s[13000]; s[threadIdx.x] = 1; __syncthreads(); o[0] = s[0]; }')
    assert '50.8 KB' in e.value.finding.message

def test_refused_include_and_option():
    with pytest.raises(HostCompileError): compile_only('#include "/etc/passwd"\n__global__ void k(float* o) { o[0] = 1; }')
    with pytest.raises(KernelRLError): compile_host(make('', 'k', 1, 1, [], []), mode='fast')

# ---------------------------------------------------------------- what is counted
def lines(r): return {(l.line,l.space,l.op):l for l in r.traffic[0].lines}

def test_bank_conflicts():
    x = f32(32,32)
    src = '''__global__ void k(const float* x, float* o) { __shared__ float s[32][%d]; int a = threadIdx.x, b = threadIdx.y;
 s[b][a] = x[b*32+a];
 __syncthreads();
 o[b*32+a] = s[a][b]; }'''
    ways = {}
    for pad in (32,33):
        r,_ = run(make(src % pad, 'k', 1, (32,32), [x], [((32,32),'float32')]), [x], 'check')
        l = lines(r)
        assert l[2,'shared','store'].ways==32 and l[2,'global','load'].sectors==128
        ways[pad] = l[4,'shared','load'].ways/l[4,'shared','load'].requests
    assert ways=={32:32, 33:1}

def test_vector_bank_conflicts():
    src = '__global__ void k(float* o) { __shared__ float4 s[32]; s[threadIdx.x] = make_float4(1,2,3,4); __syncthreads();\n float4 v = s[31-threadIdx.x];\n o[threadIdx.x] = v.x; }'
    l = lines(run(make(src, 'k', 1, 32, [], [(32,'float32')]), [], 'check')[0])
    assert l[2,'shared','load'].ways==4 and l[2,'shared','load'].requests==1

@pytest.mark.parametrize('stride,sectors', [(1,4), (2,8), (8,32), (32,32)])
def test_sectors(stride, sectors):
    x = f32(32*32)
    l = lines(run(make('__global__ void k(const float* x, float* o, int s) {\n o[threadIdx.x] = x[threadIdx.x*s]; }', 'k', 1, 32, [x], [(32,'float32')], [stride]), [x], 'check')[0])
    assert l[2,'global','load'].sectors==sectors and l[2,'global','load'].requests==1 and l[2,'global','load'].bytes==128

def test_atomics_and_barriers_are_counted():
    src = '__global__ void k(int* o) { __syncthreads(); atomicAdd(o, 1); __syncthreads(); }'
    t = run(make(src, 'k', 3, 64, [], [(1,'int32')], fill=0), [], 'check')[0].traffic[0]
    assert t.atomics==3*64 and t.barriers==6 and t.unique_bytes==32

def test_sampling():
    n = 1<<18
    x,y = f32(n),f32(n)
    src = '__global__ void k(const float* x, const float* y, float* o, int n) { int i = blockIdx.x*256+threadIdx.x; if (i<n) o[i] = x[i]+y[i&1023]; }'
    plan = make(src, 'k', n//256, 256, [x,y], [(n,'float32')], [n])
    b = compile_host(plan, 'check')
    full,part = run_host(b, plan, [x,y])[0].traffic[0],run_host(b, plan, [x,y], sample_blocks=8)[0].traffic[0]
    assert part.sampled==8 and part.blocks==n//256
    for k in ('global_load_sectors','global_store_sectors','instructions'): assert abs(getattr(part,k)/getattr(full,k)-1)<.01, k
    assert .99<part.unique_bytes/full.unique_bytes<1.01 or abs(part.unique_bytes-full.unique_bytes)<20000
    assert full.unique_bytes==2*4*n+4096
    assert 5<full.instructions/n<40

def test_sampled_run_of_a_large_shape_without_inputs():
    n = 1<<24
    plan = make('__global__ void k(const float4* x, float4* o, int n) { int i = blockIdx.x*256+threadIdx.x; if (i<n) o[i] = x[i]; }', 'k', n//1024, 256, [np.empty(n,'f4')], [(n,'float32')], [n//4], pointers={0:'float4',1:'float4'})
    r,_ = run(plan, [None], 'check', sample_blocks=16)
    assert r.status=='ok' and abs(r.traffic[0].global_load_sectors-n/8)<1 and abs(r.traffic[0].unique_bytes/(8*n)-1)<.01

# ---------------------------------------------------------------- processes and files
def leftovers(): return {p for d in ('/dev/shm','/tmp') for p in Path(d).glob(f'kernelrl-host-{os.getpid()}-*')} if os.path.isdir('/dev/shm') else set()

def test_nothing_is_left_behind():
    before = leftovers()
    bad('__global__ void k(volatile float* o) { while (o[0]!=3.f); }', 'k', 1, 1, [], [(1,'float32')], mode='run', deadline=.3)
    bad('__global__ void k(float* o) { *(volatile float*)16 = 1.f; }', 'k', 1, 1, [], [(1,'float32')], mode='run')
    assert leftovers()<=before

def test_runner_dies_with_its_parent():
    code = '''
import sys; sys.path.insert(0, 'tests')
from test_host import *
plan = make('__global__ void k(volatile float* o) { while (o[0]!=3.f); }', 'k', 1, 1, [], [(1,'float32')])
b = compile_host(plan); print('ready', flush=True); run_host(b, plan, [], deadline=60)
'''
    p = subprocess.Popen([sys.executable,'-c',code], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent.parent)
    assert p.stdout.readline().strip()=='ready'
    for _ in range(400):
        kids = Path(f'/proc/{p.pid}/task/{p.pid}/children').read_text().split()
        if kids: break
        time.sleep(.05)
    p.kill(); p.wait()
    alive = lambda k: (p := Path(f'/proc/{k}/stat')).exists() and p.read_text().rsplit(')',1)[1].split()[0]!='Z'
    for _ in range(200):
        if not any(map(alive, kids)): break
        time.sleep(.05)
    assert kids and not any(map(alive, kids)) # The program would run for 60 s
    for d in leftovers():
        if d.name.startswith(f'kernelrl-host-{p.pid}-'): subprocess.run(['rm','-r',str(d)])

def test_kernels_cannot_leave_the_sandbox(tmp_path):
    flag = tmp_path/'made'
    src = 'extern "C" int system(const char*); extern "C" int open(const char*, int, ...);\n__global__ void k(int* o) { o[0] = system("touch %s"); o[1] = open("/etc/passwd", 0); o[2] = open("%s", 65, 0644); }' % (flag, flag)
    r,(o,) = run(make(src, 'k', 1, 1, [], [(3,'int32')]), [])
    assert not flag.exists() and o[1]==-1 and o[2]==-1

def test_source_rewriting_keeps_lines():
    s = '// extern __shared__ float no[];\nvoid k() {\n extern __shared__\n  float4 t[];\n}'
    assert dynamic_shared(s).count('\n')==s.count('\n') and '// extern __shared__ float no[];' in dynamic_shared(s) and 'float4* t' in dynamic_shared(s)

def test_unique_estimate_never_exceeds_the_buffer():
    for _ in range(100):
        seen = int(rng.integers(1,1000)); half = int(rng.integers(0,seen+1))
        assert seen<=unique_sectors(seen, half, 8, 1000, 1000)<=1000
