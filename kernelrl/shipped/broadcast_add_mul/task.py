"A gated residual: x + (x + shift) * gate, with shift [D] and gate [B, 1, D] broadcast over [B, N, D]"
import torch
import torch.nn as nn

B, N, D = 16, 1024, 1024
SHAPES = [{"B": 3, "N": 37, "D": 129},
          {"B": 2, "N": 100, "D": 1000}]
LEVEL = 2


class Model(nn.Module):
    def forward(self, x, shift, gate):
        return x + (x + shift) * gate


def get_inputs():
    return [torch.randn(B, N, D), torch.randn(D), torch.randn(B, 1, D)]


def get_init_inputs():
    return []
