"Root-mean-square normalisation of each row with a weight, in bfloat16"
import torch
import torch.nn as nn

N, D = 8192, 2048
SHAPES = [{"N": 37, "D": 129},
          {"N": 200, "D": 1000}]
LEVEL = 2
DISTRIBUTIONS = ("own", "scaled", "shifted", "sparse", "equal_rows")


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter((1.0 + 0.2 * torch.randn(D)).bfloat16())

    def forward(self, x):
        return x * torch.rsqrt(torch.mean(x * x, dim=-1, keepdim=True) + 1e-5) * self.weight


def get_inputs():
    return [torch.randn(N, D, dtype=torch.bfloat16)]


def get_init_inputs():
    return []
