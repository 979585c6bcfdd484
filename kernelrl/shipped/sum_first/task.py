"Sum of each column"
import torch
import torch.nn as nn

N, D = 4096, 4096
SHAPES = [{"N": 37, "D": 129},
          {"N": 1000, "D": 200}]
LEVEL = 1
DISTRIBUTIONS = ("own", "scaled", "shifted", "sparse")


class Model(nn.Module):
    def forward(self, x):
        return torch.sum(x, dim=0)


def get_inputs():
    return [torch.randn(N, D)]


def get_init_inputs():
    return []
