"Mean squared difference of two matrices"
import torch
import torch.nn as nn

N, D = 4096, 4096
SHAPES = [{"N": 37, "D": 129},
          {"N": 200, "D": 1000}]
LEVEL = 2
DISTRIBUTIONS = ("own", "scaled", "shifted", "sparse")


class Model(nn.Module):
    def forward(self, x, y):
        return torch.mean((x - y) ** 2)


def get_inputs():
    scale = 0.5 + torch.rand(())  # without it the answer would be nearly the same for every seed
    return [torch.randn(N, D) * scale, torch.randn(N, D)]


def get_init_inputs():
    return []
