"Layer normalisation of each row with weight and bias"
import torch
import torch.nn as nn
import torch.nn.functional as F

N, D = 8192, 2048
SHAPES = [{"N": 37, "D": 129},
          {"N": 200, "D": 1000}]
LEVEL = 1
DISTRIBUTIONS = ("own", "scaled", "shifted", "sparse", "equal_rows")


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(1.0 + 0.2 * torch.randn(D))
        self.bias = nn.Parameter(torch.randn(D))

    def forward(self, x):
        return F.layer_norm(x, (x.shape[-1],), self.weight, self.bias, 1e-5)


def get_inputs():
    return [torch.randn(N, D)]


def get_init_inputs():
    return []
