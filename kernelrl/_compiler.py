"""The process that compiles: NVRTC reads the candidate's CUDA here, so that a source which takes minutes, or crashes the compiler, costs one worker and no more."""
import os, resource
from kernelrl._worker import serve
from kernelrl.core import KernelRLError
from kernelrl.nvrtc import CompileError, compile_module
from kernelrl.program import Module

def handle(req:dict)->dict:
    try: return {'cubin':compile_module(Module.from_dict(req['module']), req['names'], req['arch']).to_dict()}
    except CompileError as e: return {'refused':e.finding.to_dict(), 'log':e.log[-20000:]}
    except KernelRLError as e: return {'broken':str(e)}

if __name__=='__main__':
    os.environ['CUDA_CACHE_DISABLE'] = '1' # a hit in NVRTC's own cache comes without ptxas's report
    resource.setrlimit(resource.RLIMIT_CORE, (0,0))
    serve(handle)
