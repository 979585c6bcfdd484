"""A notebook-first lab for teaching models to write fast CUDA kernels."""
__version__ = "0.0.1"

from kernelrl.core import Finding, KernelRLError, Policy, Run
from kernelrl.task import Task, load_tasks, shipped_programs, shipped_tasks
from kernelrl.audit import audit
from kernelrl.program import Plan, Program
from kernelrl.trace import TraceRefused
from kernelrl.verdict import Store, Verdict
from kernelrl.judge import Judge, judge
