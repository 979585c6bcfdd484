"Scale and shift by two scalars, then ReLU"
import torch
import torch.nn as nn

N, D = 4096, 4096
SHAPES = [{"N": 37, "D": 129},
          {"N": 200, "D": 1000}]
LEVEL = 1


class Model(nn.Module):
    def forward(self, x, scale, bias):
        return torch.relu(x * scale + bias)


def get_inputs():
    return [torch.randn(N, D), 1.5, 0.25]


def get_init_inputs():
    return []
