"Transpose of a matrix"
import torch
import torch.nn as nn

N, D = 4096, 4096
SHAPES = [{"N": 37, "D": 129},
          {"N": 200, "D": 1000}]
LEVEL = 1
DISTRIBUTIONS = ("own", "heavy")


class Model(nn.Module):
    def forward(self, x):
        return x.t().contiguous()


def get_inputs():
    return [torch.randn(N, D)]


def get_init_inputs():
    return []
