"Mean over the middle of three dimensions"
import torch
import torch.nn as nn

B, N, D = 16, 1024, 1024
SHAPES = [{"B": 3, "N": 37, "D": 129},
          {"B": 2, "N": 1000, "D": 100}]
LEVEL = 1
DISTRIBUTIONS = ("own", "scaled", "shifted", "sparse")


class Model(nn.Module):
    def forward(self, x):
        return torch.mean(x, dim=1)


def get_inputs():
    return [torch.randn(B, N, D)]


def get_init_inputs():
    return []
